"""Batches joined sequence by sequence."""

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
    """Appends to each sequence of the first input those of the others.

    The semantics of Paddle's `sequence_concat`: sequence b of the result is
    sequence b of `xs[0]`, then that of `xs[1]`, and so on.

    >>> x = tf.ragged.constant([[1, 2], [3]])
    >>> concat([x, tf.ragged.constant([[8], [9]])]).to_list()
    [[1, 2, 8], [3, 9]]

    Args:
        xs: RaggedTensors or LoDTensors, one or more, of one dtype (floats,
            integers, bool or string), with rows of one shape, equally many
            sequences, and the same levels above the innermost.
        name: A name for the op.

    Returns:
        As `xs[0]` is. Differentiable in each input.

    Raises:
        TypeError: one is neither, or of another dtype.
        ValueError: no input; one has no level or another number of them; static
            shapes of rows differ.
        tf.errors.InvalidArgumentError: another number of sequences or other
            upper levels (names input, level and index), other rows, splits that
            are no splits of the rows.
    """
    xs = list(xs)
    if not xs:
        raise ValueError("`xs` is empty, wanted at least one input")
    values, lods = [], []
    for k, x in enumerate(xs):
        rows, splits = nesting.flatten(f"xs[{k}]", x, MOVED_DTYPES)
        values.append(rows)
        lods.append(splits)
        if rows.dtype != values[0].dtype:
            raise TypeError(
                f"`xs[{k}]` has dtype {rows.dtype.name}, wanted "
                f"{values[0].dtype.name} as `xs[0]` has"
            )
        if len(splits) != len(lods[0]):
            raise ValueError(
                f"`xs[{k}]` has {len(splits)} levels, wanted {len(lods[0])} as "
                "`xs[0]` has"
            )
    with tf.name_scope(name or "sequence_concat"):
        joined, joined_splits = sequence_ops.sequence_concat(
            values, [level for lod in lods for level in lod]
        )
        return nesting.pack_like(xs[0], joined, (*lods[0][:-1], joined_splits))
