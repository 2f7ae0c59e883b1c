"""lodestar.data.arrow.row_reader: the order of rows, and resuming."""

import os
import subprocess
import sys
import threading

import numpy as np
import pyarrow as pa
import pytest
import tensorflow as tf
from row_cases import SPEC, read, set_block_bytes, table, write

from lodestar.data import Column, SkippedRecords, open_dataset
from lodestar.data.arrow import row_reader

BOUNDS = [0, 7, 7, 30, 50]


# Tests of rows alone need only one source.
one_kind = pytest.mark.parametrize("files", ["parquet"], indirect=True)


@pytest.fixture(params=["parquet", "arrow", "csv", "jsonl", "tfrecord"])
def files(request, tmp_path, monkeypatch):
    """Four files of unequal size: one without rows, some with several row groups."""
    set_block_bytes(monkeypatch, 200)
    return [
        write(
            tmp_path / f"{i}.{request.param}",
            table(begin, end),
            row_group_size=6,
        )
        for i, (begin, end) in enumerate(zip(BOUNDS, BOUNDS[1:]))
        # No rows, no file.
        if begin < end or request.param not in ("jsonl", "tfrecord")
    ]


@pytest.fixture
def groups(monkeypatch):
    """A table of several row groups."""
    monkeypatch.setattr("lodestar.data.arrow.table_source._GROUP_ROWS", 6)
    return table(0, 50)


@pytest.mark.parametrize(("batch_size", "ahead"), [(4, 7), (50, 1), (51, 2)])
def test_batches_straddle_row_groups_and_files(files, batch_size, ahead):
    dataset = open_dataset(files, SPEC, batch_size, num_parallel_files=ahead)
    batches = read(dataset)
    assert sum(batches, []) == list(range(50))
    assert {len(batch) for batch in batches[:-1]} <= {batch_size}
    assert dataset.cardinality().numpy() == len(batches)


@one_kind
@pytest.mark.parametrize(
    ("options", "count"),
    [
        ({}, 7),
        ({"drop_remainder": True}, 6),
        ({"repeat": 3}, 21),
        ({"repeat": 2, "shuffle": 7}, 14),
        ({"repeat": 2, "shuffle": 7, "drop_remainder": True}, 12),
        ({"shuffle_files": True, "drop_remainder": True}, 6),
        ({"shuffle_files": True, "shard": (2, 1), "repeat": 3}, None),
        ({"shuffle": 7, "shard": (7, 3)}, 1),
        ({"repeat": None}, tf.data.INFINITE_CARDINALITY),
        (
            {"repeat": None, "shuffle": 5},
            tf.data.INFINITE_CARDINALITY,
        ),
        ({"on_error": "skip"}, tf.data.UNKNOWN_CARDINALITY),
    ],
)
def test_the_number_of_batches_is_known(files, options, count):
    dataset = open_dataset(files, SPEC, 8, prefetch=0, **options)
    found = dataset.cardinality().numpy()
    if count is not None:
        assert found == count
    if found > 0:
        assert found == len(read(dataset))


@one_kind
def test_drop_remainder(files):
    dataset = open_dataset(files, SPEC, 8, drop_remainder=True)
    assert [len(n) for n in read(dataset)] == [8] * 6
    features, label = dataset.element_spec
    assert label == tf.TensorSpec([8, 1], tf.float32)
    assert features["I2"] == tf.TensorSpec([8, 2, 2], tf.float32)
    assert features["day"] == tf.TensorSpec([8, 7], tf.float32)
    assert features["C1"].shape.as_list() == [8, None]


@one_kind
def test_repeat(files):
    dataset = open_dataset(files, SPEC, 20, repeat=3)
    assert sum(read(dataset), []) == list(range(50)) * 3
    endless = open_dataset(files, SPEC, 50, repeat=None)
    assert read(endless.take(4)) == [list(range(50))] * 4


@pytest.mark.parametrize("window", [1, 20, 1000])
def test_shuffled_rows(files, window):
    def run(seed):
        return read(
            open_dataset(files, SPEC, 50, shuffle=window, seed=seed, repeat=2)
        )

    first, second = run(1)
    assert sorted(first) == sorted(second) == list(range(50))
    assert run(1) == [first, second]
    if window > 1:
        assert first != second
        assert run(2) != [first, second]
    # No row moves further than the window's size.
    assert max(abs(n - i) for i, n in enumerate(first)) < window


