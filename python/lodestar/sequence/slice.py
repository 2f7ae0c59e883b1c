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
    name: str | None = None,
) -> Nested:
    """Slices rows `[offset[b], offset[b] + length[b])` of each sequence b.

    Like Paddle's `sequence_slice`.

    >>> slice(tf.ragged.constant([[1, 2, 3], [4, 5]]), [0, 1], [2, 1]).to_list()
    [[1, 2], [5]]

    Args:
        x: RaggedTensor or LoDTensor of floats, integers, bool or string, with
            rows `[N, ...]`.
        offset: int64 or int32 `[B]`, the first row of each innermost sequence.
        length: int64 or int32 `[B]`. 0 gives an empty sequence.
        name: Name of the op.

    Returns:
        The kind and upper levels of x. Differentiable in x.

    Raises:
        TypeError: x has another type or dtype, or numbers are not integers.
        ValueError: x has no level, or numbers are not vectors.
        tf.errors.InvalidArgumentError: A number is negative, reaches past its
            sequence, or is missing (names the index), or splits are invalid.
    """
    rows, splits = nesting.flatten("x", x, MOVED_DTYPES)
    with tf.name_scope(name or "sequence_slice"):
        sliced, sliced_splits = sequence_ops.sequence_slice(
            rows,
            splits[-1],
            as_vector("offset", offset),
            as_vector("length", length),
        )
        return nesting.pack_like(x, sliced, (*splits[:-1], sliced_splits))
