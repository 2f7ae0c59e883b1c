"""MultiSlotWriter: exact text, checks, and no partial files."""

import gzip
import re

import numpy as np
import pytest
import tensorflow as tf

from lodestar.data import Column, Schema
from lodestar.paddle.multislot_dataset import MultiSlotDataset
from lodestar.paddle.multislot_writer import MultiSlotWriter

SPEC = Schema(
    [
        Column.label("click"),
        Column.dense("I", (2,)),
        Column.sparse("C1"),
        Column.one_hot("day", 7),
        Column.sparse("w", dtype="float"),
    ]
)
SAMPLE = {
    "click": 1,
    "I": [0.1, 3.0],
    "C1": [7, -1, 2**64 - 2],
    "day": 6,
    "w": [0.25],
}


def names(tmp_path):
    return sorted(path.name for path in tmp_path.iterdir())


def test_the_format_word_for_word(tmp_path):
    path = tmp_path / "file"
    with MultiSlotWriter(path, SPEC) as writer:
        writer.write(SAMPLE)
        writer.write({"click": False, "I": np.float32([0.1, 1e20]), "day": [0]})
        assert writer.num_samples == 2
    assert path.read_text() == (
        "1 1 2 0.1 3 3 7 18446744073709551615 18446744073709551614 1 6 1 0.25\n"
        "1 0 2 0.1 100000002004087734272 0 1 0 0\n"
    )
    assert names(tmp_path) == ["file"]


def test_large_numbers_are_read_back(tmp_path):
    path = tmp_path / "file"
    given = [2.0**24, -(2.0**24) - 2, 1e10, 3.4028234663852886e38, np.inf, 0.1]
    spec = Schema([Column.label("y"), Column.sparse("x", dtype="float")])
    with MultiSlotWriter(path, spec) as writer:
        writer.write({"y": 1, "x": np.float32(given)})
        writer.write({"y": 1, "x": given})
        writer.write({"y": 1, "x": [2**24 - 1, 2**40, -(2**63)]})
    found = [f["x"].values.numpy() for f, _ in MultiSlotDataset(path, spec, 1)]
    for values in found[:2]:
        np.testing.assert_array_equal(values, np.float32(given))
    assert found[2].tolist() == [2**24 - 1, 2**40, -(2**63)]


def test_worked_examples_of_the_format(tmp_path):
    path = tmp_path / "file"
    spec = Schema([Column.sparse("words"), Column.label("label")])
    with MultiSlotWriter(path, spec) as writer:
        writer.write({"words": [1926, 8, 17], "label": [1]})
    assert path.read_text() == "3 1926 8 17 1 1\n"
    spec = Schema([Column.dense("d", (2,)), Column.label("label")])
    with MultiSlotWriter(path, spec) as writer:
        writer.write({"d": [0.5, 2.0], "label": 1})
    assert path.read_text() == "2 0.5 2 1 1\n"


def test_a_batch_equals_its_samples(tmp_path, rng):
    rows = 10_000
    counts = rng.integers(0, 300, rows) * (rng.random(rows) < 0.01)
    ids = tf.RaggedTensor.from_row_lengths(
        rng.integers(0, 2**40, counts.sum()), counts
    )
    columns = {
        "click": rng.integers(0, 2, rows),
        "I": rng.normal(size=(rows, 2)),
        "C1": ids,
        "day": rng.integers(0, 7, (rows, 1)),
    }
    with MultiSlotWriter(tmp_path / "batch", SPEC) as writer:
        writer.write_batch(columns)
        assert writer.num_samples == rows
    with MultiSlotWriter(tmp_path / "samples", SPEC) as writer:
        for i in range(0, rows, 50):
            writer.write(
                {
                    "click": columns["click"][i],
                    "I": columns["I"][i],
                    "C1": ids[i].numpy(),
                    "day": columns["day"][i],
                }
            )
    batch = (tmp_path / "batch").read_text().splitlines()
    assert batch[::50] == (tmp_path / "samples").read_text().splitlines()


def test_gzip_by_suffix_and_equal_bytes(tmp_path):
    for name in ("a.gz", "b.gz"):
        with MultiSlotWriter(tmp_path / name, SPEC) as writer:
            writer.write(SAMPLE)
    assert gzip.decompress((tmp_path / "a.gz").read_bytes()).startswith(
        b"1 1 2"
    )
    assert (tmp_path / "a.gz").read_bytes() == (tmp_path / "b.gz").read_bytes()


