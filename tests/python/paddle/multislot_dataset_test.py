"""Compares MultiSlotDataset with a reader in plain Python."""

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


def test_batches_equal_those_of_plain_python(files):
    check(MultiSlotDataset(files, SPEC, 8), reference(lines(0, 50)))


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
