"""lodestar.data.open_dataset against what pyarrow and plain Python say."""

import _thread
import gc
import os
import subprocess
import sys
import time
import weakref

import keras
import numpy as np
import pyarrow as pa
import pytest
import tensorflow as tf
from parquet_cases import (
    SPEC,
    read,
    table,
    write,
    write_metadata,
)

from lodestar.data import Column, Schema, open_dataset
from lodestar.data.arrow.batch_packer import BatchPacker
from lodestar.data.parquet.parquet_reader import ParquetReader
from lodestar.data.parquet.parquet_rows import Rows
from lodestar.data.parquet.parquet_schema import Binding, ColumnType
from lodestar.ragged import LoDTensor


@pytest.fixture
def files(tmp_path):
    """Four files of unequal size, one of no rows, and of several row groups."""
    bounds = [0, 7, 7, 30, 50]
    return [
        write(tmp_path / f"{i}.parquet", table(begin, end), row_group_size=6)
        for i, (begin, end) in enumerate(zip(bounds, bounds[1:]))
    ]


@pytest.fixture
def example(tmp_path):
    """The worked example: C2 stands before C1 in the JSON, and behind it."""
    path = tmp_path / "0.parquet"
    write(
        path,
        pa.table(
            {
                "label": pa.array([1, 0], pa.float32()),
                "I1": pa.array([0.5, 2.0], pa.float32()),
                "C1": pa.array([[4], []], pa.list_(pa.int64())),
                "C2": pa.array([9, 8], pa.int64()),
            }
        ),
    )
    write_metadata(
        tmp_path,
        {"0.parquet": 2},
        labels=[("label", 0)],
        conts=[("I1", 1)],
        cats=[("C2", 3), ("C1", 2)],
    )
    return path


def test_worked_example_of_the_format(example):
    dataset = open_dataset(
        example, batch_size=8, slot_size_array=[10, 20], sparse="csr"
    )
    ((features, label),) = dataset
    assert label.numpy().tolist() == [[1.0], [0.0]]
    assert features["I1"].numpy().tolist() == [[0.5], [2.0]]
    assert features["csr"]["row_offsets"].numpy().tolist() == [0, 1, 2, 2, 3]
    assert features["csr"]["values"].numpy().tolist() == [4, 19, 18]


def test_slots_come_by_ascending_index(example):
    dataset = open_dataset(example.parent, batch_size=8)
    assert list(dataset.element_spec[0]) == ["I1", "C1", "C2"]
    ((features, _),) = dataset
    assert features["C1"].to_list() == [[4], []]
    assert features["C2"].to_list() == [[9], [8]]


@pytest.mark.parametrize("ahead", [1, 7])
@pytest.mark.parametrize("batch_size", [4, 50, 51])
def test_batches_straddle_row_groups_and_files(files, batch_size, ahead):
    dataset = open_dataset(files, SPEC, batch_size, num_parallel_files=ahead)
    batches = read(dataset)
    assert sum(batches, []) == list(range(50))
    assert {len(batch) for batch in batches[:-1]} <= {batch_size}
    assert dataset.cardinality().numpy() == len(batches)


@pytest.mark.parametrize(
    "options",
    [
        {"shuffle_rows": 7, "repeat": 2},
        {"shuffle_files": True, "drop_remainder": True},
        {"shuffle_files": True, "shard": (2, 1), "repeat": 3},
        {"shuffle_rows": 7, "shard": (7, 3)},
    ],
)
def test_the_number_of_shuffled_batches_is_known(files, options):
    dataset = open_dataset(files, SPEC, 8, **options)
    assert dataset.cardinality().numpy() == len(read(dataset)) > 0


def test_drop_remainder(files):
    dataset = open_dataset(files, SPEC, 8, drop_remainder=True)
    assert [len(n) for n in read(dataset)] == [8] * 6
    features, label = dataset.element_spec
    assert label == tf.TensorSpec([8, 1], tf.float32)
    assert features["I2"] == tf.TensorSpec([8, 2, 2], tf.float32)
    assert features["day"] == tf.TensorSpec([8, 7], tf.float32)
    assert features["C1"].shape.as_list() == [8, None]


def test_without_metadata_the_types_tell(files):
    data = table(0, 5).rename_columns(
        ["label", "I1", "I2", "C1", "C2", "day", "w", "n"]
    )
    fixed = pa.array([[1.0, 2.0]] * 5, pa.list_(pa.float32(), 2))
    data = data.append_column("F", fixed)
    path = write(files[0].parent / "inferred.parquet", data)
    dataset = open_dataset(path, batch_size=8)
    ((features, label),) = dataset
    assert label.shape == (5, 1)
    assert list(features) == ["I1", "I2", "C1", "C2", "day", "w", "n", "F"]
    assert features["F"].numpy().tolist() == [[1.0, 2.0]] * 5
    assert isinstance(features["I2"], tf.RaggedTensor)
    assert features["n"].to_list() == [[i] for i in range(5)]


