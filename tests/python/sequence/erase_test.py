"""lodestar.sequence.erase against NumPy, and its errors."""

import numpy as np
import pytest
import tensorflow as tf
from batches import ragged_of

import lodestar
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


def test_rows_of_unknown_width():
    @tf.function(input_signature=[tf.RaggedTensorSpec([None] * 3, tf.int64, 1)])
    def erased(x):
        return lodestar.sequence.erase(x, [2])

    rows = tf.constant([[1], [2], [3]], tf.int64)
    x = tf.RaggedTensor.from_row_lengths(rows, [2, 1])
    assert erased(x).to_list() == [[[1]], [[3]]]
    wide = x.with_flat_values(tf.tile(rows, [1, 2]))
    with pytest.raises(tf.errors.InvalidArgumentError, match="squeeze dim"):
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
