"""Batches and checks that the tests of several sequence ops share."""

import numpy as np
import pytest
import tensorflow as tf

FLOATS = [tf.float16, tf.bfloat16, tf.float32, tf.float64]
INTEGERS = [tf.int32, tf.int64]
# Dtypes that an op may move: every size, signs and kinds.
MOVED = [*FLOATS, tf.int8, tf.uint16, tf.int32, tf.int64, tf.bool, tf.string]
# No sequences, only empty ones, one row, long ones between short ones.
LENGTHS = [[], [0], [0, 0, 0], [1], [3, 0, 1, 7, 0], [4000, 1, 0, 500]]

every_nothing = pytest.mark.parametrize(
    "splits, shape", [([0], [0, 3]), ([0, 0, 0], [0, 3]), ([0, 2, 2], [2, 0])]
)


def splits_of(lengths):
    """Returns the int64 splits of sequences of these lengths."""
    return np.cumsum([0, *lengths], dtype=np.int64)


def ragged_of(rows, lengths, dtype=None):
    """Returns sequences of rows, which are cast unless `dtype` is None."""
    if dtype is not None:
        rows = tf.cast(rows, dtype)
    return tf.RaggedTensor.from_row_splits(rows, splits_of(lengths))


def random_rows(rng, shape, dtype):
    """Returns a tensor of integers below 100, or strings of that length, or bools."""
    rows = rng.integers(0, 100, size=shape)
    if dtype == tf.string:
        texts = np.vectorize(lambda i: b"x" * i, otypes=[object])(rows)
        return tf.constant(texts, dtype)
    if dtype == tf.bool:
        return tf.constant(rows % 2 == 1)
    return tf.cast(rows, dtype)


def slope_of(function):
    """Returns a function that computes the gradient of the sum of `function` cubed."""

    def slope(*inputs):
        with tf.GradientTape() as tape:
            tape.watch(inputs)
            y = tf.reduce_sum(function(*inputs) ** 3)
        return tf.concat(
            [tf.reshape(g, [-1]) for g in tape.gradient(y, inputs)], 0
        )

    return slope


def check_gradients(function, *inputs, atol=1e-4):
    """Compares gradients, and second gradients to `atol`, with numeric ones."""
    for f, tolerance in ((function, 1e-6), (slope_of(function), atol)):
        for ours, numeric in zip(
            *tf.test.compute_gradient(f, inputs), strict=True
        ):
            np.testing.assert_allclose(ours, numeric, atol=tolerance)


def check_gradients_of_nothing(function, splits, shape):
    """Checks the shapes of two gradients without values."""
    x = tf.zeros(shape, tf.float64)
    with tf.GradientTape() as second:
        second.watch(x)
        with tf.GradientTape() as first:
            first.watch(x)
            ragged = tf.RaggedTensor.from_row_splits(x, splits)
            y = function(ragged) ** 3
        slope = first.gradient(y, x)
    assert slope.shape == shape
    assert second.gradient(slope, x).shape == shape


def gradient_in(dtype, function, values, upstream):
    """Returns the gradient of a function of rows of `dtype`, as float64."""
    x = tf.constant(values, dtype)
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = function(x)
    gradient = tape.gradient(y, x, tf.constant(upstream, dtype))
    assert gradient.dtype == dtype
    return tf.cast(gradient, tf.float64)


def check_threads(function, rng):
    """Checks that a sequence gives the same bits alone and in a batch."""
    # Long enough that the work is divided; a single sequence's is not.
    lengths = np.concatenate([rng.integers(0, 9, 9000), [10000]])
    x = ragged_of(
        rng.normal(size=(lengths.sum(), 8)).astype(np.float32), lengths
    )
    together = function(x)
    for b in (0, 17, 4000, 8999, 9000):
        alone = function(ragged_of(x[b], [lengths[b]]))
        np.testing.assert_array_equal(together[b], alone[0])