def test_wide_columns_of_the_metadata(tmp_path):
    data = pa.table(
        {
            "y": pa.array([[1, 2], [3, 4]], pa.list_(pa.float32())),
            "x": pa.array([[1, 2, 3], [4, 5, 6]], pa.list_(pa.float32())),
            "unlisted": pa.array(["a", None]),
        }
    )
    write(tmp_path / "a.parquet", data)
    write_metadata(
        tmp_path, {"a.parquet": 2}, labels=[("y", 0)], conts=[("other", 1)]
    )
    ((features, label),) = open_dataset(tmp_path, batch_size=8)
    assert label["y_0"].numpy().tolist() == [[1.0], [3.0]]
    assert label["y_1"].numpy().tolist() == [[2.0], [4.0]]
    assert features["x"].numpy().tolist() == [[1, 2, 3], [4, 5, 6]]


def test_a_leaf_behind_nested_columns_is_found(tmp_path):
    data = pa.table(
        {
            "nested": pa.array([{"a": 1, "b": [2, 3]}] * 2),
            "x": pa.array([[1, 2], [3, 4]], pa.list_(pa.float32())),
        }
    )
    write(tmp_path / "a.parquet", data)
    write_metadata(tmp_path, {"a.parquet": 2}, conts=[("x", 1)])
    (features,) = open_dataset(tmp_path, batch_size=8)
    assert features["x"].shape == (2, 2)


def test_slots_take_columns_by_name_whatever_the_metadata_lists(example):
    spec = Schema([Column.sparse("C2"), Column.dense("I1", ())])
    (features,) = open_dataset(example, spec, 8)
    assert list(features) == ["C2", "I1"]
    assert features["I1"].numpy().tolist() == [0.5, 2.0]


@pytest.mark.parametrize("kind", ["int32", "uint32", "int64", "uint64"])
@pytest.mark.parametrize("form", ["scalar", "list", "large_list", "fixed"])
def test_types_of_ids(tmp_path, kind, form):
    element = getattr(pa, kind)()
    info = np.iinfo(kind)
    ids = [info.min, info.max, 5, 0]
    if form == "scalar":
        array = pa.array(ids, element)
        want = [[i] for i in ids]
    else:
        want = [ids[:2], ids[2:]]
        make = {
            "list": lambda: pa.list_(element),
            "large_list": lambda: pa.large_list(element),
            "fixed": lambda: pa.list_(element, 2),
        }[form]
        array = pa.array(want, make())
    path = write(tmp_path / "a.parquet", pa.table({"C": array}))
    (features,) = open_dataset(path, batch_size=8)
    want = np.array(want, dtype=object) % 2**64
    got = np.array(features["C"].to_list(), dtype=object) % 2**64
    assert got.tolist() == want.tolist()


def test_integers_may_be_stored_as_a_dictionary(tmp_path):
    data = pa.table({"C": pa.array([7, 8, 7]).dictionary_encode()})
    path = write(tmp_path / "a.parquet", data)
    (features,) = open_dataset(path, batch_size=8)
    assert features["C"].to_list() == [[7], [8], [7]]


def test_labels_may_be_integers_where_the_slot_is_one(tmp_path):
    data = pa.table({"y": pa.array([3, 2**40], pa.int64())})
    path = write(tmp_path / "a.parquet", data)
    spec = Schema([Column.label("y", binary=False), Column.sparse("y2")])
    spec = Schema([spec["y"]])
    ((_, label),) = open_dataset(path, spec, 8)
    assert label.numpy().tolist() == [[3.0], [2.0**40]]


def test_unused_slots_are_not_read(files):
    schema = [Column.sparse("nothing", used=False), *SPEC]
    assert sum(read(open_dataset(files, schema, 8)), []) == list(range(50))


def test_weights(tmp_path):
    data = pa.table(
        {
            "C": pa.array([[1, 2], [], [3]], pa.list_(pa.int64())),
            "w": pa.array([[0.5, 1], [], [2]], pa.list_(pa.float32())),
        }
    )
    path = write(tmp_path / "a.parquet", data)
    (features,) = open_dataset(path, batch_size=8, weights={"C": "w"})
    assert features["w"].to_list() == [[0.5, 1.0], [], [2.0]]


