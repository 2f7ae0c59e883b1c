"""Softmax inside sequences."""

import tensorflow as tf

from lodestar._checks import FLOAT_DTYPES
from lodestar.ops import sequence_ops
from lodestar.ops.sequence_op import takes_keras_tensors
from lodestar.sequence import nesting
from lodestar.sequence.nesting import Nested


@takes_keras_tensors
def softmax(x: Nested, *, name: str | None = None) -> Nested:
    """Applies the softmax to each column of each innermost sequence.

    Paddle's `sequence_softmax` only takes rows of one number.

    >>> softmax(tf.ragged.constant([[0.0, 0.0], [], [1.0]])).to_list()
    [[0.5, 0.5], [], [1.0]]

    Args:
        x: RaggedTensor or LoDTensor of float16, bfloat16, float32 or float64,
            with rows `[N, ...]`. 16-bit floats are computed in float32. The
            maximum of a sequence is subtracted first, so numbers of any size
            are fine. -infinity, a masked row, gives 0.
        name: Name of the op.

    Returns:
        Like x: numbers from 0 to 1 that sum to 1 in each column of a sequence.
        A column is NaN if it has a NaN or +infinity, or only -infinity.

    Raises:
        TypeError: x has another type or dtype.
        ValueError: x has no level.
        tf.errors.InvalidArgumentError: Splits are invalid.
    """
    values, splits = nesting.flatten("x", x, FLOAT_DTYPES)
    with tf.name_scope(name or "sequence_softmax"):
        rows = sequence_ops.sequence_softmax(values, splits[-1])
        return nesting.pack_like(x, rows, splits)
