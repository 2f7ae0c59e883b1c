"""LoDTensors to and from padded tensors."""

import numbers

import tensorflow as tf

from lodestar._checks import (
    MOVED_DTYPES,
    as_dtype_of,
    as_int64,
    check_count,
    check_dtype,
)
from lodestar._typing import TensorLike
from lodestar.ops import sequence_ops


def as_maxlen(maxlen: TensorLike) -> tf.Tensor:
    """Returns a number of steps, a number or a scalar tensor, as int64."""
    if isinstance(maxlen, numbers.Number):
        check_count("maxlen", maxlen, 0)
        maxlen = int(maxlen)  # type: ignore[call-overload]
    return as_int64("maxlen", maxlen, 0)


def to_padded(
    rows: tf.Tensor,
    splits: tf.Tensor,
    pad_value: TensorLike | None,
    maxlen: TensorLike | None,
) -> tuple[tf.Tensor, tf.Tensor]:
    """Returns the padded rows and the lengths, as `lodestar.sequence.pad`."""
    if pad_value is None:
        pad_value = tf.zeros([], rows.dtype)
    return sequence_ops.sequence_pad(
        rows,
        splits,
        as_dtype_of("pad_value", pad_value, rows.dtype, "`x`"),
        tf.constant(-1, tf.int64) if maxlen is None else as_maxlen(maxlen),
    )


def from_padded(
    padded: TensorLike, lengths: TensorLike
) -> tuple[tf.Tensor, tf.Tensor]:
    """Returns the rows and the splits, as `lodestar.sequence.unpad`."""
    padded = check_dtype("padded", tf.convert_to_tensor(padded), MOVED_DTYPES)
    if padded.shape.rank is not None and padded.shape.rank < 2:
        raise ValueError(
            f"`padded` must have rank 2 or more, got shape {padded.shape}."
        )
    return sequence_ops.sequence_unpad(padded, as_int64("lengths", lengths, 1))
