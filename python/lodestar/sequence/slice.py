"""A part of each sequence."""

import tensorflow as tf

from lodestar.ops import sequence_slice_ops
from lodestar.ragged import LoDTensor
from lodestar.sequence import nesting


def _as_numbers(name: str, numbers) -> tf.Tensor:
    numbers = tf.convert_to_tensor(numbers, dtype_hint=tf.int64)
    if numbers.dtype not in nesting.INT_DTYPES:
        raise TypeError(
            f"`{name}` has dtype {numbers.dtype.name}, wanted int64 or int32"
        )
    if numbers.shape.rank not in (None, 1):
        raise ValueError(
            f"`{name}` must have rank 1, found shape {numbers.shape}"
        )
    return tf.cast(numbers, tf.int64)


def slice(
    x: tf.RaggedTensor | LoDTensor,
    offset,
    length,
    *,
    name: str | None = None,
) -> tf.RaggedTensor | LoDTensor:
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
        sequence, or is missing (names the index); splits that are no splits of
        the rows.
    """
    rows, splits = nesting.flatten("x", x, nesting.MOVED_DTYPES)
    with tf.name_scope(name or "sequence_slice"):
        sliced, sliced_splits = sequence_slice_ops.sequence_slice(
            rows,
            splits[-1],
            _as_numbers("offset", offset),
            _as_numbers("length", length),
        )
        return nesting.pack_like(x, sliced, (*splits[:-1], sliced_splits))
