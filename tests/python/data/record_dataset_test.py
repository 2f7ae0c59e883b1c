"""The options common to all datasets, tested with MultiSlot files."""

import time

import numpy as np
import pytest
import tensorflow as tf

from lodestar.data import Column, Schema, SkippedRecords, record_dataset
from lodestar.data.record_dataset import ReadOptions
from lodestar.paddle.multislot_dataset import MultiSlotDataset

SPEC = Schema([Column.label("click"), Column.sparse("n")])


def write(path, numbers):
    path.write_text("".join(f"1 {n % 2} 1 {n}\n" for n in numbers))
    return path


def numbers(dataset):
    return [n for x, _ in dataset for n in x["n"].values.numpy().tolist()]


def test_shards_take_files_or_if_there_are_too_few_records(tmp_path):
    files = [
        write(tmp_path / str(f), range(100 * f, 100 * f + 10 + f))
        for f in range(3)
    ]
    part = MultiSlotDataset(files, SPEC, 4, shard=(3, 1))
    assert numbers(part) == list(range(100, 111))
    part = MultiSlotDataset(files, SPEC, 4, shard=(7, 2))
    assert numbers(part) == [2, 9, 102, 109, 202, 209]


@pytest.mark.parametrize(
    "option, value, message",
    [
        ("batch_size", 0, "`batch_size` must be an integer of at least 1"),
        ("shard", 3, "`shard` must be a pair"),
        ("shard", (0, 0), r"`shard\[0\]` must be an integer of at least 1"),
        ("shard", (2, 2), "`shard` must have an index less than 2, got 2"),
        ("shard", (2, -1), r"`shard\[1\]` must be an integer of at least 0"),
        ("on_error", "ignore", "`on_error`='ignore' is not in"),
        ("skipped", SkippedRecords(), "`skipped` needs `on_error`='skip'"),
        ("skipped", [], r"`skipped` must be a SkippedRecords, got \[\]"),
        ("seed", "7", "`seed` must be an integer or None, got '7'"),
        ("prefetch", True, "`prefetch` must be an integer"),
        ("repeat", 0, "`repeat` must be an integer of at least 1"),
    ],
)
def test_options_are_checked(option, value, message):
    with pytest.raises(ValueError, match=message):
        ReadOptions(**{"batch_size": 4, option: value})


def test_options_may_be_integers_of_numpy(tmp_path):
    path = write(tmp_path / "file", range(100))
    dataset = MultiSlotDataset(
        path, SPEC, np.int64(8), shuffle=np.int32(5), seed=np.int64(1)
    )
    assert sorted(numbers(dataset)) == list(range(100))


@pytest.mark.parametrize(
    "files, schema, options, error, message",
    [
        *(
            (files, SPEC, {}, ValueError, "`files` must be a path or a list")
            for files in (None, 7, [7], tf.constant(["a"]))
        ),
        *(
            ("a", schema, {}, TypeError, "`schema` must be a Schema, the path")
            for schema in (None, {"label": ["click"]})
        ),
        ("a", SPEC, {"weights": "C"}, ValueError, "`weights` must map id colu"),
    ],
)
def test_arguments_are_checked(files, schema, options, error, message):
    with pytest.raises(error, match=message):
        MultiSlotDataset(files, schema, 8, **options)


def test_skipped_records_are_counted_independently():
    skipped = SkippedRecords()
    skipped.add("part-3: row 5: null", 2)
    skipped.add("part-3: row 9: null")
    assert skipped.count == 3
    assert skipped.messages == ["part-3: row 5: null", "part-3: row 9: null"]
    assert SkippedRecords().count == 0


