"""Compares the sequence ops on a GPU with the same ops on the CPU.

The tests of each op check its values; tests/cuda checks how the CUDA kernels
handle invalid splits.
"""

import emulated

emulated.load()

import numpy as np  # noqa: E402
import pytest  # noqa: E402
import tensorflow as tf  # noqa: E402

import lodestar  # noqa: E402
from lodestar.ops import sequence_ops  # noqa: E402

FLOATS = [tf.float16, tf.bfloat16, tf.float32, tf.float64]
NUMBERS = [*FLOATS, tf.int32, tf.int64]
# Dtypes that an op may move: every size and kind.
MOVED = [*NUMBERS, tf.int8, tf.uint16, tf.bool]
COMBINERS = ["sum", "mean", "sqrtn", "max", "first", "last"]
# Widths of rows that divide into packs of 16 bytes, and that do not.
SHAPES = [(), (3,), (8, 4), (129,)]
# No sequences, only empty ones, short ones, a long one between them.
LONG = 5000 if tf.test.is_built_with_cuda() else 300
LENGTHS = [[], [0, 0], [1], [3, 0, 1, 7, 0], [2, LONG, 0, 130, 1]]


def ragged(lengths, shape, dtype, rng):
    """Returns sequences of small integers, for ties and exact sums."""
    values = rng.integers(-9, 10, size=(sum(lengths), *shape))
    return tf.RaggedTensor.from_row_lengths(
        tf.cast(values, dtype), np.array(lengths, np.int64)
    )


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


def inputs(dtypes, rng):
    """Yields sequences of each length and shape, with two of the dtypes."""
    cases = [(lengths, shape) for lengths in LENGTHS for shape in SHAPES]
    for i, (lengths, shape) in enumerate(cases):
        for k in (i, i + 3):
            dtype = dtypes[k % len(dtypes)]
            yield lengths, shape, dtype, ragged(lengths, shape, dtype, rng)


@pytest.mark.parametrize("combiner", COMBINERS)
def test_pool(combiner, rng):
    for _, _, dtype, x in inputs(NUMBERS, rng):
        check(
            lambda x: lodestar.sequence.pool(
                x, combiner, pad_value=7, with_index=combiner == "max"
            ),
            x,
            dtype,
        )


def test_softmax(rng):
    for _, _, dtype, x in inputs(FLOATS, rng):
        check(lodestar.sequence.softmax, x, dtype)


