"""Averages of the largest numbers in rows of uneven matrices."""

from collections.abc import Sequence

import tensorflow as tf

from lodestar._checks import FLOAT_DTYPES, check_count
from lodestar._library import gen_ops
from lodestar.ops import lod_ops
from lodestar.ops.sequence_op import takes_keras_tensors
from lodestar.ragged import LoDTensor
from lodestar.sequence import nesting
from lodestar.sequence.nesting import Nested


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

    The semantics of Paddle's `sequence_topk_avg_pooling`, made for the
    matrices that compare each word of a text with each word of another.
    Sequence b of x holds `channel_num` matrices one after the other, each row
    by row, of as many rows as sequence b of `row` is long and as many columns as
    that of `col`. A row of fewer than k numbers is divided by k all the same.
    Of equal numbers the first counts, and gets the gradient; NaN comes after
    every number.

    >>> x = tf.ragged.constant([[4.0, 2.0, 9.0, 1.0, 3.0, 5.0]])
    >>> row, col = tf.ragged.constant([[0, 0]]), tf.ragged.constant([[0, 0, 0]])
    >>> topk_avg_pooling(x, row, col, [1, 2], 1).to_list()
    [[[9.0, 6.5], [5.0, 4.0]]]

    Args:
        x: RaggedTensor or LoDTensor of float16, bfloat16, float32 or float64;
            `flat_values` (or `values`) `[N]` or `[N, 1]`. 16-bit floats are
            summed in float32.
        row: RaggedTensor or LoDTensor; only its nesting counts.
        col: RaggedTensor or LoDTensor; only its nesting counts.
        topks: The k, each 1 or more, in any order.
        channel_num: Matrices in a sequence of x.
        name: A name for the op.

    Returns:
        `[R, channel_num * len(topks)]`, nested as `row` is: for each of its R
        rows the averages of the first channel in the order of `topks`, then
        those of the next one. Differentiable in x.

    Raises:
        TypeError: an input is neither, or x is of another dtype.
        ValueError: an input has no level; x has other rows; `topks` are empty
            or below 1; another `channel_num`.
        tf.errors.InvalidArgumentError: a sequence of x that is not as long as
            its matrices (names it); inputs with other numbers of sequences;
            levels that do not nest.
    """
    topks = list(topks)
    if not topks:
        raise ValueError("`topks` is empty, wanted at least one number")
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
        # What a row lacks is the zero at the end.
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
