"""Sequences added into the rows of a matrix."""

import tensorflow as tf

from lodestar._checks import FLOAT_DTYPES, INT_DTYPES, check_dtype
from lodestar._library import gen_ops
from lodestar.ops.sequence_op import takes_keras_tensors
from lodestar.ragged import LoDTensor
from lodestar.sequence import nesting

_DTYPES = FLOAT_DTYPES + INT_DTYPES


@takes_keras_tensors
def scatter(
    x: tf.Tensor,
    index: tf.RaggedTensor | LoDTensor,
    updates: tf.RaggedTensor | LoDTensor,
    *,
    name: str | None = None,
) -> tf.Tensor:
    """Adds the updates of sequence b to row b of x, at the columns of `index`.

    The semantics of Paddle's `sequence_scatter`: duplicates accumulate, and an
    empty sequence leaves its row as it is.

    >>> index, updates = [[0, 2, 2], [1]], [[1.0, 2.0, 3.0], [4.0]]
    >>> scatter(
    ...     tf.zeros([2, 3]),
    ...     tf.ragged.constant(index),
    ...     tf.ragged.constant(updates),
    ... ).numpy()
    array([[1., 0., 5.],
           [0., 4., 0.]], dtype=float32)

    Args:
        x: `[B, D, ...]` of float16, bfloat16, float32, float64, int32 or int64.
            16-bit floats are summed in float32.
        index: RaggedTensor or LoDTensor of int32 or int64 in `[0, D)`, rows
            `[P]` or `[P, 1]` in B innermost sequences.
        updates: RaggedTensor or LoDTensor of the dtype of x, with the splits of
            `index`; rows `[P, ...]`, for x `[B, D]` also `[P, 1]`.
        name: A name for the op.

    Returns:
        The shape and dtype of x. Differentiable in x and updates.

    Raises:
        TypeError: `index` or `updates` is neither; other dtypes.
        ValueError: one has no level, another number of them, or other rows; x
            has rank 1 or less.
        tf.errors.InvalidArgumentError: an index out of range (names it and its
            sequence); splits that differ or do not nest; not B sequences;
            rows that do not fit x, where that is not known before.
    """
    x = check_dtype("x", tf.convert_to_tensor(x), _DTYPES)
    if x.shape.rank is not None and x.shape.rank < 2:
        raise ValueError(f"`x` must have rank 2 or more, found shape {x.shape}")
    columns, index_lod = nesting.flatten("index", index, INT_DTYPES)
    rows, updates_lod = nesting.flatten("updates", updates, (x.dtype,))
    if len(index_lod) != len(updates_lod):
        raise ValueError(
            f"`updates` has {len(updates_lod)} levels, but `index` has "
            f"{len(index_lod)}"
        )
    nesting.check_one_a_row("index", columns, "number")
    if x.shape.rank == 2 and rows.shape[1:].is_compatible_with([1]):
        rows = nesting.one_a_row("updates", rows, "number")
    if x.shape.rank is not None and not rows.shape[1:].is_compatible_with(
        x.shape[2:]
    ):
        raise ValueError(
            f"`updates` has rows of shape {rows.shape[1:]}, wanted "
            f"{x.shape[2:]} for `x` of shape {x.shape}"
        )
    with tf.name_scope(name or "sequence_scatter"):
        shape = tf.shape(x, out_type=tf.int64)
        places = gen_ops.lodestar_sequence_scatter_places(
            tf.cast(nesting.one_a_row("index", columns, "number"), tf.int64),
            index_lod,
            updates_lod,
            tf.shape(rows, out_type=tf.int64),
            shape,
        )
        compute = tf.float32 if x.dtype.size == 2 else x.dtype
        sums = tf.math.unsorted_segment_sum(
            tf.cast(rows, compute), places, shape[0] * shape[1]
        )
        summed = tf.cast(x, compute) + tf.reshape(sums, shape)
        summed = tf.cast(summed, x.dtype)
        return tf.ensure_shape(summed, x.shape)
