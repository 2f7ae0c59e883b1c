"""Sequences with rows of another width."""

import tensorflow as tf

from lodestar._checks import check_count
from lodestar.ops import sequence_ops
from lodestar.ops.sequence_op import takes_keras_tensors
from lodestar.sequence import nesting
from lodestar.sequence.nesting import Nested


@takes_keras_tensors
def reshape(
    x: Nested,
    new_dim: int,
    *,
    name: str | None = None,
) -> Nested:
    """Regroups each sequence into rows of `new_dim`, like Paddle's `sequence_reshape`.

    Copies no rows.

    >>> x = tf.RaggedTensor.from_row_lengths([[1, 2], [3, 4], [5, 6]], [2, 1])
    >>> reshape(x, 1).row_lengths().numpy()
    array([4, 2])

    Args:
        x: RaggedTensor or LoDTensor of any dtype, with rows `[N, ...]`.
        new_dim: Width of a row of the result, 1 or more.
        name: Name of the op.

    Returns:
        Rows `[M, new_dim]`, nested like x. Differentiable in x.

    Raises:
        TypeError: x has another type.
        ValueError: x has no level, or `new_dim` is below 1.
        tf.errors.InvalidArgumentError: A sequence does not fill rows of
            `new_dim` (names the sequence), or splits are invalid.
    """
    check_count("new_dim", new_dim)
    rows, splits = nesting.flatten("x", x)
    with tf.name_scope(name or "sequence_reshape"):
        reshaped, reshaped_splits = sequence_ops.sequence_reshape(
            rows, splits[-1], new_dim
        )
        return nesting.pack_like(x, reshaped, (*splits[:-1], reshaped_splits))
