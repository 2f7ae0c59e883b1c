"""Reversal of sequences."""

import tensorflow as tf

from lodestar._checks import MOVED_DTYPES
from lodestar.ops import sequence_ops
from lodestar.ops.sequence_op import takes_keras_tensors
from lodestar.ragged.arguments import validated
from lodestar.sequence import nesting
from lodestar.sequence.nesting import Nested

_DTYPES = (*MOVED_DTYPES, tf.complex64, tf.complex128)


@takes_keras_tensors
def reverse(x: Nested, level: int = -1, *, name: str | None = None) -> Nested:
    """Reverses each sequence of a level, like Paddle's `sequence_reverse`.

    >>> reverse(tf.ragged.constant([[1, 2], [], [3, 4, 5]])).to_list()
    [[2, 1], [], [5, 4, 3]]
    >>> reverse(tf.ragged.constant([[[1, 2], [3]], [[4]]]), level=0).to_list()
    [[[3], [1, 2]], [[4]]]

    Args:
        x: RaggedTensor or LoDTensor of numbers, bool or string, with rows
            `[N, ...]`.
        level: The level whose units are reversed: 0 for the outermost; -1 is the
            last, of rows. The units of the next level keep their rows in order.
        name: Name of the op.

    Returns:
        The kind of x, and for the last level the splits of x. Differentiable
        in x.

    Raises:
        TypeError: x has another type or dtype.
        ValueError: x has no such level.
        tf.errors.InvalidArgumentError: Splits are invalid.
    """
    values, splits = nesting.flatten("x", x, _DTYPES)
    with tf.name_scope(name or "sequence_reverse"):
        level = nesting.check_level("level", level, len(splits))
        values, splits = validated(values, splits)
        units = splits[level]
        # The first and the last number of a sequence have the same sum as each
        # pair of numbers that change places.
        sums = sequence_ops.sequence_expand_as(
            units[:-1] + units[1:] - 1, units
        )
        order = sums - tf.range(units[-1])
        rows, below = nesting.take_units(
            values, splits[level + 1 :], order, inverse=order
        )
        return nesting.pack_like(x, rows, (*splits[: level + 1], *below))
