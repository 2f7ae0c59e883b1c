"""lodestar.sequence.enumerate and conv against NumPy, gradients and errors."""

import numpy as np
import pytest
import tensorflow as tf
from batches import (
    FLOATS,
    check_gradients,
    ragged_of,
)

import lodestar
from lodestar.ragged import LoDTensor

LENGTHS = [[], [0], [0, 0, 0], [1], [3, 0, 1, 7, 0], [300, 1, 0, 50]]


FILTERS = [
    (3, None, 4), (1, None, 3), (4, None, 1), (5, -4, 2), (5, 0, 2),
    (3, 2, 2), (2, -5, 3), (3, None, 0),
]  # fmt: skip


def windows_of(rows, lengths, start, size, padding):
    """Returns windows `[N, size * dim]`, with rows of `padding` around sequences."""
    above = max(-start, 0)
    windows = []
    for b, length in enumerate(lengths):
        first = sum(lengths[:b])
        for i in range(length):
            for at in range(i + start, i + start + size):
                if at < 0:
                    windows.append(padding[above + at])
                elif at < length:
                    windows.append(rows[first + at])
                else:
                    windows.append(padding[above + at - length])
    return np.reshape(windows, (len(rows), size * padding.shape[1]))


@pytest.mark.parametrize("dtype", FLOATS, ids=lambda dtype: dtype.name)
@pytest.mark.parametrize("lengths", LENGTHS, ids=str)
def test_conv_matches_numpy(lengths, dtype, rng):
    for filter_size, start, dim in FILTERS:
        first = -(filter_size // 2) if start is None else start
        around = max(-first, 0) + max(first + filter_size - 1, 0)
        shapes = [(sum(lengths), dim), (filter_size * dim, 5), (around, dim), 5]
        # Small integers: float32 sums are exact, then rounded once.
        rows, weight, padding, bias = (
            rng.integers(-4, 5, shape).astype(np.float64) for shape in shapes
        )
        for pad, b in ((None, bias), (padding, None), (0 * padding, None)):
            rows_around = 0 * padding if pad is None else pad
            windows = windows_of(rows, lengths, first, filter_size, rows_around)
            wanted = windows @ weight + (0 if b is None else b)
            got = lodestar.sequence.conv(
                ragged_of(tf.cast(rows, dtype), lengths),
                tf.cast(weight, dtype),
                filter_size,
                start=start,
                bias=b,
                padding=None if pad is None else tf.cast(pad, dtype),
            )
            assert got.dtype == dtype
            np.testing.assert_array_equal(
                got.flat_values.numpy(), wanted.astype(dtype.as_numpy_dtype)
            )
            assert got.row_lengths().numpy().tolist() == lengths


def test_both_keep_the_levels_and_kind_of_their_input():
    x = LoDTensor.from_lengths([[1.0], [2.0], [3.0]], [[2, 1], [1, 0, 2]])
    y = lodestar.sequence.conv(x, [[1.0], [10.0]], 2, start=0)
    assert isinstance(y, LoDTensor)
    assert y.values.numpy().tolist() == [[1], [32], [3]]
    assert [level.numpy().tolist() for level in y.lod] == [
        [0, 2, 3],
        [0, 1, 1, 3],
    ]
    y = lodestar.sequence.conv(x.to_ragged(), [[1.0], [10.0]], 2, start=0)
    assert y.to_list() == [[[[1]], []], [[[32], [3]]]]
    ids = tf.RaggedTensor.from_row_splits([5, 6], np.array([0, 2], np.int32))
    y = lodestar.sequence.enumerate(ids, 2)
    assert y.row_splits.dtype == tf.int32
    assert y.to_list() == [[[5, 6], [6, 0]]]


def test_unknown_dimensions_in_a_function():
    @tf.function(
        input_signature=[
            tf.RaggedTensorSpec([None, None, 2], tf.float32, 1),
            tf.TensorSpec([None, 3]),
            tf.RaggedTensorSpec([None, None], tf.int64, 1),
        ]
    )
    def both(x, weight, ids):
        y = lodestar.sequence.conv(x, weight, bias=tf.ones([3]))
        z = lodestar.sequence.enumerate(ids, 4)
        assert y.flat_values.shape.as_list() == [None, 3]
        assert z.flat_values.shape.as_list() == [None, 4]
        return y, z

    x = tf.RaggedTensor.from_row_lengths(tf.ones([3, 2]), [2, 0, 1])
    ids = tf.RaggedTensor.from_row_lengths(np.arange(3), [2, 0, 1])
    y, z = both(x, tf.ones([6, 3]), ids)
    assert y.to_list() == [[[5] * 3] * 2, [], [[3] * 3]]
    assert z.to_list() == [[[0, 1, 0, 0], [1, 0, 0, 0]], [], [[2, 0, 0, 0]]]


def test_ids_of_unknown_width():
    @tf.function(input_signature=[tf.RaggedTensorSpec([None] * 3, tf.int64, 1)])
    def windows(x):
        return lodestar.sequence.enumerate(x, 2)

    rows = tf.constant([[1], [2], [3]], tf.int64)
    x = tf.RaggedTensor.from_row_lengths(rows, [2, 1])
    assert windows(x).to_list() == [[[1, 2], [2, 0]], [[3, 0]]]
    wide = x.with_flat_values(tf.tile(rows, [1, 2]))
    with pytest.raises(tf.errors.InvalidArgumentError, match="squeeze dim"):
        windows(wide)


def test_rows_of_unknown_rank():
    @tf.function(input_signature=[tf.TensorSpec(None), tf.TensorSpec(None)])
    def conv(rows, weight):
        x = LoDTensor(rows, ([0, 1, 3],))
        return lodestar.sequence.conv(x, weight, 1).values

    assert conv(tf.ones([3, 2]), tf.ones([2, 1])).numpy().tolist() == [[2]] * 3
    with pytest.raises(tf.errors.InvalidArgumentError):
        conv(tf.ones([3, 2]), tf.ones([3, 1]))


@pytest.mark.parametrize("filter_size, start", [(3, None), (2, 1), (5, -1)])
def test_conv_gradients_are_numeric_ones_to_second_order(
    filter_size, start, rng
):
    rows = tf.constant(rng.normal(size=(3, 2)))
    weight = tf.constant(rng.normal(size=(filter_size * 2, 2)))
    bias = tf.constant(rng.normal(size=2))

    def conv(rows, weight, bias):
        x = tf.RaggedTensor.from_row_lengths(rows, [2, 0, 1])
        return lodestar.sequence.conv(
            x, weight, filter_size, start=start, bias=bias
        ).flat_values

    check_gradients(conv, rows, weight, bias)


@pytest.mark.parametrize("filter_size, start", [(2, 1), (5, -3)])
def test_gradients_of_padding(filter_size, start, rng):
    around = max(-start, 0) + max(start + filter_size - 1, 0)

    def conv(rows, weight, padding):
        x = tf.RaggedTensor.from_row_lengths(rows, [2, 0, 1])
        return lodestar.sequence.conv(
            x, weight, filter_size, start=start, padding=padding
        ).flat_values

    check_gradients(
        conv,
        tf.constant(rng.normal(size=(3, 2))),
        tf.constant(rng.normal(size=(filter_size * 2, 1))),
        tf.constant(rng.normal(size=(around, 2))),
    )


@pytest.mark.parametrize("lengths", [[], [0, 0]], ids=str)
def test_padding_of_nothing(lengths):
    padding = tf.ones([2, 2])
    with tf.GradientTape() as tape:
        tape.watch(padding)
        y = lodestar.sequence.conv(
            ragged_of(tf.zeros([0, 2]), lengths),
            tf.ones([6, 3]),
            padding=padding,
        )
    assert y.flat_values.shape == (0, 3)
    np.testing.assert_array_equal(
        tape.gradient(y.flat_values, padding), np.zeros([2, 2])
    )


def test_padding_of_unknown_shapes():
    @tf.function(
        input_signature=[
            tf.RaggedTensorSpec([None, None, None], tf.float32, 1),
            tf.TensorSpec(None),
            tf.TensorSpec(None),
        ]
    )
    def conv(x, weight, padding):
        return lodestar.sequence.conv(x, weight, padding=padding)

    x = tf.RaggedTensor.from_row_lengths([[1.0], [2.0], [4.0]], [2, 1])
    weight = tf.ones([3, 1])
    got = conv(x, weight, [[10.0], [20.0]])
    assert got.to_list() == [[[13], [23]], [[34]]]
    for padding in ([[10.0]], [[10.0, 1.0]] * 2, [1.0, 2.0]):
        with pytest.raises(tf.errors.InvalidArgumentError):
            conv(x, weight, padding)
    bad = tf.RaggedTensor.from_row_splits(
        x.flat_values, tf.constant([0, 2**62], tf.int64), validate=False
    )
    with pytest.raises(tf.errors.InvalidArgumentError, match="there are 3 ro"):
        conv(bad, weight, [[10.0], [20.0]])


@pytest.mark.parametrize("dtype", [tf.float16, tf.bfloat16, tf.float32])
def test_conv_gradients_of_shorter_floats(dtype, rng):
    rows = rng.integers(-3, 4, (90, 4))
    weight = rng.integers(-3, 4, (12, 2))
    upstream = rng.integers(-3, 4, (90, 2))

    def slopes(dtype):
        arguments = [tf.constant(rows, dtype), tf.constant(weight, dtype)]
        with tf.GradientTape() as tape:
            tape.watch(arguments)
            x = ragged_of(arguments[0], [50, 0, 40])
            y = lodestar.sequence.conv(x, arguments[1]).flat_values
        found = tape.gradient(y, arguments, tf.constant(upstream, dtype))
        assert [g.dtype for g in found] == [dtype] * 2
        return [tf.cast(g, tf.float64) for g in found]

    for short, exact in zip(slopes(dtype), slopes(tf.float64), strict=True):
        np.testing.assert_allclose(short, exact, rtol=8e-3)


@pytest.mark.parametrize("lengths", [[], [0, 0]], ids=str)
def test_conv_gradients_of_nothing(lengths):
    rows, weight = tf.zeros([0, 2]), tf.ones([6, 3])
    with tf.GradientTape() as tape:
        tape.watch([rows, weight])
        y = lodestar.sequence.conv(ragged_of(rows, lengths), weight)
    gradients = tape.gradient(y.flat_values, [rows, weight])
    assert gradients[0].shape == (0, 2)
    np.testing.assert_array_equal(gradients[1], np.zeros([6, 3]))


def test_invalid_arguments_are_refused():
    conv, enumerate_ = lodestar.sequence.conv, lodestar.sequence.enumerate
    x = tf.RaggedTensor.from_row_lengths(tf.ones([3, 2]), [2, 1])
    ids = tf.ragged.constant([[1, 2], [3]])
    weight = tf.ones([6, 4])
    for size in (0, -1, 1.5):
        message = f"must be an integer of at least 1, got {size}"
        with pytest.raises(ValueError, match="`win_size` " + message):
            enumerate_(ids, size)
        with pytest.raises(ValueError, match="`filter_size` " + message):
            conv(x, weight, size)
    with pytest.raises(ValueError, match="`stride` must be 1, got 2"):
        conv(x, weight, stride=2)
    with pytest.raises(ValueError, match="`start` must be .* got 4294967296"):
        conv(x, weight, start=2**32)
    with pytest.raises(
        ValueError, match=r"`weight` must have shape .*got \(4, 4\)"
    ):
        conv(x, tf.ones([4, 4]))
    with pytest.raises(
        ValueError, match=r"`bias` must have shape .*got \(3,\)"
    ):
        conv(x, weight, bias=tf.ones([3]))
    for rows in (1, 3):
        message = rf"`padding` must have shape \(2, 2\), got \({rows}, 2\)"
        with pytest.raises(ValueError, match=message):
            conv(x, weight, padding=tf.ones([rows, 2]))
    with pytest.raises(ValueError, match=r"shape \(5, 2\), got \(0, 2\)"):
        conv(x, weight, start=3, padding=tf.ones([0, 2]))
    with pytest.raises(ValueError, match=r"`x` must have rows \[N, dim\]"):
        conv(tf.ragged.constant([[1.0]]), weight)
    with pytest.raises(
        TypeError, match="dtype int32, but must be one of float16"
    ):
        conv(ids, weight)
    with pytest.raises(TypeError, match="RaggedTensor or LoDTensor"):
        conv(tf.ones([3, 2]), weight)
    with pytest.raises(
        TypeError, match="dtype float32, but must be one of int32"
    ):
        enumerate_(x, 2)
    with pytest.raises(ValueError, match=r"`x` must have rows of one id"):
        enumerate_(x.with_flat_values(tf.ones([3, 2], tf.int32)), 2)
    with pytest.raises(
        ValueError, match="`pad_value` must be an int.* got 0.5"
    ):
        enumerate_(ids, 2, 0.5)
    with pytest.raises(
        ValueError, match="`pad_value` must be .*, got 2147483648"
    ):
        enumerate_(ids, 2, 2**31)
    with pytest.raises(ValueError, match="`x` has no level"):
        enumerate_(LoDTensor([1], ()), 2)