def test_unused_slots_are_checked_and_left_out(tmp_path):
    spec = Schema(
        [
            Column.label("click"),
            Column.sparse("a", used=False),
            Column.dense("I", (2,), used=False),
            Column.sparse("b"),
        ]
    )
    path = tmp_path / "file"
    path.write_text("1 1 2 5 6 2 .5 1 1 7\n1 0 0 2 1 2 2 8 9\n")
    ((features, label),) = MultiSlotDataset(path, spec, 4)
    assert set(features) == {"b"}
    assert features["b"].to_list() == [[7], [8, 9]]
    assert label.numpy().tolist() == [[1], [0]]
    path.write_text("1 1 2 5 x 2 .5 1 1 7\n")
    with pytest.raises(tf.errors.InvalidArgumentError, match="slot 'a' at by"):
        list(MultiSlotDataset(path, spec, 4))


def test_a_free_dimension_is_that_of_the_batch(tmp_path):
    spec = Schema([Column.dense("I", (-1, 2)), Column.sparse("n")])
    path = tmp_path / "file"
    path.write_text("4 1 2 3 4 1 7\n4 5 6 7 8 0\n2 1 2 0\n2 3 4 0\n0 0\n")
    dataset = MultiSlotDataset(path, spec, 2)
    assert dataset.element_spec["I"].shape.as_list() == [None, None, 2]
    shapes = [batch["I"].shape.as_list() for batch in dataset]
    assert shapes == [[2, 2, 2], [2, 1, 2], [1, 0, 2]]
    first = next(iter(dataset))["I"].numpy()
    np.testing.assert_array_equal(first, [[[1, 2], [3, 4]], [[5, 6], [7, 8]]])
    message = "slot 'I': sample 2 of the batch has 2 values, sample 0 has 4"
    with pytest.raises(tf.errors.InvalidArgumentError, match=message):
        list(MultiSlotDataset(path, spec, 4))
    path.write_text("3 1 2 3 0\n")
    message = "file:1: slot 'I': found 3 values, expected a multiple of 2"
    with pytest.raises(tf.errors.InvalidArgumentError, match=message):
        list(MultiSlotDataset(path, spec, 4))


@pytest.mark.parametrize("by_argument", [False, True])
def test_weights_are_as_many_as_ids(tmp_path, by_argument):
    weights_of = None if by_argument else "C1"
    spec = Schema(
        [
            Column.sparse("C1_w", dtype="float", weights_of=weights_of),
            Column.sparse("C1"),
        ]
    )
    weights = {"C1": "C1_w"} if by_argument else None
    path = tmp_path / "file"
    path.write_text("2 .5 1 2 7 8\n0 0\n1 2 1 9\n")
    (batch,) = MultiSlotDataset(path, spec, 4, weights=weights)
    assert batch["C1"].to_list() == [[7, 8], [], [9]]
    assert batch["C1_w"].to_list() == [[0.5, 1], [], [2]]
    path.write_text("1 .5 1 7\n2 .5 1 1 7\n")
    message = (
        "file:2: slot 'C1_w': found 2 weights, expected one for each of the 1 ids "
        "of slot 'C1'"
    )
    with pytest.raises(tf.errors.InvalidArgumentError, match=message):
        list(MultiSlotDataset(path, spec, 4, weights=weights))


@pytest.mark.parametrize("prefetch", [0, 1, 3])
def test_prefetch_limits_the_batches_made_ahead(prefetch):
    made = []

    def batch(i):
        made.append(int(i))
        return tf.fill([1, 1], float(i))

    def epoch(files, seed):
        return tf.data.Dataset.range(100).map(
            lambda i: tf.ensure_shape(
                tf.py_function(batch, [i], tf.float32), [1, 1]
            )
        )

    options = ReadOptions(1, prefetch=prefetch)
    layout = options.layout(Schema([Column.dense("x")]))
    batches = iter(
        record_dataset.epochs(
            ["file"], epoch, layout.features_and_label, options
        )
    )
    for asked in range(1, 4):
        next(batches)
        wanted = asked + prefetch
        deadline = time.monotonic() + 60
        while len(made) < wanted and time.monotonic() < deadline:
            time.sleep(0.01)
        time.sleep(0.05)
        assert len(made) == wanted
