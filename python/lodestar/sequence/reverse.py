"""Reversal of sequences."""

import tensorflow as tf

from lodestar._checks import MOVED_DTYPES, after
from lodestar.ops import lod_ops, sequence_ops
from lodestar.ops.sequence_op import takes_keras_tensors
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
        above, below = splits[: level + 1], splits[level + 1 :]
        if not below:
            rows = sequence_ops.sequence_reverse(values, splits[-1])
            return nesting.pack_like(x, rows, splits)
        # This checks all splits.
        values = after(lod_ops.lod_to_absolute(splits), values)
        units = tf.RaggedTensor.from_nested_row_splits(
            values, below, validate=False
        )
        order = sequence_ops.sequence_reverse(
            tf.range(units.nrows()), splits[level]
        )
        units = tf.gather(units, order)
        return nesting.pack_like(
            x, units.flat_values, (*above, *units.nested_row_splits)
        )
