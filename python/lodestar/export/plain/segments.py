"""Rows of segments combined by plain TensorFlow, in the order of our own ops.

The rows of a segment are added one after another, in their order, as
tf.math.unsorted_segment_sum does on a CPU: sums are the same bit for bit. A row
whose segment id is the number of segments is in no segment. (TensorFlow skips
ids of -1 as well, but tf2onnx adds their rows to the last segment.)
"""

import tensorflow as tf

from lodestar._checks import after


def checked(row_splits: tf.Tensor, count: tf.Tensor, what: str) -> tf.Tensor:
    """Returns `row_splits` after checking that they split `count` `what`.

    Raises:
        tf.errors.InvalidArgumentError: they do not.
    """
    good = tf.logical_and(
        tf.logical_and(row_splits[0] == 0, row_splits[-1] == count),
        tf.reduce_all(row_splits[1:] >= row_splits[:-1]),
    )
    check = tf.debugging.Assert(
        good,
        [
            f"`row_splits` do not ascend from 0 to the number of {what},",
            count,
            "but are:",
            row_splits,
        ],
    )
    return after(check, row_splits)


def segment_ids(row_splits: tf.Tensor, count: tf.Tensor) -> tf.Tensor:
    """Returns the sequence of each of `count` rows, int64 `[count]`."""
    # tf.repeat would make a matrix of sequences and the longest one, and
    # tf2onnx does not convert tf.searchsorted.
    ends = tf.math.unsorted_segment_sum(
        tf.ones_like(row_splits[1:]), row_splits[1:], count + 1
    )
    return tf.cumsum(ends[:count])


def sums(values: tf.Tensor, segments: tf.Tensor, count: tf.Tensor) -> tf.Tensor:
    """Returns the sums `[count, ...]` of `values` `[N, ...]`."""
    return tf.math.unsorted_segment_sum(values, segments, count + 1)[:count]


def maxima(
    values: tf.Tensor, segments: tf.Tensor, count: tf.Tensor
) -> tf.Tensor:
    """Returns maxima `[count, ...]` of `values` `[N, ...]`.

    An empty segment has any number.
    """

    def maximum(numbers: tf.Tensor) -> tf.Tensor:
        return tf.math.unsorted_segment_max(numbers, segments, count + 1)[
            :count
        ]

    found = maximum(values)
    if not values.dtype.is_floating:
        return found
    # The op begins with the least finite number, and in ONNX with -inf, which
    # tf2onnx multiplies by 0 where a tf.where does not choose it.
    found = tf.maximum(found, values.dtype.min)
    finite = maximum(tf.cast(values > -float("inf"), values.dtype))
    return tf.where(tf.equal(finite, 0), -float("inf"), found)
