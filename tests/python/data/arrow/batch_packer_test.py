"""lodestar.data.arrow.batch_packer: rows as one buffer and a table of offsets."""

import gc

import numpy as np
import pytest
import tensorflow as tf

from lodestar.data import Column, DataError
from lodestar.data.arrow.batch_packer import BatchPacker
from lodestar.data.arrow.decode import Rows
from lodestar.data.binding import bind
from lodestar.data.sample_columns import ColumnValues

NUMBERS = Rows(8, {0: np.arange(8, dtype=np.float32)[:, np.newaxis]})


def lists(rows, dtype=np.int64):
    """Returns rows of lists, or of lists of lists, as ColumnValues."""
    splits = np.cumsum([0, *map(len, rows)])
    flat = sum(rows, [])
    if any(isinstance(x, list) for x in flat):
        return ColumnValues(lists(flat, dtype), splits)
    return ColumnValues(np.array(flat, dtype), splits)


def unpacked(packer, parts, rows):
    arrays = packer.pack(parts, rows)
    return [t.numpy().tolist() for t in packer.unpacker()(*arrays)]


def test_memory_of_batches_is_used_again():
    packer = BatchPacker(bind([Column.dense("I", (1,))]), None)
    buffer, places = packer.pack([(NUMBERS, 2, 6)], 4)
    assert places.tolist() == [[0, 16, 4]]
    assert buffer.view(np.float32)[:4].tolist() == [2, 3, 4, 5]
    address = buffer.ctypes.data
    assert address % 64 == 0
    assert packer.pack([(NUMBERS, 0, 4)], 4)[0].ctypes.data != address
    del buffer
    gc.collect()
    assert packer.pack([(NUMBERS, 0, 4)], 4)[0].ctypes.data == address


def test_lists_of_several_parts():
    packer = BatchPacker(bind([Column.sparse("C")]), None)
    first = Rows(3, {0: lists([[1, 2], [], [3]])})
    second = Rows(2, {0: np.array([[4], [5]])})  # one value per row
    values, splits = unpacked(packer, [(first, 1, 3), (second, 0, 2)], 4)
    assert values == [3, 4, 5]
    assert splits == [0, 0, 1, 2, 3]


def test_lists_of_lists_of_several_parts():
    packer = BatchPacker(bind([Column.sparse("C", depth=2)]), None)
    first = Rows(3, {0: lists([[[9]], [[1, 2], []], [[3]]])})
    second = Rows(3, {0: lists([[], [[4], [5, 6]], [[7]]])})
    parts = [(first, 1, 3), (second, 0, 2)]
    found = unpacked(packer, parts, 4)
    ragged = tf.RaggedTensor.from_nested_row_splits(
        found[0], nested_row_splits=[found[2], found[1]]
    )
    want = [[[1, 2], []], [[3]], [], [[4], [5, 6]]]
    assert ragged.to_list() == want


def test_columns_with_one_value_per_row_share_their_splits():
    columns = [Column.sparse("C"), Column.sparse("D")]
    packer = BatchPacker(bind(columns), None)
    rows = Rows(2, {0: np.array([[1], [2]]), 1: np.array([[3], [4]])})
    _, places = packer.pack([(rows, 0, 2)], 2)
    assert places[1].tolist() == places[3].tolist()
    assert unpacked(packer, [(rows, 0, 2)], 2) == [
        [1, 2],
        [0, 1, 2],
        [3, 4],
        [0, 1, 2],
    ]


def test_a_free_dim_needs_rows_of_one_size():
    packer = BatchPacker(bind([Column.dense("f", (-1, 2))]), None)
    rows = Rows(3, {0: lists([[1, 2], [3, 4], [5, 6, 7, 8]], np.float32)})
    assert unpacked(packer, [(rows, 0, 2)], 2) == [[[[1.0, 2.0]], [[3.0, 4.0]]]]
    with pytest.raises(DataError, match="found 4 values in example 2"):
        packer.pack([(rows, 0, 3)], 3)


def test_no_rows():
    columns = [Column.sparse("C"), Column.dense("x", (2,))]
    packer = BatchPacker(bind(columns), None)
    assert unpacked(packer, [], 0) == [[], [0], []]
