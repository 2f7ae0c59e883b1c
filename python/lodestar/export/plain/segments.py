"""Combines the rows of segments in the order of Lodestar's ops.

tf.math.unsorted_segment_sum adds rows in their order on a CPU, so sums are equal
bit for bit. A row whose segment id is the number of segments is skipped.
(TensorFlow also skips -1, but tf2onnx adds those rows to the last segment.)
"""

import tensorflow as tf

from lodestar._checks import after, assert_true


def checked(row_splits: tf.Tensor, count: tf.Tensor, what: str) -> tf.Tensor:
    """Returns `row_splits`, with a check that they split `count` of `what`."""
    good = tf.logical_and(
        tf.logical_and(row_splits[0] == 0, row_splits[-1] == count),
        tf.reduce_all(row_splits[1:] >= row_splits[:-1]),
    )
    check = assert_true(
        good,
        [
            f"`row_splits` must ascend from 0 to the number of {what},",
            count,
            "but are:",
            row_splits,
        ],
    )
    return after(check, row_splits)


def segment_ids(row_splits: tf.Tensor, count: tf.Tensor) -> tf.Tensor:
    """Returns the segment of each of `count` rows, int64 `[count]`."""
    # tf.repeat would create a matrix of segments x longest segment, and tf2onnx
    # does not convert tf.searchsorted.
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
    """Returns maxima `[count, ...]`; any value for empty segments."""

    def maximum(x: tf.Tensor) -> tf.Tensor:
        return tf.math.unsorted_segment_max(x, segments, count + 1)[:count]

    found = maximum(values)
    if not values.dtype.is_floating:
        return found
    # The op starts with the least finite number, but in ONNX with -inf, which
    # tf2onnx multiplies by 0 where a tf.where does not select it.
    found = tf.maximum(found, values.dtype.min)
    finite = maximum(tf.cast(values > -float("inf"), values.dtype))
    return tf.where(tf.equal(finite, 0), -float("inf"), found)
