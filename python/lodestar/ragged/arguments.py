"""What the constructors of LoDTensor take, checked."""

from collections.abc import Sequence

import tensorflow as tf

from lodestar.ops import lod_ops

Parts = tuple[tf.Tensor, tuple[tf.Tensor, ...]]


def as_vector(name: str, vector) -> tf.Tensor:
    """Returns one vector, int64 or int32, as int64."""
    vector = tf.convert_to_tensor(vector, dtype_hint=tf.int64)
    if vector.dtype not in (tf.int64, tf.int32):
        raise TypeError(
            f"`{name}` has dtype {vector.dtype.name}, wanted int64 or int32"
        )
    if vector.shape.rank not in (None, 1):
        raise ValueError(
            f"`{name}` must have rank 1, found shape {vector.shape}"
        )
    return tf.cast(vector, tf.int64)


def as_levels(name: str, levels: Sequence) -> tuple[tf.Tensor, ...]:
    """Returns offset vectors, int64 or int32, as int64."""
    return tuple(as_vector(f"{name}[{k}]", x) for k, x in enumerate(levels))


def as_one_level_or_more(name: str, levels: Sequence) -> tuple[tf.Tensor, ...]:
    """As `as_levels`, but refuses none."""
    levels = as_levels(name, levels)
    if not levels:
        raise ValueError(f"`{name}` is empty, wanted at least one level")
    return levels


def as_values(values) -> tf.Tensor:
    """Returns rows, which are a tensor of rank 1 or more."""
    if isinstance(values, (tf.RaggedTensor, tf.SparseTensor)):
        raise TypeError(f"`values` must be a Tensor, found {type(values)}")
    values = tf.convert_to_tensor(values)
    if values.shape.rank == 0:
        raise ValueError("`values` must have rank 1 or more, found a scalar")
    return values


def after(check: tf.Operation | None, tensor: tf.Tensor) -> tf.Tensor:
    """Returns `tensor`, in a graph not before the check has passed.

    Args:
      check: What `tf.debugging` returned; None if it was eager, as that has
        raised already.
      tensor: What to guard.
    """
    if check is None:
        return tensor
    with tf.control_dependencies([check]):
        return tf.identity(tensor)


def validated(values: tf.Tensor, levels: Sequence[tf.Tensor]) -> Parts:
    """Returns both, the levels checked against the rows at run time."""
    if not levels:
        return values, ()
    num_rows = tf.shape(values, out_type=tf.int64)[0]
    return values, tuple(lod_ops.lod_validate(num_rows, levels))