@pytest.mark.parametrize("causal", [False, True])
def test_attention(causal, rng):
    """Most of its ops are TensorFlow's, which have no kernels in the emulation."""
    x = ragged([40, 0, 3, 1, 17], (2, 4), tf.float64, rng)
    found = []
    for device in ("/CPU:0", "/GPU:0"):
        with tf.device(device), tf.GradientTape() as tape:
            tape.watch(x.flat_values)
            y = lodestar.sequence.attention(x, x, x, causal=causal)
            loss = tf.reduce_sum(y.flat_values**2)
        found.append((y.flat_values, tape.gradient(loss, x.flat_values)))
    for cpu, gpu in zip(*found, strict=True):
        np.testing.assert_allclose(cpu, gpu, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("op", ["pad", "pad_step", "unpad", "concat"])
def test_moves(op, rng):
    for lengths, shape, dtype, batch in inputs(MOVED, rng):
        step = tf.reshape(tf.range(np.prod(shape, dtype=int)), shape)
        pad_value = tf.cast(step if op == "pad_step" else 3, dtype)
        other = ragged(rng.integers(0, 4, len(lengths)), shape, dtype, rng)
        maxlen = max([2, *lengths]) + 1

        def function(x, other=other, pad_value=pad_value, maxlen=maxlen):
            if op == "concat":
                return lodestar.sequence.concat([other, x, other])
            padded, sizes = lodestar.sequence.pad(x, pad_value, maxlen=maxlen)
            if op == "unpad":
                return lodestar.sequence.unpad(padded, sizes // 2)
            return padded, sizes

        check(function, batch, dtype)


@pytest.mark.parametrize("start, size", [(0, 2), (-1, 3), (4, 2), (-9, 1)])
def test_windows(start, size, rng):
    for _, _, dtype, x in inputs(NUMBERS, rng):
        check(
            lambda x: sequence_ops.sequence_context(
                x.flat_values,
                x.row_splits,
                tf.cast(7, x.dtype),
                start,
                size,
            ),
            x,
            dtype,
        )


def matrices(channels, dtype, rng):
    """Returns matrices, and sequences of as many rows and columns."""
    rows = np.array([2, 0, 5, 1, 3])
    columns = np.array([3, 4, 40, 0, 1])
    x = ragged(channels * rows * columns, (), dtype, rng)
    return x, *(ragged(sizes, (), tf.int64, rng) for sizes in (rows, columns))


@pytest.mark.parametrize(
    "op",
    ["conv", "enumerate", "erase", "reshape", "reverse"]
    + ["scatter", "slice", "topk"],
)
def test_functions_of_several_ops(op, rng):
    """The ops of TensorFlow have no kernels in the emulation."""
    steps = ragged([3, 0, 1, 7], (4,), tf.float32, rng)
    weight = tf.constant(rng.integers(-3, 4, (12, 5)), tf.float32)
    padding = tf.constant(rng.integers(-3, 4, (2, 4)), tf.float32)
    index = tf.abs(ragged([3, 0, 1, 7], (), tf.int64, rng))
    matrix, row, col = matrices(2, tf.float32, rng)
    sequence = lodestar.sequence
    functions = {
        "conv": lambda x: sequence.conv(x, weight, padding=padding),
        "enumerate": lambda x: sequence.enumerate(index, 3, pad_value=-1),
        "erase": lambda x: sequence.erase(index, [1, 3]),
        "reshape": lambda x: sequence.reshape(x, 2),
        "reverse": sequence.reverse,
        "scatter": lambda x: sequence.scatter(tf.ones([4, 10, 4]), index, x),
        "slice": lambda x: sequence.slice(x, [1, 0, 0, 3], [2, 0, 1, 3]),
        "topk": lambda x: sequence.topk_avg_pooling(x, row, col, [1, 3], 2),
    }
    x = matrix if op == "topk" else steps
    found = []
    for device in ("/CPU:0", "/GPU:0"):
        values = x.flat_values
        with tf.device(device), tf.GradientTape() as tape:
            tape.watch(values)
            y = tensors(functions[op](x.with_flat_values(values)))
            z = tf.reduce_sum(tf.cast(y[0], tf.float32) ** 2)
        slope = tape.gradient(z, values)
        if slope is not None:
            y.append(tf.convert_to_tensor(slope))
        found.append(y)
    for cpu, gpu in zip(*found, strict=True):
        np.testing.assert_allclose(gpu, cpu, rtol=1e-6)


def test_expand(rng):
    for lengths, _, dtype, x in inputs(MOVED, rng):
        counts = rng.integers(0, 4, len(lengths))
        if len(counts) > 3:
            counts[0] = 700
        y = ragged(counts, (), tf.int64, rng)
        check(lambda x, y=y: lodestar.sequence.expand(x, y), x, dtype)


def test_expand_as(rng):
    for lengths, shape, dtype, _ in inputs(MOVED, rng):
        y = ragged(lengths, (), tf.int64, rng)
        check(
            lambda x, y=y: lodestar.sequence.expand_as(x.flat_values, y),
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
    y = ragged([1], (), tf.float32, rng)
    sequence = lodestar.sequence
    for message, call in {
        "maxlen": lambda: sequence.pad(x, maxlen=2),
        "has 2 un": lambda: sequence.expand(x, y),
        r"`xs\[1\]` has 1 seq": lambda: sequence.concat([x, y]),
    }.items():
        with (
            tf.device("/GPU:0"),
            pytest.raises(tf.errors.InvalidArgumentError, match=message),
        ):
            call()
