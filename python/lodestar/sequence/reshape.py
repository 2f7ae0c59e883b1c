"""Sequences with rows of another width."""

import tensorflow as tf

from lodestar._checks import after, assert_none, check_count
from lodestar.ops.sequence_op import takes_keras_tensors
from lodestar.ragged.arguments import validated
from lodestar.sequence import nesting
from lodestar.sequence.nesting import Nested


@takes_keras_tensors
def reshape(
    x: Nested,
    new_dim: int,
    *,
    level: int = -1,
    name: str | None = None,
) -> Nested:
    """Regroups each sequence into rows of `new_dim`, like Paddle's `sequence_reshape`.

    Copies no rows.

    >>> x = tf.RaggedTensor.from_row_lengths([[1, 2], [3, 4], [5, 6]], [2, 1])
    >>> reshape(x, 1).row_lengths().numpy()
    array([4, 2])
    >>> sentences = tf.ragged.constant([[[1, 2, 3], [4]], [[5, 6]]])
    >>> reshape(sentences, 2, level=0).to_list()
    [[[1, 2], [3, 4]], [[5, 6]]]

    Args:
        x: RaggedTensor or LoDTensor of any dtype, with rows `[N, ...]`.
        new_dim: Width of a row of the result, 1 or more.
        level: The level whose units are regrouped, each with all of its rows: 0
            for the outermost; -1 is the last. The result has no levels below,
            because its rows may cross the units of these.
        name: Name of the op.

    Returns:
        Rows `[M, new_dim]`, nested like x down to `level`. Differentiable in x.

    Raises:
        TypeError: x has another type.
        ValueError: x has no such level, or `new_dim` is below 1.
        tf.errors.InvalidArgumentError: A sequence does not fill rows of
            `new_dim` (names the sequence), or splits are invalid.
    """
    check_count("new_dim", new_dim)
    rows, splits = nesting.flatten("x", x)
    with tf.name_scope(name or "sequence_reshape"):
        rows, splits = validated(rows, splits)
        units, level = nesting.rows_of_units(splits, level)
        dim = tf.reduce_prod(tf.shape(rows, tf.int64)[1:])
        lengths = nesting.lengths(units)
        check = assert_none(
            tf.not_equal(lengths * dim % new_dim, 0),
            lambda b: [
                *("sequence ", b, " has ", tf.gather(lengths, b), " rows of "),
                *(dim, " = ", tf.gather(lengths, b) * dim, " values, not a "),
                f"multiple of `new_dim`={new_dim}.",
            ],
        )
        ends = after(check, units * dim // new_dim)
        reshaped = tf.reshape(rows, tf.stack([ends[-1], new_dim]))
        reshaped = tf.ensure_shape(reshaped, [None, new_dim])
        return nesting.pack_like(x, reshaped, (*splits[:level], ends))
