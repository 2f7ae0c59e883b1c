"""Repetition of sequences and rows by the lengths of other sequences."""

from typing import Any, TypeVar

import tensorflow as tf

from lodestar._checks import MOVED_DTYPES, check_dtype
from lodestar.ops import sequence_ops
from lodestar.ops.sequence_op import takes_keras_tensors
from lodestar.ragged import LoDTensor
from lodestar.sequence import nesting
from lodestar.sequence.nesting import Nested

# The first argument and the result of `expand`.
_X = TypeVar("_X", bound=tf.Tensor | tf.RaggedTensor | LoDTensor)


def _flatten(x: Any) -> tuple[tf.Tensor, tuple[tf.Tensor, ...]]:
    """Returns the rows and splits of `x`; a Tensor has no splits."""
    if isinstance(x, tf.RaggedTensor | LoDTensor):
        return nesting.flatten("x", x, MOVED_DTYPES)
    rows = check_dtype("x", tf.convert_to_tensor(x), MOVED_DTYPES)
    if rows.shape.rank == 0:
        raise ValueError("`x` must have rank 1 or more, got a scalar.")
    return rows, ()


@takes_keras_tensors
def expand(
    x: _X,
    y: tf.RaggedTensor | LoDTensor,
    ref_level: int = -1,
    *,
    name: str | None = None,
) -> _X:
    """Repeats unit i of `x` by the length of unit i of `y`, like `sequence_expand`.

    >>> x = tf.ragged.constant([[1, 2], [3, 4]])
    >>> y = tf.ragged.constant([[0, 0], [0, 0, 0]])
    >>> expand(x, y).to_list()
    [[1, 2], [1, 2], [3, 4], [3, 4], [3, 4]]
    >>> expand(tf.constant([5, 6]), y).numpy()
    array([5, 5, 6, 6, 6], dtype=int32)

    Args:
        x: RaggedTensor or LoDTensor with one level, whose units are sequences,
            or a Tensor, whose units are rows. A float, integer, bool or string
            dtype.
        y: RaggedTensor or LoDTensor; only its splits are read.
        ref_level: The level of `y` to use, 0 for the outermost; -1 is the last.
        name: Name of the op.

    Returns:
        The kind of `x`: one level with a sequence per repetition, or a Tensor
        `[M, ...]`. A unit that is repeated 0 times is dropped. If the level of
        `y` has no units, `x` itself. Differentiable in `x`.

    Raises:
        TypeError: `y` has another type, or `x` another dtype.
        ValueError: `x` does not have one level, or `y` has no such level.
        tf.errors.InvalidArgumentError: Numbers of units differ, or splits are
            invalid.
    """
    _, levels = nesting.flatten("y", y)
    ref_level = nesting.check_level("ref_level", ref_level, len(levels))
    rows, splits = _flatten(x)
    if len(splits) > 1:
        raise ValueError(f"`x` must have one level, got {len(splits)}.")
    with tf.name_scope(name or "sequence_expand"):
        units = splits or [tf.range(tf.shape(rows, tf.int64)[0] + 1)]
        expanded, expanded_splits = sequence_ops.sequence_expand(
            rows, units[0], levels[ref_level]
        )
        return nesting.pack_like(
            x, expanded, [expanded_splits] if splits else []
        )


@takes_keras_tensors
def expand_as(
    x: tf.Tensor | tf.RaggedTensor | LoDTensor,
    y: Nested,
    *,
    name: str | None = None,
) -> Nested:
    """Repeats row i of `x` by the length of innermost sequence i of `y`.

    Like Paddle's `sequence_expand_as`, this broadcasts a pooled row to the rows that it
    was pooled from.

    >>> y = tf.ragged.constant([[7, 7, 7], [], [7]])
    >>> expand_as(tf.constant([1, 2, 3]), y).to_list()
    [[1, 1, 1], [], [3]]

    Args:
        x: Rows `[B, ...]` of a float, integer, bool or string dtype. The levels
            of a RaggedTensor or LoDTensor are ignored.
        y: RaggedTensor or LoDTensor of B innermost sequences; only its splits
            are read.
        name: Name of the op.

    Returns:
        The kind and levels of `y`. Differentiable in `x`.

    Raises:
        TypeError: `y` has another type, or `x` another dtype.
        ValueError: `x` is a scalar, or `y` has no level.
        tf.errors.InvalidArgumentError: `x` does not have B rows, or splits are
            invalid.
    """
    _, splits = nesting.flatten("y", y)
    rows, _ = _flatten(x)
    with tf.name_scope(name or "sequence_expand_as"):
        expanded = sequence_ops.sequence_expand_as(rows, splits[-1])
        return nesting.pack_like(y, expanded, splits)