def test_a_dense_slot_with_a_free_dim(tmp_path):
    rows = [[1, 2], [3, 4], [5, 6, 7, 8], []]
    data = pa.table({"x": pa.array(rows, pa.list_(pa.float32()))})
    path = write(tmp_path / "a.parquet", data)
    spec = Schema([Column.dense("x", (-1, 2))])
    shapes = [f["x"].shape for f in open_dataset(path, spec, 1)]
    assert shapes == [(1, 1, 2), (1, 1, 2), (1, 2, 2), (1, 0, 2)]
    first = next(iter(open_dataset(path, spec, 2)))
    assert first["x"].numpy().tolist() == [[[1, 2]], [[3, 4]]]
    with pytest.raises(tf.errors.InvalidArgumentError, match="of one size"):
        list(open_dataset(path, spec, 3))


def test_no_more_batches_of_a_free_dim(tmp_path):
    data = pa.table({"x": pa.array([[1.0]] * 3, pa.list_(pa.float32()))})
    path = write(tmp_path / "a.parquet", data)
    dataset = open_dataset(
        path,
        [Column.dense("x", (-1,))],
        2,
        drop_remainder=True,
        on_error="skip",
    )
    assert [f["x"].shape for f in dataset] == [(2, 1)]


def test_batches_keep_their_values_when_later_ones_are_made(tmp_path):
    data = pa.table(
        {
            "I": pa.array(np.arange(600, dtype=np.float32)),
            "C": pa.array([list(range(i, i + i % 3)) for i in range(600)]),
        }
    )
    path = write(tmp_path / "a.parquet", data, row_group_size=70)
    kept = list(open_dataset(path, batch_size=32, prefetch=0))
    values = np.concatenate([f["I"].numpy()[:, 0] for f in kept])
    np.testing.assert_array_equal(values, np.arange(600))
    ids = [row for f in kept for row in f["C"].to_list()]
    assert ids == data["C"].to_pylist()


def test_memory_of_batches_is_used_again():
    slot = Column.dense("I", (1,))
    binding = Binding(slot, "I", ColumnType("float", False, 1), 1)
    packer = BatchPacker([binding], None)
    rows = Rows(8, {0: np.arange(8, dtype=np.float32)[:, np.newaxis]})
    buffer, places = packer.pack([(rows, 2, 6)], 4)
    assert places.tolist() == [[0, 16, 4]]
    assert buffer.view(np.float32)[:4].tolist() == [2, 3, 4, 5]
    address = buffer.ctypes.data
    assert packer.pack([(rows, 0, 4)], 4)[0].ctypes.data != address
    del buffer
    gc.collect()
    assert packer.pack([(rows, 0, 4)], 4)[0].ctypes.data == address


def test_lod(files):
    ((features, _),) = open_dataset(files, SPEC, 50, sparse="lod")
    assert isinstance(features["C1"], LoDTensor)
    assert features["C1"].to_list()[:4] == [
        [],
        [1000],
        [2000, 2001],
        [3000, 3001, 3002],
    ]


def test_files_may_be_a_directory_or_a_list(files, tmp_path, monkeypatch):
    assert sum(read(open_dataset(tmp_path, SPEC, 8)), []) == list(range(50))
    listed = tmp_path / "file_list.txt"
    names = [str(files[3]), str(files[0])]
    listed.write_text("\n".join(["2", *names, str(files[1])]) + "\n")
    got = sum(read(open_dataset(listed, SPEC, 8)), [])
    assert got == [*range(30, 50), *range(7)]
    write_metadata(tmp_path, {"2.parquet": 23, "0.parquet": 7})
    got = sum(read(open_dataset(tmp_path, SPEC, 8)), [])
    assert got == [*range(7, 30), *range(7)]
    monkeypatch.chdir(tmp_path)
    assert sum(read(open_dataset("0.parquet", SPEC, 8)), []) == [*range(7)]


def test_each_directory_counts_its_own_rows(tmp_path):
    for name, rows in (("a", 2), ("b", 3)):
        (tmp_path / name).mkdir()
        write(tmp_path / name / "0.parquet", pa.table({"C": range(rows)}))
        write_metadata(tmp_path / name, {"0.parquet": rows}, cats=[("C", 0)])
    (features,) = open_dataset([tmp_path / "a", tmp_path / "b"], batch_size=8)
    assert features["C"].to_list() == [[0], [1], [0], [1], [2]]
    write_metadata(tmp_path / "b", {"0.parquet": 2}, cats=[("C", 0)])
    with pytest.raises(ValueError, match="b/0.parquet: found 3 rows, wanted 2"):
        open_dataset([tmp_path / "a", tmp_path / "b"], batch_size=8)


