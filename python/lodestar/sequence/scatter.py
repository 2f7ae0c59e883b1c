"""Scattered addition of sequences into the rows of a matrix."""

from typing import Any

import tensorflow as tf

from lodestar._checks import (
    FLOAT_DTYPES,
    INT_DTYPES,
    after,
    assert_none,
    check_dtype,
)
from lodestar.ops import sequence_ops
from lodestar.ops.sequence_op import takes_keras_tensors
from lodestar.ragged import LoDTensor
from lodestar.ragged.arguments import validated
from lodestar.sequence import nesting

_DTYPES = FLOAT_DTYPES + INT_DTYPES


@takes_keras_tensors
def scatter(
    x: tf.Tensor,
    index: tf.RaggedTensor | LoDTensor,
    updates: tf.RaggedTensor | LoDTensor,
    *,
    name: str | None = None,
) -> tf.Tensor:
    """Adds sequence b of `updates` to row b of x, at the columns of `index`.

    Like in Paddle's `sequence_scatter`, duplicates accumulate, and an empty sequence
    leaves its row unchanged.

    >>> index, updates = [[0, 2, 2], [1]], [[1.0, 2.0, 3.0], [4.0]]
    >>> scatter(
    ...     tf.zeros([2, 3]),
    ...     tf.ragged.constant(index),
    ...     tf.ragged.constant(updates),
    ... ).numpy()
    array([[1., 0., 5.],
           [0., 4., 0.]], dtype=float32)

    Args:
        x: `[B, D, ...]` of float16, bfloat16, float32, float64, int32 or int64.
            16-bit floats are summed in float32.
        index: RaggedTensor or LoDTensor of int32 or int64 in `[0, D)`, rows
            `[P]` or `[P, 1]` in B innermost sequences.
        updates: RaggedTensor or LoDTensor of the dtype of x, with the splits of
            `index`; rows `[P, ...]`, or also `[P, 1]` if x is `[B, D]`.
        name: Name of the op.

    Returns:
        The shape and dtype of x. Differentiable in x and updates.

    Raises:
        TypeError: `index` or `updates` has another type or dtype.
        ValueError: Numbers of levels differ, rows do not fit, or x has a rank
            below 2.
        tf.errors.InvalidArgumentError: An index is out of range (names it and
            its sequence), splits differ or are invalid, there are not B
            sequences, or rows do not fit x at run time.
    """
    x = check_dtype("x", tf.convert_to_tensor(x), _DTYPES)
    if x.shape.rank is not None and x.shape.rank < 2:
        raise ValueError(f"`x` must have rank 2 or more, got shape {x.shape}.")
    (columns, rows), splits = nesting.aligned(
        {"index": index, "updates": updates}
    )
    check_dtype("index", columns, INT_DTYPES)
    check_dtype("updates", rows, (x.dtype,))
    nesting.check_one_a_row("index", columns, "number")
    if x.shape.rank == 2 and rows.shape[1:].is_compatible_with([1]):
        rows = nesting.one_a_row("updates", rows, "number")
    if x.shape.rank is not None and not rows.shape[1:].is_compatible_with(
        x.shape[2:]
    ):
        raise ValueError(
            f"`updates` must have rows of shape {x.shape[2:]} for `x` of shape "
            f"{x.shape}, got {rows.shape[1:]}."
        )
    with tf.name_scope(name or "sequence_scatter"):
        shape = tf.shape(x, out_type=tf.int64)
        rows = after(_check_fit(tf.shape(rows, tf.int64), shape), rows)
        columns = nesting.one_a_row("index", columns, "number")
        columns = tf.cast(columns, tf.int64)
        columns, (*_, splits) = validated(columns, splits)
        count = tf.size(splits, tf.int64) - 1
        check = assert_none(
            tf.not_equal(shape[0], count),
            lambda _: [
                *("`x` has ", shape[0], " rows, but `index` has ", count),
                " sequences.",
            ],
        )
        numbers = tf.range(after(check, count))
        numbers = sequence_ops.sequence_expand_as(numbers, splits)
        check = assert_none(
            (columns < 0) | (columns >= shape[1]),
            lambda p: [
                *("`index[", p, "]` must be in [0, ", shape[1], "), got "),
                *(
                    tf.gather(columns, p),
                    " in sequence ",
                    tf.gather(numbers, p),
                ),
                ".",
            ],
        )
        places = after(check, numbers * shape[1] + columns)
        compute = tf.float32 if x.dtype.size == 2 else x.dtype
        sums = tf.math.unsorted_segment_sum(
            tf.cast(rows, compute), places, shape[0] * shape[1]
        )
        summed = tf.cast(x, compute) + tf.reshape(sums, shape)
        summed = tf.cast(summed, x.dtype)
        return tf.ensure_shape(summed, x.shape)


def _check_fit(updates: tf.Tensor, x: tf.Tensor) -> Any:
    """Returns a check, for `after`, of shapes [P, ...] and [B, D, ...].

    Or [P, 1] and [B, D].
    """
    row, wanted = updates[1:], x[2:]
    common = tf.minimum(tf.size(row), tf.size(wanted))
    fits = tf.equal(tf.size(row), tf.size(wanted)) & tf.reduce_all(
        tf.equal(row[:common], wanted[:common])
    )
    is_column = tf.equal(tf.size(wanted), 0) & (tf.size(row) < 2)
    fits |= is_column & tf.reduce_all(tf.equal(row, 1))
    return assert_none(
        tf.logical_not(fits),
        lambda _: [
            *(
                "`updates` has shape [",
                updates,
                "], which does not match `x` of ",
            ),
            *("shape [", x, "]."),
        ],
    )
