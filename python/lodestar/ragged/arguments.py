"""Checks of the arguments of LoDTensor's constructors."""

from collections.abc import Sequence

import tensorflow as tf

from lodestar._checks import as_vector, check_dtype, check_unmasked
from lodestar._typing import TensorLike
from lodestar.ragged import levels as _levels

Parts = tuple[tf.Tensor, tuple[tf.Tensor, ...]]


def as_levels(name: str, levels: Sequence[TensorLike]) -> tuple[tf.Tensor, ...]:
    """Returns int64 or int32 offset vectors as int64."""
    return tuple(as_vector(f"{name}[{k}]", x) for k, x in enumerate(levels))


def as_one_level_or_more(
    name: str, levels: Sequence[TensorLike]
) -> tuple[tf.Tensor, ...]:
    """As `as_levels`; ValueError without a level."""
    levels = as_levels(name, levels)
    if not levels:
        raise ValueError(f"`{name}` must have at least one level, got [].")
    return levels


def as_values(values: TensorLike) -> tf.Tensor:
    """Returns rows as a tensor of rank 1 or more."""
    if isinstance(values, (tf.RaggedTensor, tf.SparseTensor)):
        raise TypeError(f"`values` must be a Tensor, got {type(values)}.")
    check_unmasked("values", values)
    values = tf.convert_to_tensor(values)
    if values.shape.rank == 0:
        raise ValueError("`values` must have rank 1 or more, got a scalar.")
    return values


def check_has_values(method: str, values: tf.Tensor) -> None:
    """Raises ValueError in a graph, which has no values."""
    if not hasattr(values, "numpy"):
        raise ValueError(
            f"`{method}` requires eager values, got a graph tensor."
        )


def check_rows_like(
    name: str, rows: tf.Tensor, of: str, wanted: tf.Tensor
) -> None:
    """Raises unless `rows` have the known dtype and row shape of `wanted`."""
    if rows.dtype != wanted.dtype:
        raise TypeError(
            f"`{name}` has dtype {rows.dtype.name}, but {of} has "
            f"{wanted.dtype.name}."
        )
    if not rows.shape[1:].is_compatible_with(wanted.shape[1:]):
        raise ValueError(
            f"`{name}` has rows of shape {rows.shape[1:]}, but {of} has "
            f"{wanted.shape[1:]}."
        )


def nested(
    name: str,
    rows: tf.Tensor,
    levels: Sequence[tf.Tensor],
    dtypes: Sequence[tf.DType] | None = None,
) -> Parts:
    """Returns the rows, and one or more levels as int64.

    Raises:
        TypeError: The dtype of the rows is not in `dtypes`.
        ValueError: There is no level.
    """
    if not levels:
        raise ValueError(f"`{name}` has no level, but needs at least one.")
    if dtypes is not None:
        check_dtype(name, rows, dtypes)
    return rows, tuple(tf.cast(level, tf.int64) for level in levels)


def validated(values: tf.Tensor, levels: Sequence[tf.Tensor]) -> Parts:
    """Returns the rows, and the levels after a check against them at run time."""
    num_rows = tf.shape(values, out_type=tf.int64)[0]
    found = _levels.validated(num_rows, levels)
    return _levels.after_levels(found, values), found