def test_an_error_leaves_nothing_and_keeps_the_older_file(tmp_path):
    path = tmp_path / "file"
    path.write_text("older")
    with pytest.raises(KeyboardInterrupt):
        with MultiSlotWriter(path, SPEC) as writer:
            writer.write(SAMPLE)
            raise KeyboardInterrupt
    assert path.read_text() == "older"
    assert names(tmp_path) == ["file"]


def test_no_samples_is_an_error(tmp_path):
    with pytest.raises(ValueError, match="file: no samples were written"):
        with MultiSlotWriter(tmp_path / "file", SPEC):
            pass
    assert names(tmp_path) == []


def test_an_unwritable_place_is_named(tmp_path):
    with pytest.raises(tf.errors.OpError, match="nowhere/file"):
        MultiSlotWriter(tmp_path / "nowhere" / "file", SPEC)


@pytest.mark.parametrize(
    "change, message",
    [
        ({"click": 2}, "sample 2: slot 'click' must be 0 or 1, got 2"),
        (
            {"click": [1, 0]},
            r"slot 'click' must have .* got \[2\]",
        ),
        ({"day": 7}, "slot 'day' must be a whole number from 0 to 6, got 7"),
        ({"day": -1}, "slot 'day' must be a whole .* 0 to 6, got -1"),
        ({"I": [1.0]}, r"slot 'I' must have .* \[2\], got \[1\]"),
        ({"I": [1.0, 1e39]}, r"slot 'I' must be a float32, got 1e\+39"),
        *(
            (
                {"I": values},
                "slot 'I' must be a number that float32 holds exactly if it is "
                rf"2\*\*24 or more, got {re.escape(str(values[1]))}",
            )
            for values in (
                [0, 20200715],
                [0, -(2**24) - 1],
                [0, 2**60 + 1],
                np.array([0, 2**64 - 1], np.uint64),
                [0.5, 16777217.0],
                [0.5, 2.0**53 + 2],
                [0.5, 1e20],
            )
        ),
        (
            {"I": ["a", "b"]},
            "slot 'I' must have numbers, got values of dtype <U1",
        ),
        (
            {"C1": [0.5]},
            "slot 'C1' must have integers, got values of dtype float64",
        ),
        ({"C1": [[1]]}, "slot 'C1' has row_splits"),
        ({"C1": [2**64]}, "slot 'C1' must have integers, got .* object"),
        ({"C2": [1]}, "sample 2: unknown slot 'C2'; the slots are click, I, "),
    ],
)
def test_bad_values_name_sample_and_slot(tmp_path, change, message):
    with pytest.raises(ValueError, match=message) as error:
        with MultiSlotWriter(tmp_path / "file", SPEC) as writer:
            writer.write(SAMPLE)
            writer.write({**SAMPLE, **change})
    assert str(error.value).startswith(str(tmp_path / "file"))
    assert names(tmp_path) == []


def test_a_missing_slot_is_named(tmp_path):
    with pytest.raises(ValueError, match="sample 1: slot 'I' is missing"):
        with MultiSlotWriter(tmp_path / "file", SPEC) as writer:
            writer.write({"click": 1, "day": 1})


def test_a_bad_row_is_named_and_its_batch_is_not_written(tmp_path):
    with MultiSlotWriter(tmp_path / "file", SPEC) as writer:
        writer.write(SAMPLE)
        with pytest.raises(
            ValueError, match="sample 4: slot 'click' must be .* got 3"
        ):
            writer.write_batch(
                {"click": [0, 1, 3], "I": np.zeros((3, 2)), "day": [0, 0, 0]}
            )
        with pytest.raises(
            ValueError, match="slot 'I' must have 3 samples, got 2"
        ):
            writer.write_batch(
                {"click": [0, 1, 1], "I": np.zeros((2, 2)), "day": [0, 0, 0]}
            )
        with pytest.raises(ValueError, match="slot 'C1' has row_splits that"):
            writer.write_batch(
                {
                    "click": [0],
                    "I": np.zeros((1, 2)),
                    "C1": ([1, 2], [0, 1]),
                    "day": [0],
                }
            )
        assert writer.num_samples == 1


def test_an_empty_batch_writes_nothing(tmp_path):
    with MultiSlotWriter(tmp_path / "file", SPEC) as writer:
        writer.write(SAMPLE)
        writer.write_batch(
            {"click": [], "I": np.zeros((0, 2)), "day": np.zeros(0, np.int64)}
        )
        assert writer.num_samples == 1


def test_infinity_and_nan_are_floats(tmp_path):
    path = tmp_path / "file"
    with MultiSlotWriter(path, SPEC) as writer:
        writer.write({**SAMPLE, "I": [np.inf, np.nan]})
    assert path.read_text().startswith("1 1 2 inf nan 3")
