"""Softmax inside sequences."""

import tensorflow as tf

from lodestar._checks import FLOAT_DTYPES
from lodestar.ops import sequence_ops
from lodestar.ops.sequence_op import takes_keras_tensors
from lodestar.sequence import nesting
from lodestar.sequence.nesting import Nested


@takes_keras_tensors
def softmax(x: Nested, *, name: str | None = None) -> Nested:
    """Softmax inside each innermost sequence, every column on its own.

    As Paddle's `sequence_softmax`, which takes rows of one number only.

    >>> softmax(tf.ragged.constant([[0.0, 0.0], [], [1.0]])).to_list()
    [[0.5, 0.5], [], [1.0]]

    Args:
        x: RaggedTensor or LoDTensor of float16, bfloat16, float32 or float64;
            `flat_values` (or `values`) `[N, ...]`. 16-bit floats are computed
            in float32. Numbers of any size are fine: the greatest of a sequence
            is taken off first. -infinity, a masked row, gives 0.
        name: A name for the op.

    Returns:
        As x: numbers of 0 to 1 that add up to 1 in each column of a sequence.
        The column is NaN if it holds a NaN or +infinity, or nothing but
        -infinity.

    Raises:
        TypeError: x is neither, or of another dtype.
        ValueError: x has no level.
        tf.errors.InvalidArgumentError: splits that are no splits of the rows.
    """
    values, splits = nesting.flatten("x", x, FLOAT_DTYPES)
    with tf.name_scope(name or "sequence_softmax"):
        rows = sequence_ops.sequence_softmax(values, splits[-1])
        return nesting.pack_like(x, rows, splits)
