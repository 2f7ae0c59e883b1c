"""Averages of the largest numbers in rows of ragged matrices."""

from collections.abc import Sequence

import tensorflow as tf

from lodestar._arguments import explained
from lodestar._checks import FLOAT_DTYPES, check_count
from lodestar._library import gen_ops
from lodestar.ops import lod_ops
from lodestar.ops.sequence_op import takes_keras_tensors
from lodestar.ragged import LoDTensor
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
    after every number.

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
    row_rows, levels = nesting.flatten("row", row)
    _, col_splits = nesting.flatten("col", col)
    with tf.name_scope(name or "sequence_topk_avg_pooling"):
        row_splits = lod_ops.lod_validate(
            tf.shape(row_rows, out_type=tf.int64)[0], levels
        )
        values = nesting.one_a_row("x", values, "number")
        index = gen_ops.lodestar_sequence_topk(
            values,
            x_splits[-1],
            row_splits[-1],
            col_splits[-1],
            channel_num,
            max(topks),
        )
        compute = tf.float32 if values.dtype.size == 2 else values.dtype
        # The zero at the end is for missing numbers.
        padded = tf.pad(tf.cast(values, compute), [[0, 1]])
        missing = tf.shape(values, out_type=tf.int64)[0]
        largest = tf.gather(padded, tf.where(index < 0, missing, index))
        averages = tf.stack(
            [tf.reduce_sum(largest[..., :k], -1) / k for k in topks], axis=-1
        )
        averages = tf.reshape(averages, [-1, channel_num * len(topks)])
        return nesting.pack_like(
            row, tf.cast(averages, values.dtype), row_splits
        )
