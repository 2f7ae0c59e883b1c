"""Arithmetic on gradients that may be sparse over ids.

Lookups of one table in one step give slices in which an id can occur several
times. Its gradient is their sum, so norms are taken after merging: the norm of
the unmerged slices is another number.
"""

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import tensorflow as tf

from lodestar._library import gen_ops
from lodestar.embedding.lookup_arguments import ROW_DTYPES
from lodestar.embedding.table_variable import TableVariable
from lodestar.ops.embedding_ops import on_cpu

Gradient: TypeAlias = tf.Tensor | tf.IndexedSlices | None


def merge_duplicates(gradient: tf.IndexedSlices) -> tf.IndexedSlices:
    """Sums the rows of equal indices, in order of first occurrence.

    Args:
        gradient: values `[N, ...]`, indices `[N]` of any integer type.

    Returns:
        The same gradient with distinct indices; rows `[N, D]` of a dtype that
        tables have in one pass, anything else through plain ops.
    """
    values, indices = gradient.values, gradient.indices
    if values.dtype in ROW_DTYPES and values.shape.rank == 2:
        with on_cpu():
            ids, positions = gen_ops.lodestar_embedding_unique(
                tf.cast(indices, tf.int64)
            )
            sums = gen_ops.lodestar_embedding_gradient(values, positions, ids)
            ids = tf.cast(ids, indices.dtype)
    else:
        ids, positions = tf.unique(indices)
        sums = tf.math.unsorted_segment_sum(values, positions, tf.size(ids))
    return tf.IndexedSlices(sums, ids, gradient.dense_shape)


def check_one_each(
    gradients: Sequence[Gradient], variables: Sequence[Any]
) -> None:
    """Raises ValueError unless there are as many of both."""
    if len(gradients) != len(variables):
        raise ValueError(
            f"`grads` has {len(gradients)} gradients, but there are "
            f"{len(variables)} variables; wanted one for each."
        )


def map_values(
    function: Callable[[tf.Tensor], tf.Tensor], gradient: Gradient
) -> Gradient:
    """Applies an elementwise `function`, to the rows where it is sparse."""
    if gradient is None:
        return None
    if isinstance(gradient, tf.IndexedSlices):
        return tf.IndexedSlices(
            function(gradient.values), gradient.indices, gradient.dense_shape
        )
    return function(tf.convert_to_tensor(gradient))


def as_applied(
    gradient: tf.IndexedSlices, table: TableVariable
) -> tf.IndexedSlices:
    """A table's gradient in the dtype in which the table is updated.

    What is done to a gradient of 16 bits before that, such as unscaling, would
    be rounded, or come out as zero.

    Raises:
        ValueError: It is not rows by id.
    """
    if not isinstance(gradient, tf.IndexedSlices):
        raise ValueError(
            f"The gradient of {table!r} is a {type(gradient).__name__}, "
            "wanted the tf.IndexedSlices of rows by id that a tape gives for "
            "the table itself."
        )
    indices = tf.convert_to_tensor(gradient.indices)
    if not indices.dtype.is_integer:
        raise ValueError(
            f"The gradient of {table!r} has `indices` of dtype "
            f"{indices.dtype.name}, wanted integer ids."
        )
    dtype = table.update_dtype
    return map_values(lambda g: tf.cast(g, dtype), gradient)


def scale(gradient: Gradient, factor: Any) -> Gradient:
    """Multiplies by a scalar."""
    return map_values(lambda g: g * tf.cast(factor, g.dtype), gradient)


def _merged(gradient: Gradient) -> Gradient:
    if isinstance(gradient, tf.IndexedSlices):
        return merge_duplicates(gradient)
    return gradient


def _norm(merged: Sequence[Gradient]) -> tf.Tensor:
    values = [
        g.values if isinstance(g, tf.IndexedSlices) else tf.convert_to_tensor(g)
        for g in merged
        if g is not None
    ]
    wide = any(value.dtype == tf.float64 for value in values)
    dtype = tf.float64 if wide else tf.float32
    squares = [
        tf.reduce_sum(tf.square(tf.cast(value, dtype))) for value in values
    ]
    return tf.sqrt(tf.add_n(squares)) if squares else tf.constant(0.0)


def global_norm(gradients: Sequence[Gradient]) -> tf.Tensor:
    """The norm of all gradients together, each id's rows summed first.

    Args:
        gradients: Tensors, `tf.IndexedSlices` or None, which is left out.

    Returns:
        A scalar, float64 where a gradient is, else float32.
    """
    return _norm([_merged(g) for g in gradients])


def clip_by_global_norm(
    gradients: Sequence[Gradient], clip_norm: Any
) -> tuple[list[Gradient], tf.Tensor]:
    """Scales all gradients so that their joint norm is at most `clip_norm`.

    As `tf.clip_by_global_norm`, but an id that occurs several times counts by
    the sum of its rows. Sparse gradients come back merged.

    Args:
        gradients: Tensors, `tf.IndexedSlices` or None, which stays None.
        clip_norm: Positive scalar.

    Returns:
        The clipped gradients, all NaN where the norm is not finite, and the
        norm before clipping.
    """
    merged = [_merged(g) for g in gradients]
    norm = _norm(merged)
    factor = clip_factor(norm, tf.cast(clip_norm, norm.dtype))
    return [scale(g, factor) for g in merged], norm


def clip_factor(norm: tf.Tensor, limit: Any) -> tf.Tensor:
    """What makes gradients of this norm have one of at most `limit`."""
    # The last term is 0, or NaN where the norm is not finite.
    return limit * tf.minimum(1.0 / norm, 1.0 / limit) + (norm - norm)


def clip_by_norm(gradient: tf.IndexedSlices, clip_norm: float) -> Gradient:
    """Scales one merged gradient to a norm of at most `clip_norm`."""
    factor = clip_norm / tf.maximum(_norm([gradient]), clip_norm)
    return scale(gradient, factor)