def test_a_window_of_all_rows_shuffles_them_all():
    data = pa.table({"i": pa.array(range(300), pa.int64())})
    dataset = open_dataset(data, [Column.sparse("i")], 300, shuffle=300, seed=1)
    orders = [
        tuple(x["i"].values.numpy().tolist()) for _ in range(2) for x in dataset
    ]
    assert len(set(orders)) == 2
    for order in orders:
        assert sorted(order) == list(range(300))
        # With two windows, one of them would have only the upper half.
        assert {i // 150 for i in order[:20]} == {0, 1}
        assert {i // 150 for i in order[-20:]} == {0, 1}


@one_kind
def test_each_iteration_is_shuffled_differently(files):
    dataset = open_dataset(files, SPEC, 50, shuffle=50, seed=1)
    assert read(dataset) != read(dataset)


@one_kind
def test_shuffled_files_keep_their_rows_together(files):
    dataset = open_dataset(
        files, SPEC, 50, shuffle_files=True, seed=3, repeat=8
    )
    runs = [list(range(7)), list(range(7, 30)), list(range(30, 50))]
    orders = set()
    for epoch in read(dataset):
        starts = sorted(runs, key=lambda run: epoch.index(run[0]))
        assert epoch == sum(starts, [])
        orders.add(epoch[0])
    assert len(orders) > 1


@one_kind
@pytest.mark.parametrize(("num", "window"), [(3, 0), (9, 10)])
def test_shards_share_the_rows(files, num, window):
    found = []
    for index in range(num):
        dataset = open_dataset(
            files, SPEC, 4, shard=(num, index), shuffle=window
        )
        rows = sum(read(dataset), [])
        if num > len(files):
            assert len(rows) in (50 // num, 50 // num + 1)
        found += rows
    assert sorted(found) == list(range(50))


OPTIONS = [
    {},
    {"shuffle": 11, "seed": 5, "repeat": 2},
    {"shuffle_files": True, "seed": 5, "repeat": 2},
    {"on_error": "skip"},
    {"drop_remainder": True},
]


@one_kind
@pytest.mark.parametrize(
    ("options", "taken"),
    [
        *((options, 3) for options in OPTIONS),
        *((OPTIONS[1], n) for n in (0, 7)),
    ],
    ids=str,
)
def test_a_saved_iterator_resumes_at_the_next_row(
    tmp_path, files, taken, options
):
    check_resume(tmp_path, files, taken, options)


@pytest.mark.parametrize("options", OPTIONS[:2], ids=str)
def test_every_source_resumes_at_the_next_row(tmp_path, files, options):
    check_resume(tmp_path, files, 2, options)


def check_resume(tmp_path, files, taken, options):
    dataset = open_dataset(files, SPEC, 8, **options)
    iterator = iter(dataset)
    for _ in range(min(taken, 6)):
        next(iterator)
    path = tf.train.Checkpoint(iterator=iterator).save(tmp_path / "at")
    rest = read(iterator)
    again = iter(open_dataset(files, SPEC, 8, **options))
    tf.train.Checkpoint(iterator=again).restore(path)
    assert read(again) == rest


def test_a_table_in_shards_and_resumed(tmp_path, groups):
    parts = [
        sum(read(open_dataset(groups, SPEC, 4, shard=(3, i))), [])
        for i in range(3)
    ]
    assert sum(parts, []) == list(range(50))
    assert [len(part) for part in parts] == [16, 17, 17]
    check_resume(tmp_path, groups, 3, {"shuffle": 7, "seed": 1})


RESUME = """
import sys
import tensorflow as tf
from lodestar.data import open_dataset, Schema

dataset = open_dataset(sys.argv[1:5], sys.argv[5], 8, shuffle=20, seed=2)
iterator = iter(dataset)
tf.train.Checkpoint(iterator=iterator).restore(sys.argv[6]).assert_consumed()
print([x["n"].numpy()[:, 0].tolist() for x, _ in iterator])
"""


@one_kind
def test_another_process_resumes_at_the_next_row(tmp_path, files):
    schema = tmp_path / "schema.yaml"
    SPEC.save(schema)
    dataset = open_dataset(files, SPEC, 8, shuffle=20, seed=2)
    iterator = iter(dataset)
    next(iterator)
    path = tf.train.Checkpoint(iterator=iterator).save(tmp_path / "at")
    run = subprocess.run(
        [sys.executable, "-c", RESUME, *map(str, files), str(schema), path],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert run.returncode == 0, run.stderr
    assert run.stdout.strip() == str(read(iterator))


NESTED = [[[i, i + 1], [], [7] * (i % 3)][: i % 4] for i in range(40)]


@pytest.mark.parametrize(
    ("sparse", "options"), [("ragged", OPTIONS[0]), ("lod", OPTIONS[1])]
)
def test_lists_of_lists_are_complete(tmp_path, monkeypatch, sparse, options):
    monkeypatch.setattr("lodestar.data.arrow.table_source._GROUP_ROWS", 9)
    data = pa.table({"n": range(40), "x": NESTED})
    schema = [
        Column.dense("n", (), dtype="uint64"),
        Column.sparse("x", depth=2),
    ]

    def opened():
        return open_dataset(
            data, schema, 7, sparse=sparse, prefetch=2, **options
        )

    def rows(iterator):
        found = []
        for features in iterator:
            numbers = features["n"].numpy().tolist()
            lists = features["x"].to_list()
            assert lists == [NESTED[n] for n in numbers]
            found += numbers
        return found

    if sparse == "ragged":
        assert opened().element_spec["x"].ragged_rank == 2
    epochs = options.get("repeat", 1)
    assert sorted(rows(opened())) == sorted(list(range(40)) * epochs)
    iterator = iter(opened())
    next(iterator)
    path = tf.train.Checkpoint(iterator=iterator).save(tmp_path / "at")
    rest = rows(iterator)
    again = iter(opened())
    tf.train.Checkpoint(iterator=again).restore(path)
    assert rows(again) == rest and len(rest) == 40 * epochs - 7


@one_kind
def test_iterators_do_not_disturb_one_another(files):
    dataset = open_dataset(files, SPEC, 3, num_parallel_files=1)
    iterators = [iter(dataset) for _ in range(6)]
    found = [[] for _ in iterators]
    for step in range(17):
        for lag, iterator in enumerate(iterators):
            if step >= lag:
                found[lag].append(next(iterator))
    rest = [read(iterator) for iterator in iterators]
    whole = read(dataset)
    for lag, (taken, left) in enumerate(zip(found, rest)):
        assert read(taken) + left == whole, lag


@pytest.mark.parametrize("name", ["a.parquet", "a.csv", "a.arrow", "a.arrows"])
def test_no_rows(tmp_path, name):
    path = write(tmp_path / name, table(0, 0))
    for data in (path, [path, path], table(0, 0)):
        assert list(open_dataset(data, SPEC, 8)) == []
    endless = open_dataset(path, SPEC, 8, shuffle=5, repeat=None)
    assert list(endless) == []


def test_batches_keep_their_values_when_later_ones_are_made(tmp_path):
    data = pa.table(
        {
            "I": pa.array(np.arange(600, dtype=np.float32)),
            "C": pa.array([list(range(i, i + i % 3)) for i in range(600)]),
        }
    )
    path = write(tmp_path / "a.parquet", data, row_group_size=70)
    schema = [Column.dense("I"), Column.sparse("C")]
    kept = list(open_dataset(path, schema, 32, prefetch=0))
    values = np.concatenate([f["I"].numpy()[:, 0] for f in kept])
    np.testing.assert_array_equal(values, np.arange(600))
    ids = [row for f in kept for row in f["C"].to_list()]
    assert ids == data["C"].to_pylist()


def test_a_free_dim(tmp_path):
    rows = [[1, 2], [3, 4], [5, 6, 7, 8], []]
    data = pa.table({"x": pa.array(rows, pa.list_(pa.float32()))})
    path = write(tmp_path / "a.parquet", data)
    schema = [Column.dense("x", (-1, 2))]
    shapes = [f["x"].shape for f in open_dataset(path, schema, 1)]
    assert shapes == [(1, 1, 2), (1, 1, 2), (1, 2, 2), (1, 0, 2)]
    first = next(iter(open_dataset(path, schema, 2)))
    assert first["x"].numpy().tolist() == [[[1, 2]], [[3, 4]]]
    with pytest.raises(tf.errors.InvalidArgumentError, match="of one size"):
        list(open_dataset(path, schema, 3))


def test_no_more_batches_of_a_free_dim(tmp_path):
    data = pa.table({"x": pa.array([[1.0]] * 3, pa.list_(pa.float32()))})
    dataset = open_dataset(
        data,
        [Column.dense("x", (-1,))],
        2,
        drop_remainder=True,
        on_error="skip",
    )
    assert [f["x"].shape for f in dataset] == [(2, 1)]


def test_bad_rows_are_skipped_in_windows():
    data = pa.table({"day": list(range(9)), "label": [1.0] * 9})
    schema = [Column.label("label"), Column.one_hot("day", 7)]
    skipped = SkippedRecords()
    dataset = open_dataset(
        data, schema, 4, on_error="skip", skipped=skipped, shuffle=3
    )
    assert sum(len(label) for _, label in dataset) == 7
    assert skipped.messages == [
        f"pyarrow.Table: row {row}: column 'day': found {row}, expected an "
        "integer in [0, 6]"
        for row in (7, 8)
    ]


def test_a_reading_thread_that_waits_for_the_batch(groups, monkeypatch):
    # As one that collects an iterator of its reader as garbage.
    ended = threading.Event()
    read_rows = row_reader.read_rows
    held = []

    def read_or_wait(source, group, *arguments):
        if group == 1 and not held:
            held.append(group)
            assert ended.wait(100)
        return read_rows(source, group, *arguments)

    monkeypatch.setattr(row_reader, "read_rows", read_or_wait)
    monkeypatch.setattr(row_reader, "_PATIENCE", 0.1)
    data = pa.table({"n": range(20)})
    found = [
        i
        for batch in open_dataset(data, [Column.sparse("n")], 4)
        for (i,) in batch["n"].to_list()
    ]
    ended.set()
    assert held and found == list(range(20))
