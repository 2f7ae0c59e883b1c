"""Compares MultiSlotDataset with a reader in plain Python."""

import dataclasses
import gzip

import keras
import numpy as np
import pytest
import tensorflow as tf

from lodestar.data import Column, Schema
from lodestar.paddle.multislot_dataset import MultiSlotDataset
from lodestar.paddle.multislot_writer import MultiSlotWriter

SPEC = Schema(
    [
        Column.label("click"),
        Column.dense("I", (2, 2)),
        Column.sparse("C1"),
        Column.one_hot("day", 7),
        Column.sparse("w", dtype="float"),
        Column.dense("n", (1,), dtype="uint64"),
    ]
)


def lines(begin, end):
    """Returns lines with n = i; other slots depend on i, C1 and w may be empty."""
    text = []
    for i in range(begin, end):
        ids = [str(1000 * i + k) for k in range(i % 4)]
        weights = [str(k / 4) for k in range(i % 3)]
        text.append(
            f"1 {i % 2} 4 {i} -{i}.5 1e-3 0x1p-1 "
            + " ".join([str(len(ids)), *ids])
            + f" 1 {i % 7} "
            + " ".join([str(len(weights)), *weights])
            + f" 1 {i}\n"
        )
    return "".join(text)


def reference(text):
    """Parses the samples of `text` with str.split."""
    samples = []
    for line in text.splitlines():
        tokens = iter(line.split())
        sample = {}
        for slot in SPEC:
            values = [next(tokens) for _ in range(int(next(tokens)))]
            sample[slot.name] = values
        samples.append(sample)
    return samples


def number(text):
    return float.fromhex(text) if "x" in text else float(text)


def check(batches, samples):
    """Checks that the batches contain these samples in this order."""
    position = 0
    for features, label in batches:
        rows = len(label)
        want = samples[position : position + rows]
        assert len(want) == rows
        position += rows
        assert label.shape == (rows, 1)
        assert label.dtype == tf.float32
        np.testing.assert_array_equal(
            label.numpy()[:, 0], [float(s["click"][0]) for s in want]
        )
        np.testing.assert_array_equal(
            features["I"].numpy(),
            np.array(
                [[number(v) for v in s["I"]] for s in want], np.float32
            ).reshape(rows, 2, 2),
        )
        assert features["C1"].to_list() == [
            [int(v) for v in s["C1"]] for s in want
        ]
        assert features["w"].to_list() == [
            [float(v) for v in s["w"]] for s in want
        ]
        np.testing.assert_array_equal(
            features["day"].numpy(),
            np.eye(7, dtype=np.float32)[[int(s["day"][0]) for s in want]],
        )
        np.testing.assert_array_equal(
            features["n"].numpy()[:, 0], [int(s["n"][0]) for s in want]
        )
    assert position == len(samples)


@pytest.fixture
def files(tmp_path):
    """Writes five files of unequal size, one of a single line."""
    bounds = [0, 7, 8, 30, 33, 50]
    paths = []
    for number, (begin, end) in enumerate(
        zip(bounds, bounds[1:], strict=False)
    ):
        path = tmp_path / f"part-{number}"
        path.write_text(lines(begin, end))
        paths.append(path)
    return paths


def numbers(dataset):
    return [features["n"].numpy()[:, 0].tolist() for features, _ in dataset]


@pytest.mark.parametrize("threads", [1, 2, 7])
@pytest.mark.parametrize("batch_size", [1, 4, 49, 50, 51])
def test_batches_straddle_files_in_order(files, batch_size, threads):
    dataset = MultiSlotDataset(
        files, SPEC, batch_size, num_parallel_files=threads
    )
    batches = list(dataset)
    sizes = [len(label) for _, label in batches]
    assert sizes[:-1] == [batch_size] * (len(sizes) - 1)
    check(batches, reference(lines(0, 50)))


