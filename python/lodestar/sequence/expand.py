"""Repetition of sequences and of rows, as often as other sequences say."""

from typing import Any, TypeVar

import tensorflow as tf

from lodestar._checks import MOVED_DTYPES, check_dtype
from lodestar.ops import sequence_ops
from lodestar.ops.sequence_op import takes_keras_tensors
from lodestar.ragged import LoDTensor
from lodestar.sequence import nesting
from lodestar.sequence.nesting import Nested

# Of `expand`, whose result is as its first argument.
_X = TypeVar("_X", bound=tf.Tensor | tf.RaggedTensor | LoDTensor)


def _flatten(x: Any) -> tuple[tf.Tensor, tuple[tf.Tensor, ...]]:
    """Returns the rows and splits of `x`; a Tensor has no splits."""
    if isinstance(x, tf.RaggedTensor | LoDTensor):
        return nesting.flatten("x", x, MOVED_DTYPES)
    rows = check_dtype("x", tf.convert_to_tensor(x), MOVED_DTYPES)
    if rows.shape.rank == 0:
        raise ValueError("`x` must have rank 1 or more, found a scalar")
    return rows, ()


@takes_keras_tensors
def expand(
    x: _X,
    y: tf.RaggedTensor | LoDTensor,
    ref_level: int = -1,
    *,
    name: str | None = None,
) -> _X:
    """Repeats unit i of `x`, as a whole, as often as unit i of `y` is long.

    The semantics of Paddle's `sequence_expand`.

    >>> x = tf.ragged.constant([[1, 2], [3, 4]])
    >>> y = tf.ragged.constant([[0, 0], [0, 0, 0]])
    >>> expand(x, y).to_list()
    [[1, 2], [1, 2], [3, 4], [3, 4], [3, 4]]
    >>> expand(tf.constant([5, 6]), y).numpy()
    array([5, 5, 6, 6, 6], dtype=int32)

    Args:
        x: RaggedTensor or LoDTensor of one level, whose sequences are the
            units; or a Tensor, whose rows are. A float, integer, bool or string
            dtype.
        y: RaggedTensor or LoDTensor; only its splits are read.
        ref_level: The level of `y` to take, 0 for the outermost; -1 is the
            last.
        name: A name for the op.

    Returns:
        As `x` is: a RaggedTensor or LoDTensor of one level, with a sequence for
        each repetition, or a Tensor `[M, ...]`. A unit that is repeated 0 times
        is dropped. If the level of `y` has no unit at all, `x` itself.
        Differentiable in `x`.

    Raises:
        TypeError: `y` is neither; `x` of another dtype.
        ValueError: `x` has more than one level or none; `y` has no such level.
        tf.errors.InvalidArgumentError: `x` and `y` have different numbers of
            units; splits that are none.
    """
    _, levels = nesting.flatten("y", y)
    ref_level = nesting.check_level("ref_level", ref_level, len(levels))
    rows, splits = _flatten(x)
    if len(splits) > 1:
        raise ValueError(f"`x` has {len(splits)} levels, wanted one")
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
    """Repeats row i of `x` as often as the innermost sequence i of `y` is long.

    The semantics of Paddle's `sequence_expand_as`; the way back from a pooled
    row to the rows it came from.

    >>> y = tf.ragged.constant([[7, 7, 7], [], [7]])
    >>> expand_as(tf.constant([1, 2, 3]), y).to_list()
    [[1, 1, 1], [], [3]]

    Args:
        x: `[B, ...]` of a float, integer, bool or string dtype. Of a
            RaggedTensor or LoDTensor the rows are taken, its levels are not
            read.
        y: RaggedTensor or LoDTensor of B innermost sequences; only its splits
            are read.
        name: A name for the op.

    Returns:
        A RaggedTensor or LoDTensor, as `y` is, of all its levels.
        Differentiable in `x`.

    Raises:
        TypeError: `y` is neither; `x` of another dtype.
        ValueError: `x` is a scalar; `y` has no level.
        tf.errors.InvalidArgumentError: `x` has not B rows; splits that are
            none.
    """
    _, splits = nesting.flatten("y", y)
    rows, _ = _flatten(x)
    with tf.name_scope(name or "sequence_expand_as"):
        expanded = sequence_ops.sequence_expand_as(rows, splits[-1])
        return nesting.pack_like(y, expanded, splits)
