"""MultiSlotWriter: exact text, checks, and no partial files."""

import numpy as np
import pytest
import tensorflow as tf

from lodestar.data import Column, Schema
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
        writer.write({**SAMPLE, "I": [np.inf, np.nan]})
        assert writer.num_samples == 3
    assert path.read_text() == (
        "1 1 2 0.1 3 3 7 18446744073709551615 18446744073709551614 1 6 1 0.25\n"
        "1 0 2 0.1 100000002004087734272 0 1 0 0\n"
        "1 1 2 inf nan 3 7 18446744073709551615 18446744073709551614 1 6 1 0.25\n"
    )
    assert names(tmp_path) == ["file"]


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
        (
            {"I": [1.0, 1e39]},
            r"slot 'I' must be a number that float32 holds, .*, got 1e\+39",
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
