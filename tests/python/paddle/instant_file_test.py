"""InstantWriter and read_instant, against bytes assembled by hand."""

import gzip
import struct

import numpy as np
import pytest
import tensorflow as tf

import lodestar
from lodestar.data import Column, DataError, Schema
from lodestar.paddle import InstantWriter, read_instant

SLOTS = Schema(
    [
        Column.label("click"),
        Column.sparse("item"),
        Column.dense("price", [2]),
        Column.dense("unused", [1], used=False),
        Column.sparse("score", dtype="float"),
    ]
)
SAMPLES = [
    dict(zip(SLOTS.names(), values))
    for values in (
        (1, [7, 2**64 - 1], [0.5, -2.0], 3.0, [1.5]),
        (0, [8], [1.0, 2.0], 4.0, [2.5, 3.5]),
        (1, [9, 9, 9], [0.0, 0.0], 5.0, [0.0]),
    )
]


def sample_bytes(batch_size, click, items, price, unused, score):
    """Returns a sample as MultiSlotFileInstantDataFeed reads it."""
    return b"".join(
        [
            # A used dense slot: the number of dims and values, the dims of the
            # batch that its shape [-1, ...] leaves open, and the values.
            struct.pack("<HQQ", 2, batch_size, click),
            struct.pack("<H", len(items))
            + struct.pack(f"<{len(items)}Q", *items),
            struct.pack("<HQ2f", 3, batch_size, *price),
            struct.pack("<Hf", 1, unused),
            struct.pack("<H", len(score))
            + struct.pack(f"<{len(score)}f", *score),
        ]
    )


WANTED = (
    sample_bytes(2, 1, [7, 2**64 - 1], [0.5, -2.0], 3.0, [1.5])
    + sample_bytes(2, 0, [8], [1.0, 2.0], 4.0, [2.5, 3.5])
    + sample_bytes(1, 1, [9, 9, 9], [0.0, 0.0], 5.0, [0.0])
)  # batches of 2 and 1


def write(path, samples=SAMPLES, batch_size=2, schema=SLOTS):
    with InstantWriter(path, schema, batch_size) as writer:
        for sample in samples:
            writer.write(sample)
    return writer


def test_bytes_of_a_file(tmp_path):
    path = tmp_path / "part-0"
    assert write(path).num_samples == 3
    assert path.read_bytes() == WANTED


def test_a_file_is_read(tmp_path):
    path = tmp_path / "part-0"
    path.write_bytes(WANTED)
    found = list(read_instant(path, SLOTS))
    assert len(found) == 3
    for sample, wanted in zip(found, SAMPLES):
        assert list(sample) == SLOTS.names()
        assert sample["click"].tolist() == [wanted["click"]]
        assert sample["item"].dtype == np.int64
        assert sample["item"].view(np.uint64).tolist() == wanted["item"]
        assert sample["price"].dtype == np.float32
        assert sample["price"].tolist() == wanted["price"]
        assert sample["unused"].tolist() == [wanted["unused"]]
        assert sample["score"].tolist() == wanted["score"]
    (tmp_path / "part-0.gz").write_bytes(gzip.compress(WANTED))
    assert len(list(read_instant(tmp_path / "part-0.gz", SLOTS))) == 3
    (tmp_path / "empty").write_bytes(b"")
    assert list(read_instant(tmp_path / "empty", SLOTS)) == []


def test_batches_and_other_formats(tmp_path):
    path, text = tmp_path / "part-0", tmp_path / "part-0.txt"
    write(path)
    with lodestar.data.open_writer(text, SLOTS, format="multislot") as writer:
        for sample in read_instant(path, SLOTS):
            writer.write(sample)
    again = tmp_path / "again"
    data = lodestar.data.open_dataset(
        str(text), SLOTS, batch_size=3, format="multislot"
    )
    ((features, label),) = data
    with InstantWriter(again, SLOTS, 2) as writer:
        writer.write_batch(
            {**features, "click": label, "unused": np.array([[3.0], [4], [5]])}
        )
    assert again.read_bytes() == WANTED


def test_matrices_and_large_counts(tmp_path):
    slots = Schema([Column.dense("m", [2, 3]), Column.sparse("ids")])
    sample = {"m": np.arange(6.0).reshape(2, 3), "ids": np.arange(65535)}
    write(tmp_path / "a", [sample], 1, slots)
    (found,) = read_instant(tmp_path / "a", slots)
    np.testing.assert_array_equal(found["m"], sample["m"])
    np.testing.assert_array_equal(found["ids"], sample["ids"])
    sample["ids"] = np.arange(65536)
    with pytest.raises(
        ValueError, match="slot 'ids' must have 1 to 65535 values, got 65536"
    ):
        write(tmp_path / "b", [sample], 1, slots)
    assert not (tmp_path / "b").exists()


def test_empty_lists_are_refused(tmp_path):
    sample = {**SAMPLES[0], "item": []}
    with pytest.raises(
        ValueError, match="sample 2: slot 'item' must have 1 to .* got 0"
    ):
        write(tmp_path / "a", [SAMPLES[0], sample])
    assert not (tmp_path / "a").exists()


@pytest.mark.parametrize("cut", [1, 2, 9, 19, 26, len(WANTED) - 1])
def test_a_truncated_file(tmp_path, cut):
    path = tmp_path / "part-0"
    path.write_bytes(WANTED[:cut])
    with pytest.raises(
        DataError,
        match="part-0: sample [123]: slot '.*' at byte .*: the file ends",
    ):
        list(read_instant(path, SLOTS))


def test_files_that_do_not_fit(tmp_path):
    path = tmp_path / "part-0"
    path.write_bytes(struct.pack("<HQQ", 1, 2, 1))
    with pytest.raises(
        DataError, match="sample 1: slot 'click' at byte 0: has no values"
    ):
        list(read_instant(path, SLOTS))
    path.write_bytes(struct.pack("<HQQQ", 3, 2, 1, 1))
    with pytest.raises(
        DataError, match="slot 'click' must have 1 values, got 2"
    ):
        list(read_instant(path, SLOTS))
    with pytest.raises(DataError, match="missing"):
        list(read_instant(tmp_path / "missing", SLOTS))


@pytest.mark.parametrize(
    "column", [Column.dense("x", [-1]), Column.one_hot("x", 3)]
)
def test_columns_without_a_description(tmp_path, column):
    for call in (
        lambda: InstantWriter(tmp_path / "a", Schema([column]), 1),
        lambda: next(read_instant(tmp_path / "a", Schema([column]))),
    ):
        with pytest.raises(
            ValueError, match="'x': a DataFeedDesc cannot express"
        ):
            call()
    with pytest.raises(ValueError, match="`batch_size` must be an integer"):
        InstantWriter(tmp_path / "a", SLOTS, 0)
    assert not tf.io.gfile.listdir(str(tmp_path))
