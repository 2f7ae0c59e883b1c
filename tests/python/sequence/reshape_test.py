"""lodestar.sequence.reshape against NumPy, its gradient and its errors."""

import numpy as np
import pytest
import tensorflow as tf
from batches import check_gradients, random_rows

import lodestar
from lodestar._library import gen_ops
from lodestar.ragged import LoDTensor


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


def test_the_documented_example_and_two_levels():
    x = LoDTensor.from_lengths(np.arange(12.0).reshape(6, 2), [[2, 4]])
    y = lodestar.sequence.reshape(x, 4)
    assert isinstance(y, LoDTensor)
    assert y.lengths()[0].numpy().tolist() == [1, 2]
    x = LoDTensor.from_lengths(np.ones([6, 2]), [[1, 0, 1], [2, 4]])
    y = lodestar.sequence.reshape(x, 4)
    assert [level.numpy().tolist() for level in y.lod] == [
        [0, 1, 1, 2],
        [0, 1, 3],
    ]


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


def test_gradients_are_numeric_ones_to_second_order(rng):
    values = tf.constant(rng.normal(size=(6, 2)))

    def reshaped(values):
        x = tf.RaggedTensor.from_row_lengths(values, [2, 0, 4])
        return lodestar.sequence.reshape(x, 4).flat_values

    check_gradients(reshaped, values)


@pytest.mark.parametrize("new_dim", [0, -1, 1.5, 2**63])
def test_another_new_dim_is_refused(new_dim):
    with pytest.raises(
        ValueError, match=f"`new_dim` must be an .* got {new_dim}"
    ):
        lodestar.sequence.reshape(tf.ragged.constant([[1.0]]), new_dim)


@pytest.mark.parametrize(
    "values, row_splits, new_dim, message",
    [
        ([1.0] * 3, [0, 2], 1, "ends at 2, but there are 3 rows"),
        ([1.0] * 3, [0, 9, 3], 1, "is greater than"),
        ([1.0] * 3, [], 1, "`row_splits` is empty"),
        ([1.0] * 3, 3, 1, "`row_splits` must have rank 1"),
        (1.0, [0, 1], 1, "`values` must have rank 1 or more"),
        ([1.0] * 3, [0, 3], 2**62, "has 3 rows of 1 = 3 values, not a mult"),
        ([1.0] * 3, [0, 1, 3], 3, "sequence 0 has 1 rows"),
        ([1.0] * 3, [0, 3], 0, "must be at least minimum 1"),
    ],
)
def test_ops_refuse_invalid_arguments(values, row_splits, new_dim, message):
    with pytest.raises(tf.errors.InvalidArgumentError, match=message):
        gen_ops.lodestar_sequence_reshape(
            values=tf.convert_to_tensor(values, tf.float32),
            row_splits=tf.convert_to_tensor(row_splits, tf.int64),
            new_dim=new_dim,
        )
