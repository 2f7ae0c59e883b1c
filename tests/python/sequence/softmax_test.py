"""lodestar.sequence.softmax against NumPy, its gradients and its errors."""

import numpy as np
import pytest
import tensorflow as tf
from batches import (
    FLOATS,
)

import lodestar


@pytest.mark.parametrize("dtype", FLOATS, ids=lambda dtype: dtype.name)
def test_numbers_of_any_size(dtype):
    nan, inf, big = np.nan, np.inf, float(dtype.max)
    for row, wanted in (
        ([1e4, 1e4], [0.5, 0.5]),
        ([-1e4, -1e4, 1e4], [0, 0, 1]),
        ([big, -big], [1, 0]),
        ([-inf, 3.0, -inf, 3.0], [0, 0.5, 0, 0.5]),
        ([-inf, -inf], [nan] * 2),
        ([-inf], [nan]),
        ([1.0, nan, 2.0], [nan] * 3),
        ([nan, 1.0], [nan] * 2),
        ([inf, 1.0], [nan] * 2),
        ([1.0, inf], [nan] * 2),
    ):
        x = tf.RaggedTensor.from_row_lengths(
            tf.constant([0.0, *row, 0.0], dtype), [1, len(row), 1]
        )
        got = tf.cast(lodestar.sequence.softmax(x).flat_values, tf.float64)
        np.testing.assert_array_equal(got, [1.0, *wanted, 1.0])


def test_gradients_are_numeric_ones_to_third_order(rng):
    splits = tf.constant([0, 2, 2, 3, 6], tf.int64)
    values = tf.constant(rng.normal(size=(6, 2)))
    weights = tf.constant(rng.normal(size=(6, 2)))

    def normal(values):
        x = tf.RaggedTensor.from_row_splits(values, splits, validate=False)
        return lodestar.sequence.softmax(x).flat_values

    def slope(function):
        def gradient(values):
            with tf.GradientTape() as tape:
                tape.watch(values)
                y = tf.reduce_sum(weights * function(values) ** 2)
            return tape.gradient(y, values)

        return gradient

    for function in (normal, slope(normal), slope(slope(normal))):
        symbolic, numeric = tf.test.compute_gradient(function, [values])
        np.testing.assert_allclose(symbolic[0], numeric[0], atol=1e-6)


def test_an_input_that_is_still_needed_is_kept():
    @tf.function
    def function(x):
        y = x.flat_values + 1.0
        z = lodestar.sequence.softmax(x.with_flat_values(y))
        return y, z.flat_values

    y, z = function(tf.ragged.constant([[0.0, 0.0], [3.0]]))
    assert y.numpy().tolist() == [1.0, 1.0, 4.0]
    assert z.numpy().tolist() == [0.5, 0.5, 1.0]
