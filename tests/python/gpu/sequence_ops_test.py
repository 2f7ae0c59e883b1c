"""Compares the sequence ops on a GPU with the same ops on the CPU.

The tests of each op check its values; tests/cuda checks how the CUDA kernels
handle invalid splits.
"""

import numpy as np
import pytest
import tensorflow as tf
from batches import FLOATS, ragged_of

import lodestar

pytestmark = pytest.mark.gpu

NUMBERS = [*FLOATS, tf.int32, tf.int64]
COMBINERS = ["sum", "mean", "sqrtn", "max", "first", "last"]
# Widths of rows that divide into packs of 16 bytes, and that do not.
SHAPES = [(), (3,), (8, 4), (129,)]
# No sequences, only empty ones, short ones, a long one between them.
LENGTHS = [[], [0, 0], [1], [3, 0, 1, 7, 0], [2, 5000, 0, 130, 1]]


def ragged(lengths, shape, dtype, rng):
    """Returns sequences of small integers, for ties and exact sums."""
    values = rng.integers(-9, 10, size=(sum(lengths), *shape))
    return ragged_of(values, lengths, dtype)


def tensors(result):
    """Returns the components of an op's result."""
    return tf.nest.flatten(result, expand_composites=True)


def results(device, function, x):
    """Returns `function` of x and its gradient on a device."""
    with tf.device(device):
        rows = tf.identity(x.flat_values)
        with tf.GradientTape() as tape:
            tape.watch(rows)
            y = tensors(function(x.with_flat_values(rows)))
        found = list(y)
        assert y[0].device.endswith(device[1:]), y[0].device
        if rows.dtype.is_floating:
            weights = tf.reshape(
                tf.range(tf.size(y[0])) % 5 - 2, tf.shape(y[0])
            )
            found.append(
                tape.gradient(y[0], rows, tf.cast(weights, y[0].dtype))
            )
            assert found[-1].device.endswith(device[1:]), found[-1].device
    return found


def check(function, x, dtype):
    wanted = results("/CPU:0", function, x)
    got = results("/GPU:0", function, x)
    # Rounding to 16 bits may differ once.
    rtol = {tf.float16: 1e-3, tf.bfloat16: 8e-3}.get(dtype, 1e-6)
    for a, b in zip(got, wanted, strict=True):
        assert a.dtype == b.dtype
        np.testing.assert_allclose(
            a.numpy().astype(np.float64),
            b.numpy().astype(np.float64),
            rtol=rtol,
            atol=1e-6,
        )


every_input = pytest.mark.parametrize(
    "lengths, shape",
    [(lengths, shape) for lengths in LENGTHS for shape in SHAPES],
    ids=str,
)


@every_input
@pytest.mark.parametrize("dtype", NUMBERS, ids=lambda dtype: dtype.name)
@pytest.mark.parametrize("combiner", COMBINERS)
def test_pool(combiner, dtype, lengths, shape, rng):
    check(
        lambda x: lodestar.sequence.pool(
            x, combiner, pad_value=7, with_index=combiner == "max"
        ),
        ragged(lengths, shape, dtype, rng),
        dtype,
    )


@every_input
@pytest.mark.parametrize("dtype", FLOATS, ids=lambda dtype: dtype.name)
def test_softmax(dtype, lengths, shape, rng):
    check(lodestar.sequence.softmax, ragged(lengths, shape, dtype, rng), dtype)


@every_input
@pytest.mark.parametrize("dtype", NUMBERS, ids=lambda dtype: dtype.name)
@pytest.mark.parametrize("op", ["reverse", "pad", "pad_step", "unpad"])
def test_moves(op, dtype, lengths, shape, rng):
    step = tf.cast(
        tf.reshape(tf.range(np.prod(shape, dtype=int)), shape), dtype
    )

    def function(x):
        if op == "reverse":
            return lodestar.sequence.reverse(x)
        maxlen = max([2, *lengths]) + 1
        padded, sizes = lodestar.sequence.pad(
            x, step if op == "pad_step" else 3, maxlen=maxlen
        )
        if op == "unpad":
            return lodestar.sequence.unpad(padded, sizes // 2)
        return padded, sizes

    check(function, ragged(lengths, shape, dtype, rng), dtype)


@every_input
@pytest.mark.parametrize("dtype", NUMBERS, ids=lambda dtype: dtype.name)
def test_expand(dtype, lengths, shape, rng):
    counts = rng.integers(0, 4, len(lengths))
    if len(counts) > 3:
        counts[0] = 700
    y = ragged(counts, (), tf.int64, rng)
    check(
        lambda x: lodestar.sequence.expand(x, y),
        ragged(lengths, shape, dtype, rng),
        dtype,
    )


@every_input
@pytest.mark.parametrize("dtype", NUMBERS, ids=lambda dtype: dtype.name)
def test_expand_as(dtype, lengths, shape, rng):
    y = ragged(lengths, (), tf.int64, rng)
    check(
        lambda x: lodestar.sequence.expand_as(x.flat_values, y),
        ragged([1] * len(lengths), shape, dtype, rng),
        dtype,
    )


@pytest.mark.parametrize("combiner", COMBINERS)
def test_pool_to_second_order(combiner, rng):
    def slope(x):
        with tf.GradientTape() as tape:
            tape.watch(x.flat_values)
            y = lodestar.sequence.pool(x, combiner) ** 3
        return tape.gradient(y, x.flat_values)

    check(slope, ragged([2, 0, 300, 5], (3,), tf.float64, rng), tf.float64)


def test_the_same_bits_every_time(rng):
    x = tf.RaggedTensor.from_row_lengths(
        rng.normal(size=(20000, 8)).astype(np.float32), [10000, 3, 9997]
    )
    with tf.device("/GPU:0"):
        for function in (lodestar.sequence.pool, lodestar.sequence.softmax):
            first = tensors(function(x))[0].numpy()
            for _ in range(5):
                again = tensors(function(x))[0].numpy()
                np.testing.assert_array_equal(first, again)


def test_splits_that_the_host_needs_are_checked(rng):
    x = ragged([2, 3], (), tf.float32, rng)
    with tf.device("/GPU:0"):
        with pytest.raises(tf.errors.InvalidArgumentError, match="maxlen"):
            lodestar.sequence.pad(x, maxlen=2)
        with pytest.raises(tf.errors.InvalidArgumentError, match="has 2 un"):
            lodestar.sequence.expand(x, ragged([1], (), tf.float32, rng))
