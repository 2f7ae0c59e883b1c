"""What the constructors of LoDTensor take, checked."""

import numbers
from collections.abc import Sequence

import numpy as np
import tensorflow as tf

from lodestar.ops import lod_ops

Parts = tuple[tf.Tensor, tuple[tf.Tensor, ...]]


def convert(x, hint: tf.DType | None) -> tf.Tensor:
    """Returns a tensor of `x`, of dtype `hint` if that keeps every number."""
    # Of NumPy's numbers, a hint would cut fractions and high bits off.
    of_numpy = isinstance(x, (np.ndarray, np.generic)) and x.size
    if hint and of_numpy and not np.can_cast(x.dtype, hint.as_numpy_dtype):
        hint = None
    return tf.convert_to_tensor(x, dtype_hint=hint)


def as_int64(name: str, x, rank: int | None = None) -> tf.Tensor:
    """Returns a tensor of this rank, int64 or int32, as int64."""
    x = convert(x, tf.int64)
    if x.dtype not in (tf.int64, tf.int32):
        raise TypeError(
            f"`{name}` has dtype {x.dtype.name}, wanted int64 or int32"
        )
    if rank is not None and x.shape.rank not in (None, rank):
        raise ValueError(
            f"`{name}` must have rank {rank}, found shape {x.shape}"
        )
    return tf.cast(x, tf.int64)


def as_vector(name: str, vector) -> tf.Tensor:
    """Returns one vector, int64 or int32, as int64."""
    return as_int64(name, vector, 1)


def _is_whole(number) -> bool:
    if isinstance(number, numbers.Integral):
        return True
    return isinstance(number, numbers.Real) and float(number).is_integer()


def as_dtype_of(name: str, x, dtype: tf.DType, of: str) -> tf.Tensor:
    """Returns `x` as a tensor of `dtype`, every number as it is.

    TensorFlow wraps Python's and NumPy's integers around.

    Args:
        name: What messages call `x`.
        x: A tensor of `dtype`, or numbers or strings of Python or NumPy.
        dtype: Wanted.
        of: What messages say has that dtype.

    Raises:
        TypeError: a tensor of another dtype.
        ValueError: a number that the integer `dtype` does not have.
    """
    if tf.is_tensor(x):
        if x.dtype != dtype:
            raise TypeError(
                f"`{name}` has dtype {x.dtype.name}, but {of} has {dtype.name}"
            )
        return tf.convert_to_tensor(x)
    if dtype.is_integer:
        # As Python's numbers, which neither round nor wrap around.
        x = np.asarray(x, dtype=object)
        for number in x.flat:
            if not _is_whole(number):
                raise ValueError(
                    f"`{name}` is {number!r}, wanted an integer for {of} of "
                    f"{dtype.name}"
                )
            if not dtype.min <= number <= dtype.max:
                raise ValueError(f"`{name}` is {number}, beyond {dtype.name}")
        x = x.astype(dtype.as_numpy_dtype)
    return tf.convert_to_tensor(x, dtype)


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
