"""Concatenation of batches, sequence by sequence."""

from collections.abc import Sequence

import tensorflow as tf

from lodestar._checks import MOVED_DTYPES
from lodestar.ops import sequence_ops
from lodestar.ops.sequence_op import takes_keras_tensors
from lodestar.ragged.arguments import validated
from lodestar.sequence import nesting
from lodestar.sequence.nesting import Nested


@takes_keras_tensors
def concat(
    xs: Sequence[Nested],
    *,
    level: int = -1,
    name: str | None = None,
) -> Nested:
    """Concatenates the inputs sequence by sequence, like Paddle's `sequence_concat`.

    Sequence b of the result is sequence b of `xs[0]`, then of `xs[1]`, and so on.

    >>> x = tf.ragged.constant([[1, 2], [3]])
    >>> concat([x, tf.ragged.constant([[8], [9]])]).to_list()
    [[1, 2, 8], [3, 9]]
    >>> x = tf.ragged.constant([[[1, 2]], [[3]]])
    >>> concat([x, tf.ragged.constant([[[8], []], []])], level=0).to_list()
    [[[1, 2], [8], []], [[3]]]

    Args:
        xs: One or more RaggedTensors or LoDTensors of one dtype (floats,
            integers, bool or string), with rows of one shape, equally many
            levels and sequences, and the same levels above `level`.
        level: The level whose sequences are concatenated: 0 for the outermost;
            -1 is the last, of rows. The units of the next level stay whole.
        name: Name of the op.

    Returns:
        The kind of `xs[0]`. Differentiable in each input.

    Raises:
        TypeError: An input has another type or dtype.
        ValueError: There is no input or no such level, or numbers of levels or
            row shapes differ.
        tf.errors.InvalidArgumentError: Numbers of sequences or upper levels
            differ (names input, level and index), or splits are invalid.
    """
    xs = list(xs)
    if not xs:
        raise ValueError("`xs` must have at least one input, got [].")
    nested = []
    for k, x in enumerate(xs):
        rows, splits = nesting.flatten(f"xs[{k}]", x, MOVED_DTYPES)
        nested.append((rows, splits))
        first, first_splits = nested[0]
        if rows.dtype != first.dtype:
            raise TypeError(
                f"`xs[{k}]` must have dtype {first.dtype.name}, like "
                f"`xs[0]`, got {rows.dtype.name}."
            )
        if not rows.shape[1:].is_compatible_with(first.shape[1:]):
            raise ValueError(
                f"`xs[{k}]` must have rows of shape {first.shape[1:]}, like "
                f"`xs[0]`, got {rows.shape[1:]}."
            )
        if len(splits) != len(first_splits):
            raise ValueError(
                f"`xs[{k}]` must have {len(first_splits)} levels, like "
                f"`xs[0]`, got {len(splits)}."
            )
    with tf.name_scope(name or "sequence_concat"):
        level = nesting.check_level("level", level, len(first_splits))
        upper = [s for _, lod in nested for s in lod[: level + 1]]
        if level + 1 == len(first_splits):
            rows, joined = sequence_ops.sequence_concat(
                [rows for rows, _ in nested], upper
            )
            return nesting.pack_like(xs[0], rows, (*first_splits[:-1], joined))
        # Concatenates the numbers of the units, counted over all inputs.
        units, numbers, count = [], [], tf.constant(0, tf.int64)
        for rows, splits in nested:
            rows, splits = validated(rows, splits)
            below = tf.RaggedTensor.from_nested_row_splits(
                rows, splits[level + 1 :], validate=False
            )
            units.append(below)
            numbers.append(tf.range(count, count + below.nrows()))
            count += below.nrows()
        order, joined = sequence_ops.sequence_concat(numbers, upper)
        moved = tf.gather(tf.concat(units, 0), order)
        splits = (*first_splits[:level], joined, *moved.nested_row_splits)
        return nesting.pack_like(xs[0], moved.flat_values, splits)