def test_a_file_of_many_pieces_stays_in_order(tmp_path):
    # About 2 MB, so that several pieces are parsed concurrently.
    path = tmp_path / "big"
    path.write_text(lines(0, 40_000))
    dataset = MultiSlotDataset(path, SPEC, 1000, num_parallel_files=4)
    got = np.concatenate(numbers(dataset))
    np.testing.assert_array_equal(got, np.arange(40_000))


def test_element_spec_has_static_shapes_where_they_are_known(files):
    dataset = MultiSlotDataset(files, SPEC, 8, drop_remainder=True)
    features, label = dataset.element_spec
    assert label == tf.TensorSpec([8, 1], tf.float32)
    assert features["I"] == tf.TensorSpec([8, 2, 2], tf.float32)
    assert features["day"] == tf.TensorSpec([8, 7], tf.float32)
    assert features["C1"].dtype == tf.int64
    assert features["C1"].shape.as_list() == [8, None]
    features, label = MultiSlotDataset(files, SPEC, 8).element_spec
    assert label == tf.TensorSpec([None, 1], tf.float32)


def test_drop_remainder(files):
    sizes = [
        len(n)
        for n in numbers(MultiSlotDataset(files, SPEC, 8, drop_remainder=True))
    ]
    assert sizes == [8] * 6


def test_free_order_yields_every_sample_once(files):
    dataset = MultiSlotDataset(
        files, SPEC, 8, num_parallel_files=3, deterministic=False
    )
    assert sorted(sum(numbers(dataset), [])) == list(range(50))


def test_repeat(files):
    dataset = MultiSlotDataset(files, SPEC, 20, repeat=3)
    assert sum(numbers(dataset), []) == list(range(50)) * 3
    endless = MultiSlotDataset(files, SPEC, 50, repeat=None)
    assert numbers(endless.take(4)) == [list(range(50))] * 4


def test_shuffled_rows_differ_between_epochs_and_follow_the_seed(files):
    def run(seed):
        dataset = MultiSlotDataset(
            files, SPEC, 50, shuffle=20, seed=seed, repeat=2
        )
        return numbers(dataset)

    first, second = run(1)
    assert first != second
    assert sorted(first) == sorted(second) == list(range(50))
    assert first != list(range(50))
    assert run(1) == [first, second]
    assert run(2) != [first, second]


def test_each_iteration_reshuffles(files):
    dataset = MultiSlotDataset(files, SPEC, 50, shuffle=50, seed=1)
    assert numbers(dataset) != numbers(dataset)


def test_shuffled_files_keep_their_lines_together(files):
    dataset = MultiSlotDataset(
        files, SPEC, 50, shuffle_files=True, seed=3, repeat=4
    )
    starts = {0: 7, 7: 1, 8: 22, 30: 3, 33: 17}
    orders = set()
    for epoch in numbers(dataset):
        order = []
        while epoch:
            begin = epoch[0]
            count = starts[begin]
            assert epoch[:count] == list(range(begin, begin + count))
            order.append(begin)
            epoch = epoch[count:]
        assert sorted(order) == sorted(starts)
        orders.add(tuple(order))
    assert len(orders) > 1


def test_worked_example_of_the_format(tmp_path):
    path = tmp_path / "file"
    path.write_text("3 1926 8 17 1 1\n2 0 5 1 0\n")
    spec = Schema([Column.sparse("words"), Column.label("label")])
    ((features, label),) = MultiSlotDataset(path, spec, 8)
    assert features["words"].to_list() == [[1926, 8, 17], [0, 5]]
    assert features["words"].row_splits.numpy().tolist() == [0, 3, 5]
    assert label.numpy().tolist() == [[1.0], [0.0]]


def test_gzip_by_suffix(tmp_path):
    path = tmp_path / "file.gz"
    with gzip.open(path, "wt") as file:
        file.write(lines(0, 20_000))
    got = np.concatenate(numbers(MultiSlotDataset(path, SPEC, 999)))
    np.testing.assert_array_equal(got, np.arange(20_000))


