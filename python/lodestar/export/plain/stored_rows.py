"""Rows in variables, optionally in a smaller dtype."""

from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

DTYPES = ("float16", "int8")
# Rows that are converted at once.
_CHUNK = 1 << 16
_MOST_INT8 = 127


class StoredRows(tf.Module):
    """Rows `[N, D]` that are gathered by position.

    `read` returns rows [begin, end) in the table's dtype. `dtype=None` keeps the
    dtype, `"float16"` rounds to the nearest number, and `"int8"` stores
    round(x / scale), with a float32 scale per row of its largest absolute value
    / 127. Its errors are at most scale / 2, plus float32 rounding. Errors name
    the table `what`.
    """

    def __init__(
        self,
        read: Callable[[int, int], tf.Tensor],
        shape: tuple[int, int],
        row_dtype: tf.DType,
        dtype: str | None,
        what: str,
    ):
        super().__init__()
        self.count, self._dim = shape
        self._dtype = row_dtype
        stored = row_dtype if dtype is None else tf.as_dtype(dtype)
        self.values = _zeros(shape, stored, "rows")
        self.scales = None
        if dtype == "int8":
            self.scales = _zeros(shape[:1], tf.float32, "scales")
        # In pieces, to avoid a second copy of all rows.
        for begin in range(0, self.count, _CHUNK):
            end = min(begin + _CHUNK, self.count)
            places = tf.range(begin, end, dtype=tf.int64)
            rows = read(begin, end)
            if dtype == "float16":
                rows = _to_float16(rows.numpy(), what)
            elif dtype == "int8":
                rows, scales = _to_int8(rows.numpy(), what)
                _write(self.scales, places, scales)
            _write(self.values, places, rows)

    def gather(self, places: tf.Tensor) -> tf.Tensor:
        """Returns the rows at `places` `[M]`; any row for a negative place."""
        if self.count == 0:
            return tf.zeros([tf.size(places), self._dim], self._dtype)
        places = tf.maximum(places, 0)
        rows = tf.gather(self.values, places)
        if self.scales is not None:
            scales = tf.gather(self.scales, places)
            rows = tf.cast(rows, tf.float32) * scales[:, tf.newaxis]
        return tf.cast(rows, self._dtype)


def _zeros(shape: Any, dtype: tf.DType, name: str) -> tf.Variable:
    with tf.device("CPU"):
        return tf.Variable(tf.zeros(shape, dtype), trainable=False, name=name)


def _write(variable: tf.Variable, places: tf.Tensor, rows: Any) -> None:
    # Assigning to a slice would first copy the whole variable.
    variable.scatter_update(tf.IndexedSlices(rows, places))


def _to_float16(rows: np.ndarray, what: str) -> np.ndarray:
    with np.errstate(over="ignore"):
        halves = rows.astype(np.float16)
    overflows = np.isinf(halves) & np.isfinite(rows)
    if overflows.any():
        raise ValueError(
            f"{what} has the number {float(rows[overflows][0])}, which float16 "
            "cannot hold. Use dtype=None or 'int8'."
        )
    return halves


def _to_int8(rows: np.ndarray, what: str) -> tuple[np.ndarray, np.ndarray]:
    rows = rows.astype(np.float64)
    with np.errstate(over="ignore"):
        scales = (np.abs(rows).max(axis=1) / _MOST_INT8).astype(np.float32)
    if not np.isfinite(scales).all():
        raise ValueError(
            f"{what} has a number that is not finite, or too large for int8 "
            "with a float32 scale. Use dtype=None."
        )
    # Threads may flush subnormal scales to zero.
    scales[scales < np.finfo(np.float32).tiny] = 0
    divisors = np.where(scales == 0, 1, scales).astype(np.float64)
    numbers = np.rint(rows / divisors[:, np.newaxis])
    # The scale may have been rounded down.
    numbers = np.clip(numbers, -_MOST_INT8, _MOST_INT8)
    return numbers.astype(np.int8), scales
