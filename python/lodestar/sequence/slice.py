"""A part of each sequence."""

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
    """Returns rows `[offset[b], offset[b] + length[b])` of each sequence b.

    The semantics of Paddle's `sequence_slice`.

    >>> slice(tf.ragged.constant([[1, 2, 3], [4, 5]]), [0, 1], [2, 1]).to_list()
    [[1, 2], [5]]

    Args:
        x: RaggedTensor or LoDTensor of floats, integers, bool or string;
            `flat_values` (or `values`) `[N, ...]`.
        offset: `[B]`, int64 or int32, a number for each innermost sequence,
            counted from its first row.
        length: `[B]`, int64 or int32. 0 gives an empty sequence.
        name: A name for the op.

    Returns:
        As x is, with the levels above unchanged. Differentiable in x.

    Raises:
        TypeError: x is neither, or of another dtype; numbers that are no
            integers.
        ValueError: x has no level; numbers that are no vector.
        tf.errors.InvalidArgumentError: a number is negative, reaches past its
            sequence, or is missing (names the index); splits that are no splits
            of the rows.
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
