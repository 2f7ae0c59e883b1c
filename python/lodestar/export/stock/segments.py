"""Rows of segments combined by stock ops, in the order of our own ops.

The rows of a segment are added one after another, in their order, as
tf.math.unsorted_segment_sum does on a CPU: sums are the same bit for bit. A
segment id of -1 is in no segment.
"""

import tensorflow as tf

from lodestar._checks import after


def checked(row_splits: tf.Tensor, count: tf.Tensor, what: str) -> tf.Tensor:
    """`row_splits`; InvalidArgumentError if they are none of `count` `what`."""
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
    """The sequence of each of `count` rows, int64 `[count]`."""
    # tf.repeat would make a matrix of sequences and the longest one.
    return (
        tf.searchsorted(
            row_splits, tf.range(count), side="right", out_type=tf.int64
        )
        - 1
    )


def maxima(
    values: tf.Tensor, segments: tf.Tensor, count: tf.Tensor
) -> tf.Tensor:
    """Maxima `[count, ...]` of `values` `[N, ...]`; any for an empty segment."""
    found = tf.math.unsorted_segment_max(values, segments, count)
    if not values.dtype.is_floating:
        return found
    # The op begins with the least finite number.
    finite = tf.math.unsorted_segment_max(
        tf.cast(values > -float("inf"), tf.int32), segments, count
    )
    return tf.where(finite > 0, found, -float("inf"))
