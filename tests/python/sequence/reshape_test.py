"""lodestar.sequence.reshape against NumPy, its gradient and its errors."""

import numpy as np
import pytest
import tensorflow as tf
from batches import random_rows

import lodestar


@pytest.mark.parametrize(
    "dtype", [tf.bfloat16, tf.float64, tf.int64, tf.bool, tf.string]
)
@pytest.mark.parametrize(
    "shape, new_dim",
    [((), 2), ((6,), 4), ((6,), 12), ((2, 3), 1), ((4,), 4), ((0,), 3)],
)
@pytest.mark.parametrize(
    "lengths", [[], [0], [0, 0], [2], [2, 0, 4, 18, 0]], ids=str
)
def test_matches_numpy(lengths, shape, new_dim, dtype, rng):
    values = random_rows(rng, (sum(lengths), *shape), dtype)
    lengths = np.array(lengths, np.int64)
    got = lodestar.sequence.reshape(
        tf.RaggedTensor.from_row_lengths(values, lengths), new_dim
    )
    wanted = values.numpy().reshape(-1, new_dim)
    np.testing.assert_array_equal(got.flat_values, wanted)
    np.testing.assert_array_equal(
        got.row_lengths(), lengths * int(np.prod(shape)) // new_dim
    )


def test_unknown_dimensions_in_a_function():
    @tf.function(
        input_signature=[tf.RaggedTensorSpec([None, None, None], tf.float32, 1)]
    )
    def reshaped(x):
        y = lodestar.sequence.reshape(x, 3)
        assert y.flat_values.shape.as_list() == [None, 3]
        return y

    x = tf.RaggedTensor.from_row_lengths(tf.ones([6, 2]), [3, 0, 3])
    assert reshaped(x).row_lengths().numpy().tolist() == [2, 0, 2]
    x = tf.RaggedTensor.from_row_lengths(tf.ones([6, 2]), [3, 0, 3])
    with pytest.raises(
        tf.errors.InvalidArgumentError,
        match="sequence 1 has 2 rows of 2 = 4 values, not a multiple of "
        "`new_dim`=3",
    ):
        reshaped(tf.RaggedTensor.from_row_lengths(tf.ones([6, 2]), [3, 2, 1]))


@pytest.mark.parametrize("new_dim", [0, -1, 1.5, 2**63])
def test_another_new_dim_is_refused(new_dim):
    with pytest.raises(
        ValueError, match=f"`new_dim` must be an .* got {new_dim}"
    ):
        lodestar.sequence.reshape(tf.ragged.constant([[1.0]]), new_dim)
