"""Slices of sequences."""

import tensorflow as tf

from lodestar._checks import MOVED_DTYPES, as_vector
from lodestar._typing import TensorLike
from lodestar.ops import sequence_ops
from lodestar.ops.sequence_op import takes_keras_tensors
from lodestar.sequence import nesting
from lodestar.sequence.nesting import Nested


@takes_keras_tensors
def slice(
    x: Nested,
    offset: TensorLike,
    length: TensorLike,
    *,
    level: int = -1,
    name: str | None = None,
) -> Nested:
    """Slices rows `[offset[b], offset[b] + length[b])` of each sequence b of a level.

    Like Paddle's `sequence_slice`.

    >>> slice(tf.ragged.constant([[1, 2, 3], [4, 5]]), [0, 1], [2, 1]).to_list()
    [[1, 2], [5]]
    >>> paragraphs = tf.ragged.constant([[[1, 2], [3]], [[4]]])
    >>> slice(paragraphs, [1, 0], [1, 1], level=0).to_list()
    [[[3]], [[4]]]

    Args:
        x: RaggedTensor or LoDTensor of floats, integers, bool or string, with
            rows `[N, ...]`.
        offset: int64 or int32 `[B]`, the first row of each sequence.
        length: int64 or int32 `[B]`. 0 gives an empty sequence.
        level: The level of the B sequences: 0 for the outermost; -1 is the last,
            of rows. In other levels, numbers count units of the next level.
        name: Name of the op.

    Returns:
        The kind of x, and its levels above `level`. Differentiable in x.

    Raises:
        TypeError: x has another type or dtype, or numbers are not integers.
        ValueError: x has no such level, or numbers are not vectors.
        tf.errors.InvalidArgumentError: A number is negative, reaches past its
            sequence, or is missing (names the index), or splits are invalid.
    """
    rows, splits = nesting.flatten("x", x, MOVED_DTYPES)
    with tf.name_scope(name or "sequence_slice"):
        level = nesting.check_level("level", level, len(splits))
        offset = as_vector("offset", offset)
        length = as_vector("length", length)

        def move(units: list[tf.Tensor]) -> tuple[tf.Tensor, tf.Tensor]:
            return sequence_ops.sequence_slice(
                units[0], splits[level], offset, length
            )

        return nesting.pack_like(
            x, *nesting.move_units([(rows, splits)], level, move)
        )
