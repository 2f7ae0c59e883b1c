"""Concatenation of batches, sequence by sequence."""

from collections.abc import Sequence

import tensorflow as tf

from lodestar._checks import MOVED_DTYPES
from lodestar.ops import sequence_ops
from lodestar.ops.sequence_op import takes_keras_tensors
from lodestar.sequence import nesting
from lodestar.sequence.nesting import Nested


@takes_keras_tensors
def concat(
    xs: Sequence[Nested],
    *,
    name: str | None = None,
) -> Nested:
    """Concatenates the inputs sequence by sequence, like Paddle's `sequence_concat`.

    Sequence b of the result is sequence b of `xs[0]`, then of `xs[1]`, and so on.

    >>> x = tf.ragged.constant([[1, 2], [3]])
    >>> concat([x, tf.ragged.constant([[8], [9]])]).to_list()
    [[1, 2, 8], [3, 9]]

    Args:
        xs: One or more RaggedTensors or LoDTensors of one dtype (floats,
            integers, bool or string), with rows of one shape, equally many
            sequences, and the same levels above the innermost.
        name: Name of the op.

    Returns:
        The kind of `xs[0]`. Differentiable in each input.

    Raises:
        TypeError: An input has another type or dtype.
        ValueError: There is no input, or numbers of levels or row shapes differ.
        tf.errors.InvalidArgumentError: Numbers of sequences or upper levels
            differ (names input, level and index), or splits are invalid.
    """
    xs = list(xs)
    if not xs:
        raise ValueError("`xs` must have at least one input, got [].")
    values, lods = [], []
    for k, x in enumerate(xs):
        rows, splits = nesting.flatten(f"xs[{k}]", x, MOVED_DTYPES)
        values.append(rows)
        lods.append(splits)
        if rows.dtype != values[0].dtype:
            raise TypeError(
                f"`xs[{k}]` must have dtype {values[0].dtype.name}, like "
                f"`xs[0]`, got {rows.dtype.name}."
            )
        if len(splits) != len(lods[0]):
            raise ValueError(
                f"`xs[{k}]` must have {len(lods[0])} levels, like `xs[0]`, got "
                f"{len(splits)}."
            )
    with tf.name_scope(name or "sequence_concat"):
        joined, joined_splits = sequence_ops.sequence_concat(
            values, [level for lod in lods for level in lod]
        )
        return nesting.pack_like(xs[0], joined, (*lods[0][:-1], joined_splits))
