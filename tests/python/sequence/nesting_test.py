"""Helpers that flatten the inputs of sequence ops and restore their nesting."""

import pytest
import tensorflow as tf

from lodestar.sequence import nesting


@pytest.mark.parametrize("in_function", [False, True])
@pytest.mark.parametrize("above", [[], [0, 1]])
def test_rows_beyond_int32_splits_are_refused(above, in_function):
    rows = tf.zeros([0, 2])

    def packed(splits_dtype, last):
        def pack(last):
            x = tf.RaggedTensor.from_row_splits(
                rows, tf.constant([0], splits_dtype)
            )
            splits = [tf.stack([0, last])]
            if above:
                splits.insert(0, tf.constant(above, tf.int64))
            return nesting.pack_like(x, rows, splits)

        pack = tf.function(pack) if in_function else pack
        y = pack(tf.constant(last, tf.int64))
        assert y.row_splits.dtype == splits_dtype
        return y.nested_row_splits[-1].numpy().tolist()

    assert packed(tf.int32, 2**31 - 1) == [0, 2**31 - 1]
    assert packed(tf.int64, 2**31) == [0, 2**31]
    for last in (2**31, 2**32 + 3):
        with pytest.raises(
            tf.errors.InvalidArgumentError,
            match="maximum for int32 `row_splits",
        ):
            packed(tf.int32, last)
