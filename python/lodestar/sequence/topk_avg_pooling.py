"""Averages of the largest numbers in rows of ragged matrices."""

from collections.abc import Sequence

import tensorflow as tf

from lodestar._arguments import explained
from lodestar._checks import FLOAT_DTYPES, after, assert_none, check_count
from lodestar.ops import sequence_ops
from lodestar.ops.sequence_op import takes_keras_tensors
from lodestar.ragged import LoDTensor, levels
from lodestar.ragged.arguments import validated
from lodestar.sequence import nesting
from lodestar.sequence.nesting import Nested


@explained()
@takes_keras_tensors
def topk_avg_pooling(
    x: Nested,
    row: tf.RaggedTensor | LoDTensor,
    col: tf.RaggedTensor | LoDTensor,
    topks: Sequence[int],
    channel_num: int,
    *,
    name: str | None = None,
) -> Nested:
    """Averages the k largest numbers in each row of each matrix.

    Like Paddle's `sequence_topk_avg_pooling`, it is made for matrices that compare each
    word of a document with each word of another. Sequence b of x holds `channel_num`
    matrices in row-major order, one after another, with as many rows as sequence b of
    `row` and as many columns as sequence b of `col`. A row with fewer than k numbers is
    still divided by k. Of equal numbers the first wins and gets the gradient. NaN comes
    after every number. Rows are padded to the length of the longest one.

    >>> x = tf.ragged.constant([[4.0, 2.0, 9.0, 1.0, 3.0, 5.0]])
    >>> row, col = tf.ragged.constant([[0, 0]]), tf.ragged.constant([[0, 0, 0]])
    >>> topk_avg_pooling(x, row, col, [1, 2], 1).to_list()
    [[[9.0, 6.5], [5.0, 4.0]]]

    Args:
        x: RaggedTensor or LoDTensor of float16, bfloat16, float32 or float64,
            with rows `[N]` or `[N, 1]`. 16-bit floats are summed in float32.
        row: RaggedTensor or LoDTensor; only its splits are read.
        col: RaggedTensor or LoDTensor; only its splits are read.
        topks: Values of k, each 1 or more, in any order.
        channel_num: Number of matrices in a sequence of x.
        name: Name of the op.

    Returns:
        `[R, channel_num * len(topks)]`, nested like `row`: for each of its R
        rows, the averages of each channel in the order of `topks`.
        Differentiable in x.

    Raises:
        TypeError: An input has another type or dtype.
        ValueError: An input has no level, x has other rows, `topks` is empty,
            or a number is below 1.
        tf.errors.InvalidArgumentError: A sequence of x does not have the length
            of its matrices (names it), numbers of sequences differ, or splits
            are invalid.
    """
    topks = list(topks)
    if not topks:
        raise ValueError("`topks` must have at least one number, got [].")
    for i, k in enumerate(topks):
        check_count(f"topks[{i}]", k)
    check_count("channel_num", channel_num)
    values, x_splits = nesting.flatten("x", x, FLOAT_DTYPES)
    nesting.check_one_a_row("x", values, "number")
    row_rows, row_lod = nesting.flatten("row", row)
    col_rows, col_lod = nesting.flatten("col", col)
    with tf.name_scope(name or "sequence_topk_avg_pooling"):
        values = nesting.one_a_row("x", values, "number")
        values, (*_, x_splits) = validated(values, x_splits)
        _, row_lod = validated(row_rows, row_lod)
        _, (*_, col_splits) = validated(col_rows, col_lod)
        checks = [
            nesting.check_same_number("row", row_lod[-1], "x", x_splits),
            nesting.check_same_number("col", col_splits, "x", x_splits),
        ]
        x_splits = after(checks, x_splits)
        lengths = nesting.lengths(x_splits)
        heights = nesting.lengths(row_lod[-1])
        widths = nesting.lengths(col_splits)
        check = assert_none(
            tf.not_equal(lengths, channel_num * heights * widths),
            lambda b: [
                *("sequence ", b, " of `x` has ", tf.gather(lengths, b)),
                f" values, expected {channel_num} channels of ",
                *(
                    tf.gather(heights, b),
                    " rows of ",
                    tf.gather(widths, b),
                    ".",
                ),
            ],
        )
        heights = after(check, heights)
        # The rows of all matrices, in the order of x.
        row_splits = levels.offsets(channel_num * heights)
        averages = _averages(
            values,
            levels.offsets(sequence_ops.sequence_expand_as(widths, row_splits)),
            topks,
        )
        # From the order of channels and rows to that of rows and channels.
        first, step = (
            sequence_ops.sequence_expand_as(x, row_lod[-1])[:, tf.newaxis]
            for x in (row_splits[:-1] - row_lod[-1][:-1], heights)
        )
        number = tf.range(row_lod[-1][-1])[:, tf.newaxis]
        channel = tf.range(channel_num, dtype=tf.int64)
        averages = tf.gather(averages, first + number + step * channel)
        averages = tf.reshape(averages, [-1, channel_num * len(topks)])
        return nesting.pack_like(row, averages, row_lod)


def _averages(
    values: tf.Tensor, splits: tf.Tensor, topks: Sequence[int]
) -> tf.Tensor:
    """Returns the averages `[rows, len(topks)]` of the largest values of rows."""
    compute = tf.float32 if values.dtype.size == 2 else values.dtype
    wide = tf.cast(values, compute)
    # top_k takes rows of one length, and does not define the place of NaN.
    keys = _keys(wide)
    lengths = nesting.lengths(splits)
    longest = tf.reduce_max(tf.concat([lengths, [max(topks)]], 0))
    padded, _ = sequence_ops.sequence_pad(
        keys, splits, tf.constant(keys.dtype.min, keys.dtype), longest
    )
    places = tf.math.top_k(padded, max(topks)).indices
    places = tf.cast(places, tf.int64)
    # The zero at the end is for missing numbers.
    places = tf.where(
        places < lengths[:, tf.newaxis],
        places + splits[:-1, tf.newaxis],
        splits[-1],
    )
    largest = tf.gather(tf.pad(wide, [[0, 1]]), places)
    averages = [tf.reduce_sum(largest[:, :k], -1) / k for k in topks]
    return tf.cast(tf.stack(averages, -1), values.dtype)


def _keys(values: tf.Tensor) -> tf.Tensor:
    """Returns integers in the order of floats, with NaN before all numbers."""
    integer = tf.int64 if values.dtype == tf.float64 else tf.int32
    bits = tf.bitcast(values, integer)
    # The bits of negative numbers descend, and -0 equals 0.
    keys = tf.where(bits < 0, tf.bitwise.bitwise_xor(bits, integer.max), bits)
    keys = tf.where(tf.equal(values, 0), tf.zeros([], integer), keys)
    return tf.where(tf.math.is_nan(values), integer.min + 1, keys)
