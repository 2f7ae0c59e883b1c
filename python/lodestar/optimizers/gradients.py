"""Arithmetic on gradients that may be sparse over ids.

Lookups of one table in one step give slices in which an id may occur several
times. Its gradient is their sum, so norms need merged slices.
"""

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import tensorflow as tf

from lodestar._library import gen_ops
from lodestar.embedding.lookup_arguments import ROW_DTYPES
from lodestar.embedding.table_variable import TableVariable

Gradient: TypeAlias = tf.Tensor | tf.IndexedSlices | None
# Sums a scalar over processes.
Total: TypeAlias = Callable[[tf.Tensor], tf.Tensor]


def merge_duplicates(
    gradient: tf.IndexedSlices, device: str = "CPU"
) -> tf.IndexedSlices:
    """Sums the rows of equal indices, in order of first occurrence.

    Rows `[N, D]` of a dtype that tables support are summed on `device` by one op,
    others by TensorFlow ops.
    """
    values, indices = gradient.values, gradient.indices
    if values.dtype in ROW_DTYPES and values.shape.rank == 2:
        with tf.device(device):
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
    """Raises ValueError unless there are as many gradients as variables."""
    if len(gradients) != len(variables):
        raise ValueError(
            f"`grads` has {len(gradients)} gradients, but there are "
            f"{len(variables)} variables. Pass one gradient per variable."
        )


def map_values(
    function: Callable[[tf.Tensor], tf.Tensor], gradient: Gradient
) -> Gradient:
    """Applies an elementwise `function` to a gradient or its rows."""
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
    """Returns a table's gradient by int64 id, in float32, as it is updated.

    Operations on a 16-bit gradient before that, such as unscaling, would be rounded
    or return zero. Raises ValueError if the gradient is not rows by id.
    """
    if not isinstance(gradient, tf.IndexedSlices):
        raise ValueError(
            f"The gradient of {table!r} must be a tf.IndexedSlices of rows by id, "
            "as a tape returns it for the table itself, got a "
            f"{type(gradient).__name__}."
        )
    indices = tf.convert_to_tensor(gradient.indices)
    if not indices.dtype.is_integer:
        raise ValueError(
            f"The gradient of {table!r} must have integer `indices`, got "
            f"{indices.dtype.name}."
        )
    return tf.IndexedSlices(
        tf.cast(gradient.values, tf.float32),
        tf.cast(indices, tf.int64),
        gradient.dense_shape,
    )


def scale(gradient: Gradient, factor: Any) -> Gradient:
    """Multiplies by a scalar."""
    return map_values(lambda g: g * tf.cast(factor, g.dtype), gradient)


def merged(gradient: Gradient) -> Gradient:
    """Merges the duplicates of a sparse gradient."""
    if isinstance(gradient, tf.IndexedSlices):
        return merge_duplicates(gradient)
    return gradient


def here(number: tf.Tensor) -> tf.Tensor:
    """The `Total` of a single process."""
    return number


def norm_of_merged(
    gradients: Sequence[Gradient],
    total: Total = here,
    others: Sequence[Gradient] = (),
) -> tf.Tensor:
    """Returns the joint norm of merged gradients.

    None is ignored. The result is float64 if a gradient is, else float32.
    `total` sums the squares of `gradients`, but not of `others`, over processes.
    """
    values, more = (
        [
            g.values
            if isinstance(g, tf.IndexedSlices)
            else tf.convert_to_tensor(g)
            for g in given
            if g is not None
        ]
        for given in (gradients, others)
    )
    wide = any(value.dtype == tf.float64 for value in values + more)
    dtype = tf.float64 if wide else tf.float32

    def squares(values: list[tf.Tensor]) -> list[tf.Tensor]:
        return [
            tf.reduce_sum(tf.square(tf.cast(value, dtype))) for value in values
        ]

    sums = squares(more)
    if values:
        sums.insert(0, total(tf.add_n(squares(values))))
    return tf.sqrt(tf.add_n(sums)) if sums else tf.constant(0.0)


def clip_by_global_norm(
    gradients: Sequence[Gradient], clip_norm: float | tf.Tensor
) -> tuple[list[Gradient], tf.Tensor]:
    """Scales all gradients so that their joint norm is at most `clip_norm`.

    Unlike `tf.clip_by_global_norm`, it sums the rows of an id that occurs several
    times. Sparse gradients are returned merged.

    Args:
        gradients: Tensors, `tf.IndexedSlices` or None, which stays None.
        clip_norm: Positive scalar.

    Returns:
        The clipped gradients, all NaN if the norm is not finite, and the norm
        before clipping.
    """
    sums = [merged(g) for g in gradients]
    norm = norm_of_merged(sums)
    factor = clip_factor(norm, tf.cast(clip_norm, norm.dtype))
    return [scale(g, factor) for g in sums], norm


def clip_factor(norm: tf.Tensor, limit: Any) -> tf.Tensor:
    """Returns the factor that reduces a norm to at most `limit`."""
    # The last term is 0, or NaN if the norm is not finite.
    return limit * tf.minimum(1.0 / norm, 1.0 / limit) + (norm - norm)


def clip_by_norm(
    gradient: tf.IndexedSlices, clip_norm: float, total: Total
) -> Gradient:
    """Scales one merged gradient to a norm of at most `clip_norm`."""
    norm = norm_of_merged([gradient], total)
    factor = clip_norm / tf.maximum(norm, clip_norm)
    return scale(gradient, factor)
