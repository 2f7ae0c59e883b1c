"""lodestar.sequence.topk_avg_pooling against NumPy, gradients and errors."""

import numpy as np
import pytest
import tensorflow as tf
from batches import check_gradients, ragged_of

import lodestar
from lodestar.ragged import LoDTensor

topk_avg_pooling = lodestar.sequence.topk_avg_pooling


def matrices(rows, cols, channels, rng):
    """Returns x of random values, and ragged `row` and `col`."""
    lengths = np.array(rows, np.int64) * np.array(cols, np.int64) * channels
    # Few different values, so that there are ties.
    x = rng.integers(-9, 9, lengths.sum()).astype(np.float64)

    return (
        ragged_of(x, lengths),
        ragged_of(np.zeros(sum(rows)), rows),
        ragged_of(np.zeros([sum(cols), 3]), cols),
    )


def reference(x, rows, cols, topks, channels):
    """Returns the averages `[R, channels * K]`."""
    out = []
    begin = 0
    for r, c in zip(rows, cols, strict=True):
        cube = x[begin : begin + channels * r * c].reshape(channels, r, c)
        begin += channels * r * c
        ordered = -np.sort(-cube, axis=2)
        averages = [ordered[..., :k].sum(2) / k for k in topks]
        out.append(np.stack(averages, -1).transpose(1, 0, 2))
    return np.concatenate(
        [a.reshape(-1, channels * len(topks)) for a in [np.zeros(0), *out]]
    )


@pytest.mark.parametrize(
    "dtype", [tf.float16, tf.bfloat16, tf.float32, tf.float64]
)
@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize(
    "rows, cols",
    [
        ([], []),
        ([0], [0]),
        ([2], [0]),
        ([0, 2], [3, 1]),
        ([3, 0, 1, 40], [2, 0, 7, 30]),
    ],
    ids=str,
)
def test_matches_numpy(rows, cols, channels, dtype, rng):
    x, row, col = matrices(rows, cols, channels, rng)
    for topks in ([1], [1, 3, 5], [9, 2], [2, 2]):
        wanted = reference(x.flat_values.numpy(), rows, cols, topks, channels)
        for values in (x.flat_values, x.flat_values[:, tf.newaxis]):
            got = topk_avg_pooling(
                x.with_flat_values(tf.cast(values, dtype)),
                row,
                col,
                topks,
                channels,
            )
            assert got.dtype == dtype
            np.testing.assert_allclose(
                got.flat_values.numpy().astype(np.float64), wanted, rtol=8e-3
            )
            np.testing.assert_array_equal(got.row_splits, row.row_splits)


@pytest.mark.parametrize("shape", [[None], [None, None]])
def test_kinds_levels_and_unknown_dimensions(shape):
    spec = LoDTensor.Spec(shape)
    row_spec = LoDTensor.Spec(None, num_levels=2)

    @tf.function(input_signature=[spec, row_spec, spec])
    def pooled(x, row, col):
        y = topk_avg_pooling(x, row, col, [1, 2], 1)
        assert y.values.shape.as_list() == [None, 2]
        return y

    numbers = np.array([4.0, 2.0, 9.0, 1.0, 3.0, 5.0], np.float32)
    numbers = numbers.reshape([-1] + [1] * (len(shape) - 1))
    x = LoDTensor.from_lengths(numbers, [[6, 0]])
    row = LoDTensor.from_lengths(tf.zeros([2, 7]), [[1, 1], [2, 0]])
    col = LoDTensor.from_lengths(tf.zeros([4, *numbers.shape[1:]]), [[3, 1]])
    y = pooled(x, row, col)
    assert y.values.numpy().tolist() == [[9, 6.5], [5, 4]]
    assert [level.numpy().tolist() for level in y.lod] == [[0, 1, 2], [0, 2, 2]]


def test_gradients_are_numeric_ones(rng):
    rows, cols, channels = [2, 0, 1], [3, 2, 2], 2
    x, row, col = matrices(rows, cols, channels, rng)
    values = tf.constant(rng.permutation(x.flat_values.shape[0]) * 0.5)

    def pooled(values):
        return topk_avg_pooling(
            x.with_flat_values(values), row, col, [1, 2, 5], channels
        ).flat_values

    check_gradients(pooled, values, atol=1e-2)


@pytest.mark.parametrize(
    "numbers, k, wanted",
    [
        ([5.0, 7.0, 7.0, 7.0], 2, [0, 0.5, 0.5, 0]),
        ([-0.0, 0.0, -1.0, -2.0], 1, [1, 0, 0, 0]),
    ],
)
def test_of_equal_numbers_the_first_gets_the_gradient(numbers, k, wanted):
    x = tf.constant(numbers)
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = topk_avg_pooling(
            tf.RaggedTensor.from_row_lengths(x, [4]),
            tf.ragged.constant([[0]]),
            tf.ragged.constant([[0] * 4]),
            [k],
            1,
        ).flat_values
    assert tape.gradient(y, x).numpy().tolist() == wanted


def test_nan_and_infinity():
    nan, inf = np.nan, np.inf
    row, col = tf.ragged.constant([[0]]), tf.ragged.constant([[0] * 4])

    def pooled(numbers, topks):
        x = tf.ragged.constant([numbers])
        return topk_avg_pooling(x, row, col, topks, 1).flat_values[0]

    np.testing.assert_array_equal(
        pooled([nan, 1.0, nan, 3.0], [1, 2, 3]), [3, 2, nan]
    )
    np.testing.assert_array_equal(
        pooled([-inf, inf, 1.0, 2.0], [1, 3, 4]), [inf, inf, nan]
    )


def test_invalid_arguments_are_refused():
    x = tf.ragged.constant([[1.0, 2.0]])
    row, col = tf.ragged.constant([[0]]), tf.ragged.constant([[0, 0]])
    for changed, error, message in (
        (dict(topks=[]), ValueError, "`topks` must have at least one"),
        (
            dict(topks=[1, 0]),
            ValueError,
            r"`topks\[1\]` must be .*, got 0",
        ),
        (dict(channel_num=0), ValueError, "`channel_num` must be .*, got 0"),
        (
            dict(topks=[2**63]),
            ValueError,
            r"`topks\[0\]` must be .*, got 9223372036854775",
        ),
        (
            dict(x=tf.cast(x, tf.int32)),
            TypeError,
            "`x` has dtype int32, but must be",
        ),
        (dict(row=tf.ones([1])), TypeError, "`row` must be a RaggedTensor or"),
        (dict(col=LoDTensor([1.0], ())), ValueError, "`col` has no level"),
        (
            dict(x=tf.RaggedTensor.from_row_lengths([[1.0, 2.0]], [1])),
            ValueError,
            "`x` must have rows of one number",
        ),
        (
            dict(channel_num=2),
            tf.errors.InvalidArgumentError,
            "sequence 0 of `x` has 2 values, expected 2 channels of 1 rows of 2",
        ),
        (
            dict(col=tf.ragged.constant([[0, 0], [0]])),
            tf.errors.InvalidArgumentError,
            "`col` and `x` must have equally many sequences, got 2 and 1",
        ),
        (
            dict(row=LoDTensor([1.0], ([0, 5],))),
            tf.errors.InvalidArgumentError,
            "ends at 5, but there are 1 rows",
        ),
    ):
        arguments = {
            "x": x, "row": row, "col": col, "topks": [1], "channel_num": 1,
            **changed,
        }  # fmt: skip
        with pytest.raises(error, match=message):
            topk_avg_pooling(**arguments)
