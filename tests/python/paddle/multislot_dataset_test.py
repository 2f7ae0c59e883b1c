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


def sample(i):
    """Returns a sample with n = i; C1 and w may be empty."""
    return {
        "click": [i % 2],
        "I": [i, -i - 0.5, 0.001, 0.25],
        "C1": [1000 * i + k for k in range(i % 4)],
        "day": [i % 7],
        "w": [k / 4 for k in range(i % 3)],
        "n": [i],
    }


def line(sample):
    parts = []
    for values in sample.values():
        parts += [len(values), *values]
    return " ".join(map(str, parts)) + "\n"


@pytest.fixture
def files(tmp_path):
    """Writes five files of unequal size, one of a single line."""
    bounds = [0, 7, 8, 30, 33, 50]
    paths = []
    for begin, end in zip(bounds, bounds[1:], strict=False):
        paths.append(tmp_path / f"part-{begin}")
        paths[-1].write_text(
            "".join(line(sample(i)) for i in range(begin, end))
        )
    return paths


def numbers(dataset):
    return [features["n"].numpy()[:, 0].tolist() for features, _ in dataset]


def test_batches_have_the_samples_in_order(files):
    batches = list(MultiSlotDataset(files, SPEC, 8))
    assert [len(label) for _, label in batches] == [8] * 6 + [2]
    rows = iter(range(50))
    for features, label in batches:
        samples = [sample(i) for _, i in zip(label, rows)]
        assert label.dtype == tf.float32
        for name, found, wanted in (
            ("click", label, np.float32),
            ("I", features["I"], np.float32),
            ("n", features["n"], np.int64),
        ):
            values = np.array([s[name] for s in samples], wanted)
            np.testing.assert_array_equal(found.numpy().ravel(), values.ravel())
        assert features["I"].shape[1:] == (2, 2)
        days = [s["day"][0] for s in samples]
        np.testing.assert_array_equal(features["day"], np.eye(7)[days])
        for name in ("C1", "w"):
            assert features[name].to_list() == [s[name] for s in samples]


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