def test_a_scheme_of_tensorflow_file_systems():
    with tf.io.gfile.GFile("ram://multislot/file", "w") as file:
        file.write(lines(0, 5))
    check(
        MultiSlotDataset("ram://multislot/file", SPEC, 2),
        reference(lines(0, 5)),
    )


def test_several_labels_and_no_label(tmp_path):
    path = tmp_path / "file"
    path.write_text("1 1 1 2.5 1 7\n")
    two = Schema(
        [
            Column.label("click"),
            Column.label("rating", dtype="float", binary=False),
            Column.sparse("C1"),
        ]
    )
    ((features, labels),) = MultiSlotDataset(path, two, 8)
    assert list(features) == ["C1"]
    assert labels["click"].numpy().tolist() == [[1.0]]
    assert labels["rating"].numpy().tolist() == [[2.5]]
    none = Schema(
        [
            Column.sparse("click"),
            Column.dense("rating", ()),
            Column.sparse("C1"),
        ]
    )
    (features,) = MultiSlotDataset(path, none, 8)
    assert set(features) == {"click", "rating", "C1"}
    assert features["rating"].shape == (1,)


def test_slots_may_be_a_slot_file_or_a_list(tmp_path, files):
    SPEC.save(tmp_path / "schema.yaml")
    wanted = numbers(MultiSlotDataset(files, SPEC, 8))
    for schema in (
        tmp_path / "schema.yaml",
        str(tmp_path / "schema.yaml"),
        list(SPEC),
    ):
        assert numbers(MultiSlotDataset(files, schema, 8)) == wanted


def test_inside_tf_function(files):
    dataset = MultiSlotDataset(files, SPEC, 8)

    @tf.function
    def total():
        result = tf.constant(0, tf.int64)
        values = tf.constant(0, tf.int64)
        for features, _ in dataset:
            result += tf.reduce_sum(features["n"])
            values += tf.reduce_sum(features["C1"].row_lengths())
        return result, values

    result, values = total()
    assert result.numpy() == sum(range(50))
    assert values.numpy() == sum(i % 4 for i in range(50))


def test_made_inside_tf_function(files):
    paths = [str(path) for path in files]

    @tf.function
    def count():
        result = 0
        for _, label in MultiSlotDataset(paths, SPEC, 8):
            result += tf.shape(label)[0]
        return result

    assert count().numpy() == 50


@keras.saving.register_keras_serializable()
class _RowMean(keras.layers.Layer):
    def call(self, ids):
        return tf.reduce_sum(tf.cast(ids, tf.float32), axis=1, keepdims=True)


def test_keras_fit(files):
    ids = keras.Input([None], dtype="int64", ragged=True, name="C1")
    dense = keras.Input([2, 2], name="I")
    hidden = keras.layers.Concatenate()(
        [_RowMean()(ids) * 1e-5, keras.layers.Flatten()(dense)]
    )
    output = keras.layers.Dense(1, activation="sigmoid")(hidden)
    model = keras.Model({"C1": ids, "I": dense}, output)
    model.compile(loss="binary_crossentropy", optimizer="sgd")
    dataset = MultiSlotDataset(files, SPEC, 8).map(
        lambda x, y: ({"C1": x["C1"], "I": x["I"]}, y)
    )
    history = model.fit(dataset, epochs=2, verbose=0)
    assert np.isfinite(history.history["loss"]).all()


@pytest.mark.parametrize("taken", [0, 1, 3, 6, 7])
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"shuffle": 12, "shuffle_files": True, "repeat": 2},
        {"shard": (12, 5), "batch_size": 1},
        {"shuffle": 1000, "prefetch": 0},
    ],
    ids=str,
)
def test_a_saved_iterator_resumes_at_the_next_sample(
    tmp_path, files, taken, options
):
    options = {"batch_size": 8, "num_parallel_files": 3, **options}
    dataset = MultiSlotDataset(files, SPEC, **options)
    iterator = iter(dataset)
    for _ in range(min(taken, len(numbers(dataset)))):
        next(iterator)
    path = tf.train.Checkpoint(iterator=iterator).save(tmp_path / "at")
    again = iter(dataset)
    tf.train.Checkpoint(iterator=again).restore(path)
    rest = [features["n"].numpy()[:, 0].tolist() for features, _ in again]
    # Saving has not disturbed the first iterator.
    assert rest == [x["n"].numpy()[:, 0].tolist() for x, _ in iterator]
    if not options.get("shuffle"):
        assert rest == numbers(dataset)[taken:]