def test_a_scheme_of_tensorflow_file_systems(files):
    for path in files:
        to = f"ram://parquet/{path.name}"
        tf.io.gfile.copy(str(path), to, overwrite=True)
    dataset = open_dataset("ram://parquet", SPEC, 8)
    assert sum(read(dataset), []) == list(range(50))
    names = [f"file://{path}" for path in files]
    assert sum(read(open_dataset(names, SPEC, 8)), []) == list(range(50))


def test_names_with_dots(tmp_path):
    data = pa.table({"a": [1, 2], "a.b": [3, 4]})
    path = write(tmp_path / "a.parquet", data)
    (features,) = open_dataset(path, batch_size=8)
    assert features["a"].to_list() == [[1], [2]]
    assert features["a.b"].to_list() == [[3], [4]]


def test_only_files_without_rows(tmp_path):
    path = write(tmp_path / "a.parquet", table(0, 0))
    assert list(open_dataset(path, SPEC, 8)) == []
    assert list(open_dataset([path, path], SPEC, 8, shuffle_rows=5)) == []


def test_repeat(files):
    dataset = open_dataset(files, SPEC, 20, repeat=3)
    assert sum(read(dataset), []) == list(range(50)) * 3
    endless = open_dataset(files, SPEC, 50, repeat=None)
    assert read(endless.take(4)) == [list(range(50))] * 4


@pytest.mark.parametrize("window", [1, 20, 1000])
def test_shuffled_rows(files, window):
    def run(seed):
        return read(
            open_dataset(
                files, SPEC, 50, shuffle_rows=window, seed=seed, repeat=2
            )
        )

    first, second = run(1)
    assert sorted(first) == sorted(second) == list(range(50))
    assert run(1) == [first, second]
    if window > 1:
        assert first != second
        assert run(2) != [first, second]
    # No row is further from its place than a window is wide.
    assert max(abs(n - i) for i, n in enumerate(first)) < window


def test_each_iteration_shuffles_anew(files):
    dataset = open_dataset(files, SPEC, 50, shuffle_rows=50, seed=1)
    assert read(dataset) != read(dataset)


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


