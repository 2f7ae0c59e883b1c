"""Softmax inside sequences."""

import tensorflow as tf

from lodestar._checks import FLOAT_DTYPES
from lodestar.ops import sequence_ops
from lodestar.ops.sequence_op import takes_keras_tensors
from lodestar.sequence import nesting
from lodestar.sequence.nesting import Nested


@takes_keras_tensors
def softmax(x: Nested, level: int = -1, *, name: str | None = None) -> Nested:
    """Applies the softmax to each column of each sequence of a level.

    Paddle's `sequence_softmax` only takes rows of one number.

    >>> softmax(tf.ragged.constant([[0.0, 0.0], [], [1.0]])).to_list()
    [[0.5, 0.5], [], [1.0]]

    Args:
        x: RaggedTensor or LoDTensor of float16, bfloat16, float32 or float64,
            with rows `[N, ...]`. 16-bit floats are computed in float32. The
            maximum of a sequence is subtracted first, so numbers of any size
            are fine. -infinity, a masked row, gives 0.
        level: The level whose units are normalized, each over all of its rows: 0
            for the outermost; -1 is the last.
        name: Name of the op.

    Returns:
        Like x: numbers from 0 to 1 that sum to 1 in each column of a sequence.
        A column is NaN if it has a NaN or +infinity, or only -infinity.

    Raises:
        TypeError: x has another type or dtype.
        ValueError: x has no such level.
        tf.errors.InvalidArgumentError: Splits are invalid.
    """
    values, splits = nesting.flatten("x", x, FLOAT_DTYPES)
    with tf.name_scope(name or "sequence_softmax"):
        row_splits, _ = nesting.rows_of_units(splits, level)
        rows = sequence_ops.sequence_softmax(values, row_splits)
        return nesting.pack_like(x, rows, splits)
