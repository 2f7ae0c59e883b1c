"""Positions of rows in their sequences."""

from typing import Any

import tensorflow as tf

from lodestar.ops import sequence_ops
from lodestar.ops.sequence_op import takes_keras_tensors
from lodestar.ragged import LoDTensor
from lodestar.sequence import nesting


@takes_keras_tensors
def positions(
    x: tf.RaggedTensor | LoDTensor,
    level: int = -1,
    *,
    from_end: bool = False,
    name: str | None = None,
) -> Any:
    """Returns the position of each row in its sequence, for position embeddings.

    >>> x = tf.ragged.constant([[7, 8, 9], [], [7]])
    >>> positions(x).to_list()
    [[0, 1, 2], [], [0]]
    >>> positions(x, from_end=True).to_list()
    [[2, 1, 0], [], [0]]

    Args:
        x: RaggedTensor or LoDTensor; only its splits are read.
        level: The level whose units are sequences, each of all of its rows: 0 for
            the outermost; -1 is the last.
        from_end: Whether to count from the last row, which gets 0.
        name: Name of the op.

    Returns:
        Like x, with an int64 number in place of each row.

    Raises:
        TypeError: x has another type.
        ValueError: x has no such level.
    """
    with tf.name_scope(name or "sequence_positions"):
        _, splits = nesting.flatten("x", x)
        units, _ = nesting.rows_of_units(splits, level)
        ends = units[1:] - 1 if from_end else units[:-1]
        counted = tf.range(units[-1]) - sequence_ops.sequence_expand_as(
            ends, units
        )
        counted = -counted if from_end else counted
        return nesting.pack_like(x, counted, splits)
