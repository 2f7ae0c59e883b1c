"""Reversal of sequences."""

import tensorflow as tf

from lodestar._checks import MOVED_DTYPES
from lodestar.ops import sequence_ops
from lodestar.ops.sequence_op import takes_keras_tensors
from lodestar.sequence import nesting
from lodestar.sequence.nesting import Nested

_DTYPES = (*MOVED_DTYPES, tf.complex64, tf.complex128)


@takes_keras_tensors
def reverse(x: Nested, *, name: str | None = None) -> Nested:
    """Reverses the rows of each innermost sequence, like Paddle's `sequence_reverse`.

    >>> reverse(tf.ragged.constant([[1, 2], [], [3, 4, 5]])).to_list()
    [[2, 1], [], [5, 4, 3]]

    Args:
        x: RaggedTensor or LoDTensor of numbers, bool or string, with rows
            `[N, ...]`.
        name: Name of the op.

    Returns:
        The kind and splits of x.

    Raises:
        TypeError: x has another type or dtype.
        ValueError: x has no level.
        tf.errors.InvalidArgumentError: Splits are invalid.
    """
    values, splits = nesting.flatten("x", x, _DTYPES)
    with tf.name_scope(name or "sequence_reverse"):
        rows = sequence_ops.sequence_reverse(values, splits[-1])
        return nesting.pack_like(x, rows, splits)