def test_a_shuffled_window_of_other_slots_is_refused(tmp_path, files):
    iterator = iter(MultiSlotDataset(files, SPEC, 8, shuffle=20, seed=1))
    next(iterator)
    path = tf.train.Checkpoint(iterator=iterator).save(tmp_path / "at")
    other = Schema(
        [dataclasses.replace(slot, used=slot.name != "n") for slot in SPEC]
    )
    again = iter(MultiSlotDataset(files, other, 8, shuffle=20, seed=1))
    with pytest.raises(
        tf.errors.InvalidArgumentError, match="slot 'n' do not match"
    ):
        tf.train.Checkpoint(iterator=again).restore(path)
        next(again)


@pytest.mark.parametrize("rows", [10, 900, 1001])
def test_a_restored_iterator_notices_another_size(tmp_path, rows):
    path = tmp_path / "file"
    path.write_text(lines(0, 1000))
    dataset = MultiSlotDataset(path, SPEC, 20)
    iterator = iter(dataset)
    next(iterator)
    saved = tf.train.Checkpoint(iterator=iterator).save(tmp_path / "at")
    path.write_text(lines(0, rows))
    again = iter(dataset)
    tf.train.Checkpoint(iterator=again).restore(saved)
    with pytest.raises(
        tf.errors.FailedPreconditionError,
        match="had 57336 when the iterator was saved",
    ) as error:
        list(again)
    assert str(path) in str(error.value)


def test_a_free_order_cannot_be_saved(tmp_path, files):
    iterator = iter(MultiSlotDataset(files, SPEC, 8, deterministic=False))
    next(iterator)
    with pytest.raises(
        tf.errors.UnimplementedError, match="deterministic=True"
    ):
        tf.train.Checkpoint(iterator=iterator).save(tmp_path / "at")


def test_an_abandoned_iterator_stops_its_threads(tmp_path):
    path = tmp_path / "big"
    path.write_text(lines(0, 60_000))
    for deterministic in (True, False):
        dataset = MultiSlotDataset(
            [path] * 8,
            SPEC,
            16,
            num_parallel_files=4,
            deterministic=deterministic,
        )
        for _ in range(5):
            iterator = iter(dataset)
            next(iterator)
            del iterator


def test_written_files_are_read_back(tmp_path, rng):
    rows = 5000
    counts = rng.integers(0, 4, rows)
    splits = np.concatenate([[0], np.cumsum(counts)])
    columns = {
        "click": rng.integers(0, 2, rows),
        "I": rng.normal(size=(rows, 2, 2)).astype(np.float32),
        "C1": (rng.integers(-(2**63), 2**63 - 1, splits[-1]), splits),
        "day": rng.integers(0, 7, rows),
        "w": (rng.normal(size=splits[-1]), splits),
        "n": rng.integers(0, 2**63 - 1, rows),
    }
    path = tmp_path / "file"
    with MultiSlotWriter(path, SPEC) as writer:
        writer.write_batch(columns)
    ((features, label),) = MultiSlotDataset(path, SPEC, rows)
    np.testing.assert_array_equal(label.numpy()[:, 0], columns["click"])
    np.testing.assert_array_equal(features["I"], columns["I"])
    np.testing.assert_array_equal(features["C1"].values, columns["C1"][0])
    np.testing.assert_array_equal(features["C1"].row_splits, splits)
    np.testing.assert_array_equal(
        features["w"].values, columns["w"][0].astype(np.float32)
    )
    np.testing.assert_array_equal(features["n"].numpy()[:, 0], columns["n"])
