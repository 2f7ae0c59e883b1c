"""lodestar.sequence.erase against NumPy, and its errors."""

import numpy as np
import pytest
import tensorflow as tf
from batches import ragged_of

import lodestar
from lodestar._library import gen_ops
from lodestar.ragged import LoDTensor


@pytest.mark.parametrize("dtype", [tf.int32, tf.int64, tf.string])
@pytest.mark.parametrize(
    "tokens", [[], [3], [0, 2, 2, 99], [4, 1, *range(90, 99)]], ids=str
)
@pytest.mark.parametrize(
    "lengths", [[], [0], [0, 0], [1], [5, 0, 300, 1, 0]], ids=str
)
def test_matches_numpy(lengths, tokens, dtype, rng):
    def cast(numbers):
        numbers = tf.constant(numbers, tf.int64)
        if dtype == tf.string:
            return tf.strings.as_string(numbers)
        return tf.cast(numbers, dtype)

    ids = rng.integers(0, 5, sum(lengths))
    kept = ~np.isin(ids, tokens)
    owner = np.repeat(np.arange(len(lengths)), np.array(lengths, np.int64))
    for rows in (ids, ids[:, np.newaxis]):
        x = ragged_of(cast(rows), lengths)
        got = lodestar.sequence.erase(x, cast(tokens))
        assert got.dtype == dtype
        np.testing.assert_array_equal(got.flat_values, cast(rows).numpy()[kept])
        np.testing.assert_array_equal(
            got.row_lengths(),
            np.bincount(owner[kept], minlength=len(lengths)),
        )


def test_two_levels_keep_the_upper_one():
    x = LoDTensor.from_lengths([1, 2, 2, 3], [[2, 0, 1], [1, 2, 1]])
    y = lodestar.sequence.erase(x, [2])
    assert isinstance(y, LoDTensor)
    assert y.values.numpy().tolist() == [1, 3]
    assert [level.numpy().tolist() for level in y.lod] == [
        [0, 2, 2, 3],
        [0, 1, 1, 2],
    ]
    y = lodestar.sequence.erase(x.to_ragged(), tf.constant([2]))
    assert y.to_list() == [[[1], []], [], [[3]]]


def test_unknown_dimensions_in_a_function():
    @tf.function(
        input_signature=[
            tf.RaggedTensorSpec(
                [None, None], tf.int64, 1, row_splits_dtype=tf.int32
            ),
            tf.TensorSpec([None], tf.int64),
        ]
    )
    def erased(x, tokens):
        return lodestar.sequence.erase(x, tokens)

    x = tf.RaggedTensor.from_row_splits(
        tf.constant([1, 2, 3], tf.int64), np.array([0, 2, 3], np.int32)
    )
    y = erased(x, [2])
    assert y.to_list() == [[1], [3]]
    assert y.row_splits.dtype == tf.int32


def test_rows_of_unknown_width():
    @tf.function(input_signature=[tf.RaggedTensorSpec([None] * 3, tf.int64, 1)])
    def erased(x):
        return lodestar.sequence.erase(x, [2])

    rows = tf.constant([[1], [2], [3]], tf.int64)
    x = tf.RaggedTensor.from_row_lengths(rows, [2, 1])
    assert erased(x).to_list() == [[[1]], [[3]]]
    wide = x.with_flat_values(tf.tile(rows, [1, 2]))
    with pytest.raises(
        tf.errors.InvalidArgumentError, match="one token per row"
    ):
        erased(wide)


def test_invalid_arguments_are_refused():
    x = tf.ragged.constant([[1, 2]])
    for tokens in ([2**40], np.array([2**40])):
        with pytest.raises(
            ValueError, match="`tokens` must be in the range of int32, got 1099"
        ):
            lodestar.sequence.erase(x, tokens)
    with pytest.raises(TypeError, match="`tokens` has dtype int64, but `x`"):
        lodestar.sequence.erase(x, tf.constant([1], tf.int64))
    with pytest.raises(
        TypeError, match="dtype float32, but must be one of int32"
    ):
        lodestar.sequence.erase(tf.ragged.constant([[1.0]]), [1])
    with pytest.raises(ValueError, match="`tokens` must have rank 1, got"):
        lodestar.sequence.erase(x, 1)
    with pytest.raises(ValueError, match="`x` must have rows of one token"):
        lodestar.sequence.erase(
            tf.RaggedTensor.from_row_lengths([[1, 2]], [1]), [1]
        )
    with pytest.raises(ValueError, match="`x` has no level"):
        lodestar.sequence.erase(LoDTensor([1], ()), [1])


@pytest.mark.parametrize(
    "values, row_splits, tokens, message",
    [
        ([1, 2, 3], [1, 3], [1], r"`row_splits\[0\]` must be 0, got 1"),
        ([1, 2, 3], [0, 2, 1, 3], [1], r"`row_splits\[1\]`=2 is greater than"),
        ([1, 2, 3], [0, 2**62], [1], "but there are 3 rows"),
        ([1, 2, 3], [0, -5, 3], [1], "is greater than"),
        ([1, 2, 3], [], [1], "`row_splits` is empty"),
        ([1, 2, 3], 3, [1], "`row_splits` must have rank 1"),
        ([1, 2, 3], [0, 3], 1, "`tokens` must have rank 1"),
        (1, [0, 1], [1], "`values` must have rank 1 or more"),
        ([[1, 2]], [0, 1], [1], "`values` must have one token per row, got sh"),
        (tf.zeros([2, 0]), [0, 2], [1], "`values` must have one token per row"),
    ],
)
def test_ops_refuse_invalid_arguments(values, row_splits, tokens, message):
    with pytest.raises(tf.errors.InvalidArgumentError, match=message):
        gen_ops.lodestar_sequence_erase(
            values=tf.cast(values, tf.int64),
            row_splits=tf.cast(row_splits, tf.int64),
            tokens=tf.cast(tokens, tf.int64),
        )
