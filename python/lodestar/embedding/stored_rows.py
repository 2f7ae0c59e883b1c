"""Rows in fewer bits, for serving."""

from typing import Any, Literal, TypeAlias, cast, get_args

import numpy as np
import tensorflow as tf

# How a table can store rows, besides its own dtype.
StoredDtype: TypeAlias = Literal["float16", "bfloat16", "int8"]
DTYPES: tuple[StoredDtype, ...] = get_args(StoredDtype)
_MOST_INT8 = 127
_SCALE_BYTES = 4
# Rows that `encode` converts at once.
_CHUNK = 1 << 16
# Smaller float32 numbers are subnormal, which threads may flush to zero.
_SMALLEST = 2.0**-126
# The smallest number of each dtype that is surely read as it is.
_SMALLEST_OF = {"float16": 2.0**-24, "bfloat16": _SMALLEST, "int8": _SMALLEST}


def check_dtype(dtype: Any) -> StoredDtype | None:
    """Returns the name of a dtype of `DTYPES`, or None; ValueError for others."""
    if dtype is None:
        return None
    try:
        name = tf.as_dtype(dtype).name
    except TypeError:
        name = None
    if name not in DTYPES:
        raise ValueError(
            f"`dtype` must be None or one of {DTYPES}, got {dtype!r}."
        )
    return cast(StoredDtype, name)


def is_smaller(dtype: str | None, row_dtype: tf.DType) -> bool:
    """Whether rows of `dtype`, if any, take less memory."""
    return dtype is not None and tf.as_dtype(dtype).size < row_dtype.size


def quantize(
    rows: tf.Tensor, dtype: str, what: str
) -> tuple[tf.Tensor, tf.Tensor | None]:
    """Rounds rows to one of `DTYPES`.

    Args:
        rows: `[N, D]`.
        dtype: `"float16"` and `"bfloat16"` round to the nearest number.
            `"int8"` rounds row / scale.
        what: The rows in errors.

    Returns:
        Numbers `[N, D]` of the dtype; for `"int8"` also float32 scales `[N]`, a
        row's largest absolute value / 127, or 2^-126 if that is smaller.

    Raises:
        ValueError: The dtype cannot hold a number, or all numbers of a row are so
            small that it would be read as zeros. Not checked in a graph.
    """
    _check_not_lost(rows, dtype, what)
    if dtype != "int8":
        numbers = tf.cast(rows, dtype)
        _check_range(rows, numbers, what)
        return numbers, None
    rows = tf.cast(rows, tf.float32)
    largest = tf.reduce_max(tf.abs(rows), axis=1)
    scales = largest / _MOST_INT8
    _check_finite(rows, scales, what)
    scales = tf.where(
        largest < _SMALLEST,
        tf.zeros_like(scales),
        tf.maximum(scales, _SMALLEST),
    )
    divisors = tf.where(scales == 0, tf.ones_like(scales), scales)
    numbers = tf.round(rows / divisors[:, tf.newaxis])
    # The scale may have been rounded down.
    numbers = tf.clip_by_value(numbers, -_MOST_INT8, _MOST_INT8)
    return tf.cast(numbers, tf.int8), scales


def encode(rows: tf.Tensor, dtype: str, what: str) -> tf.Tensor:
    """Returns the result of `quantize` in one tensor.

    It has shape `[N, D]`, or `[N, D + 4]` for int8, whose last columns are the bytes
    of the scale.
    """
    if not tf.executing_eagerly():
        return _encode(rows, dtype, what)
    # In pieces, because the steps in between have as many numbers as the rows.
    return tf.concat(
        [
            _encode(rows[begin : begin + _CHUNK], dtype, what)
            for begin in range(0, max(1, rows.shape[0]), _CHUNK)
        ],
        axis=0,
    )


def _encode(rows: tf.Tensor, dtype: str, what: str) -> tf.Tensor:
    numbers, scales = quantize(rows, dtype, what)
    if scales is None:
        return numbers
    return tf.concat([numbers, tf.bitcast(scales, tf.int8)], axis=1)


def decode(stored: tf.Tensor, row_dtype: tf.DType) -> tf.Tensor:
    """Returns the rows `[N, D]` that `encode` stored."""
    if stored.dtype != tf.int8:
        return tf.cast(stored, row_dtype)
    numbers = tf.cast(stored[:, :-_SCALE_BYTES], tf.float32)
    scales = tf.bitcast(stored[:, -_SCALE_BYTES:], tf.float32)
    return tf.cast(numbers * scales[:, tf.newaxis], row_dtype)


def _check_not_lost(rows: tf.Tensor, dtype: str, what: str) -> None:
    if not tf.executing_eagerly():
        return
    # TensorFlow's threads may read subnormal numbers as zero.
    largest = np.abs(rows.numpy()).max(axis=1, initial=0).astype(np.float64)
    lost = (largest > 0) & (largest < _SMALLEST_OF[dtype])
    if lost.any():
        other = " or 'bfloat16'" if dtype == "float16" else ""
        raise ValueError(
            f"{what} has a row whose largest number is {largest[lost][0]:g}, which "
            f"{dtype} would read as 0. Use dtype=None{other}."
        )


def _check_range(rows: tf.Tensor, numbers: tf.Tensor, what: str) -> None:
    if not tf.executing_eagerly():
        return
    overflows = tf.math.is_inf(numbers) & tf.math.is_finite(rows)
    if tf.reduce_any(overflows):
        raise ValueError(
            f"{what} has the number {float(rows[overflows][0])}, which "
            f"{numbers.dtype.name} cannot hold. Use dtype=None or 'int8'."
        )


def _check_finite(rows: tf.Tensor, scales: tf.Tensor, what: str) -> None:
    if not tf.executing_eagerly():
        return
    finite = tf.reduce_all(tf.math.is_finite(rows))
    # The scale of the largest numbers may be rounded up.
    if not (finite & tf.reduce_all(tf.math.is_finite(scales * _MOST_INT8))):
        raise ValueError(
            f"{what} has a number that is not finite, or too large for int8 "
            "with a float32 scale. Use dtype=None."
        )
