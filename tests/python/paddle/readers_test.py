"""lodestar.paddle.reader: the content of files as NumPy arrays."""

import numpy as np
import pytest
import tensorflow as tf

from lodestar.data import Column, Schema
from lodestar.data.sample_columns import ColumnValues
from lodestar.paddle import reader
from lodestar.paddle.multislot_dataset import MultiSlotDataset
from lodestar.paddle.multislot_writer import MultiSlotWriter
from lodestar.ragged import LoDTensor

SPEC = Schema(
    [
        Column.label("click"),
        Column.dense("I", (2, 1)),
        Column.sparse("C"),
        Column.one_hot("day", 3),
    ]
)


def line(i):
    ids = [str(10 * i + k) for k in range(i % 3)]
    words = [f"1 {i % 2} 2 {i} 0.5", str(len(ids)), *ids, f"1 {i % 3}"]
    return " ".join(words) + "\n"


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    path = tmp_path_factory.mktemp("data") / "part"
    path.write_text("".join(map(line, range(7))))
    return path


def check_sample(sample, i):
    features, label = sample
    wanted = {
        "I": np.array([[i], [0.5]], np.float32),
        "C": np.arange(10 * i, 10 * i + i % 3),
        "day": np.eye(3, dtype=np.float32)[i % 3],
    }
    assert features.keys() == wanted.keys()
    for name, values in wanted.items():
        assert isinstance(features[name], np.ndarray)
        np.testing.assert_array_equal(features[name], values, strict=True)
    np.testing.assert_array_equal(label, np.array([i % 2], np.float32))


@pytest.mark.parametrize("prefetch", [0, 1])
def test_batches(path, prefetch):
    read = reader(
        MultiSlotDataset(path, SPEC, 3, prefetch=prefetch), batches=True
    )
    for _ in range(2):
        sizes = []
        for features, label in read():
            begin, size = sum(sizes), len(label)
            column = features["C"]
            assert isinstance(column, ColumnValues)
            for i in range(size):
                part = slice(column.splits[i], column.splits[i + 1])
                sample = {name: features[name][i] for name in ("I", "day")}
                sample["C"] = column.values[part]
                check_sample((sample, label[i]), begin + i)
            sizes.append(size)
        assert sizes == [3, 3, 1]


@pytest.mark.parametrize("batch_size", [1, 3, 100])
def test_samples(path, batch_size):
    read = reader(MultiSlotDataset(path, SPEC, batch_size))
    for _ in range(2):
        samples = list(read())
        assert len(samples) == 7
        for i, sample in enumerate(samples):
            check_sample(sample, i)


def test_writers_accept_batches_and_samples(path, tmp_path):
    spec = Schema(slot for slot in SPEC if slot.kind != "one_hot")
    part = tmp_path / "part"
    lines = path.read_text().splitlines()
    part.write_text("".join(f"{text[:-4]}\n" for text in lines))
    dataset = MultiSlotDataset(part, spec, 3)
    for batches, write in (
        (True, MultiSlotWriter.write_batch),
        (False, MultiSlotWriter.write),
    ):
        with MultiSlotWriter(tmp_path / "again", spec) as writer:
            for features, label in reader(dataset, batches=batches)():
                write(writer, {**features, "click": label})
        assert (tmp_path / "again").read_bytes() == part.read_bytes()


def test_two_concurrent_iterators_each_have_an_epoch(path):
    read = reader(MultiSlotDataset(path, SPEC, 2))
    first, second = read(), read()
    check_sample(next(first), 0)
    check_sample(next(first), 1)
    for i, sample in enumerate(second):
        check_sample(sample, i)
    check_sample(next(first), 2)
    assert len(list(first)) == 4


def test_an_iterator_that_is_dropped_stops_reading():
    asked = []

    def seen(i):
        asked.append(int(i))
        return i

    dataset = (
        tf.data.Dataset.range(100_000)
        .map(lambda i: tf.py_function(seen, [i], tf.int64))
        .batch(2)
    )
    samples = reader(dataset)()
    assert [int(next(samples)) for _ in range(3)] == [0, 1, 2]
    samples.close()
    assert list(samples) == []
    assert len(asked) < 1000  # TensorFlow itself reads a few ahead


def test_reading_is_lazy(tmp_path):
    read = reader(MultiSlotDataset(tmp_path / "later", SPEC, 1), batches=True)
    batches = read()
    (tmp_path / "later").write_text(line(0))
    assert len(list(batches)) == 1


@pytest.mark.parametrize("batches", [True, False])
@pytest.mark.parametrize("prefetch", [0, 1])
def test_errors_are_not_wrapped(tmp_path, batches, prefetch):
    path = tmp_path / "bad"
    path.write_text(line(0) + line(1) + "1 2\n")
    dataset = MultiSlotDataset(path, SPEC, 1, prefetch=prefetch)
    read = reader(dataset, batches=batches)
    for _ in range(2):
        elements = read()
        next(elements)
        next(elements)
        with pytest.raises(
            tf.errors.InvalidArgumentError, match=r"bad:3: slot"
        ):
            next(elements)


def test_elements_without_label_and_lod_tensors():
    x = LoDTensor.from_lengths([[1.0], [2.0], [3.0]], [[2, 1]])
    dataset = tf.data.Dataset.from_tensors({"x": x, "y": ["a", "b"]})
    (batch,) = reader(dataset, batches=True)()
    assert batch["x"].values.tolist() == [[1], [2], [3]]
    assert batch["x"].splits.tolist() == [0, 2, 3]
    first, second = reader(dataset)()
    assert first["x"].tolist() == [[1], [2]] and first["y"] == b"a"
    assert second["x"].tolist() == [[3]] and second["y"] == b"b"


@pytest.mark.parametrize(
    "element, message",
    [
        ({"x": [1, 2], "y": [1]}, r"equal numbers of samples, got \[1, 2\]"),
        ({"x": 1}, "not support scalars"),
        (
            {"csr": {"row_offsets": [0, 1], "values": [7]}},
            "not support `sparse`='csr'",
        ),
        (tf.sparse.eye(2), "got SparseTensor"),
        (tf.ragged.constant([[[1]]]), "of one level, got RaggedTensor"),
    ],
)
def test_elements_that_have_no_samples(element, message):
    dataset = tf.data.Dataset.from_tensors(element)
    with pytest.raises(ValueError, match=message):
        list(reader(dataset)())
    assert list(reader(dataset.take(0))()) == []
    with pytest.raises(TypeError, match="must be a tf.data.Dataset, got dict"):
        reader({})


def test_the_csr_of_a_batch(path):
    dataset = MultiSlotDataset(path, SPEC, 3, sparse="csr").take(1)
    ((features, _),) = reader(dataset, batches=True)()
    assert features["csr"]["row_offsets"].tolist() == [0, 0, 1, 3]
    assert features["csr"]["values"].tolist() == [10, 20, 21]
    with pytest.raises(ValueError, match="not support `sparse`='csr'"):
        next(reader(dataset)())