@pytest.mark.parametrize("num", [3, 9])
@pytest.mark.parametrize("window", [0, 10])
def test_shards_share_the_rows(files, num, window):
    found = []
    for index in range(num):
        dataset = open_dataset(
            files, SPEC, 4, shard=(num, index), shuffle_rows=window
        )
        rows = sum(read(dataset), [])
        if num > len(files):
            assert len(rows) in (50 // num, 50 // num + 1)
        found += rows
    assert sorted(found) == list(range(50))


OPTIONS = [
    {},
    {"shuffle_rows": 11, "seed": 5, "repeat": 2},
    {"shuffle_files": True, "seed": 5, "repeat": 2},
    {"on_error": "skip"},
    {"drop_remainder": True},
]


@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize("taken", [0, 3, 7])
def test_a_saved_iterator_goes_on_at_the_next_row(
    tmp_path, files, taken, options
):
    dataset = open_dataset(files, SPEC, 8, **options)
    iterator = iter(dataset)
    for _ in range(min(taken, 6)):
        next(iterator)
    path = tf.train.Checkpoint(iterator=iterator).save(tmp_path / "at")
    rest = read(iterator)
    again = iter(open_dataset(files, SPEC, 8, **options))
    tf.train.Checkpoint(iterator=again).restore(path)
    assert read(again) == rest


RESUME = """
import sys
import tensorflow as tf
from lodestar.data import open_dataset, Schema

dataset = open_dataset(sys.argv[1:5], sys.argv[5], 8, shuffle_rows=20, seed=2)
iterator = iter(dataset)
tf.train.Checkpoint(iterator=iterator).restore(sys.argv[6]).assert_consumed()
print([x["n"].numpy()[:, 0].tolist() for x, _ in iterator])
"""


def test_another_process_goes_on_at_the_next_row(tmp_path, files):
    schema = tmp_path / "schema.yaml"
    SPEC.save(schema)
    dataset = open_dataset(files, SPEC, 8, shuffle_rows=20, seed=2)
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


def test_nothing_is_left_of_a_dataset(files):
    def readers():
        return [o for o in gc.get_objects() if isinstance(o, ParquetReader)]

    gc.collect()
    threads, before = _thread._count(), readers()
    dataset = open_dataset(files, SPEC, 3)
    iterator = iter(dataset.take(2))
    next(iterator)
    (reader,) = [o for o in readers() if not any(o is b for b in before)]
    assert reader._groups
    held = weakref.ref(reader)
    del dataset, reader
    gc.collect()
    assert read(iterator) == [[3, 4, 5]]  # it holds what it reads
    del iterator
    gc.collect()
    assert held() is None
    until = time.monotonic() + 60
    while _thread._count() > threads:
        assert time.monotonic() < until
        time.sleep(0.01)


COLLECT = """
import concurrent.futures.thread
import contextlib
import gc
import sys
import threading
import time
from lodestar.data import open_dataset

LOCKS = [
    concurrent.futures.thread._global_shutdown_lock,
    threading._active_limbo_lock,
    getattr(threading, "_shutdown_locks_lock", contextlib.nullcontext()),
]


def leave_garbage():
    dataset = open_dataset(sys.argv[1:], batch_size=1).repeat()
    iterator = iter(dataset.prefetch(1000000))
    next(iterator)
    cycle = [iterator]
    cycle.append(cycle)


gc.disable()
leave_garbage()
with contextlib.ExitStack() as held:
    for lock in LOCKS:
        held.enter_context(lock)
    time.sleep(0.5)  # A batch comes to where it waits, if it does.
    gc.collect()
"""


def test_an_iterator_may_be_collected_where_threads_are_started(files):
    run = subprocess.run(
        [sys.executable, "-c", COLLECT, *map(str, files)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        timeout=60,
    )
    assert run.returncode == 0


# What was registered first is run last, behind all that the package does.
PREFETCH = """
import atexit
import sys
import time

reads, batches = [], []


@atexit.register
def last():
    before = len(reads), len(batches)
    time.sleep(0.3)
    print(len(reads) - before[0], len(batches) - before[1])


import pyarrow.parquet
from lodestar.data import open_dataset
from lodestar.data.parquet.parquet_reader import ParquetReader

next_batch = ParquetReader.next_batch
read_row_group = pyarrow.parquet.ParquetFile.read_row_group


def slow(*args, **kwargs):
    time.sleep(0.1)
    reads.append(1)
    return read_row_group(*args, **kwargs)


def counted(*args):
    batches.append(1)
    return next_batch(*args)


ParquetReader.next_batch = counted
pyarrow.parquet.ParquetFile.read_row_group = slow
dataset = open_dataset(sys.argv[1:], batch_size=1, repeat=None)
iterator = iter(dataset.prefetch(1000000))
next(iterator)
"""


def test_python_ends_while_batches_are_read(files):
    run = subprocess.run(
        [sys.executable, "-c", PREFETCH, *map(str, files)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert run.stdout == "0 0\n", run.stderr
    assert run.returncode == 0


def test_what_is_done_to_a_batch_stays_in_it(tmp_path):
    # Rows of whole cache lines, which cross to TensorFlow without a copy.
    data = pa.table({"x": pa.array([1.0] * 64, pa.float32())})
    path = write(tmp_path / "a.parquet", data)
    dataset = open_dataset(path, batch_size=16, repeat=3)
    for features in dataset.map(lambda f: {"x": f["x"] + 1.0}):
        assert set(features["x"].numpy().ravel().tolist()) == {2.0}


def test_inside_tf_function(files):
    paths = [str(path) for path in files]

    @tf.function
    def total():
        result = tf.constant(0, tf.int64)
        for features, _ in open_dataset(paths, SPEC, 8):
            result += tf.reduce_sum(features["n"])
        return result

    assert total().numpy() == sum(range(50))


def test_pyarrow_is_not_loaded_before_it_is_needed():
    # Keras imports pandas where there is one, and pandas imports pyarrow.
    code = (
        "import sys; sys.modules['pandas'] = None; import lodestar.data; "
        "sys.exit('pyarrow' in sys.modules)"
    )
    run = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert run.returncode == 0


def test_fit(files):
    ids = keras.Input([None], dtype="int64", ragged=True, name="C1")
    dense = keras.Input([1], name="I1")
    sums = keras.layers.Lambda(
        lambda x: tf.reduce_sum(tf.cast(x, tf.float32), 1, keepdims=True),
        output_shape=(1,),
    )(ids)
    hidden = keras.layers.Concatenate()([sums * 1e-5, dense])
    output = keras.layers.Dense(1, activation="sigmoid")(hidden)
    model = keras.Model({"C1": ids, "I1": dense}, output)
    model.compile(loss="binary_crossentropy", optimizer="sgd")
    dataset = open_dataset(files, SPEC, 8).map(
        lambda x, y: ({"C1": x["C1"], "I1": x["I1"]}, y)
    )
    history = model.fit(dataset, epochs=2, verbose=0)
    assert np.isfinite(history.history["loss"]).all()
