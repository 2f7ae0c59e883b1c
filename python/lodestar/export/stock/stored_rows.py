"""Rows in variables, as they are or in fewer bytes."""

import numpy as np
import tensorflow as tf

DTYPES = ("float16", "int8")
# Rows that are converted at once.
_CHUNK = 1 << 16
_MOST_INT8 = 127


class StoredRows(tf.Module):
    """Rows `[N, D]` that are gathered by place.

    Args:
        rows: Of any dtype that a table may have.
        dtype: None keeps that of `rows`. `"float16"` rounds each number to the
            nearest. `"int8"` keeps round(x / scale), with a float32 scale of
            each row, its largest absolute number / 127: what is read differs
            from x by at most scale / 2, and the rounding of float32.
        what: Whose rows they are, for errors.

    Raises:
        ValueError: A number that `dtype` cannot hold.
    """

    def __init__(self, rows: tf.Tensor, dtype: str | None, what: str):
        super().__init__()
        self.dtype = rows.dtype
        self._dim = rows.shape[1]
        self.count = rows.shape[0]
        scales = None
        if dtype == "float16":
            rows = _to_float16(rows.numpy(), what)
        elif dtype == "int8":
            rows, scales = _to_int8(rows.numpy(), what)
        with tf.device("CPU"):
            # Shares the memory of `rows`.
            self.values = tf.Variable(rows, trainable=False, name="rows")
            self.scales = None
            if scales is not None:
                self.scales = tf.Variable(
                    scales, trainable=False, name="scales"
                )

    def gather(self, places: tf.Tensor) -> tf.Tensor:
        """Rows at `places` `[M]`; any row where a place is below 0."""
        if self.count == 0:
            return tf.zeros([tf.size(places), self._dim], self.dtype)
        places = tf.maximum(places, 0)
        rows = tf.gather(self.values, places)
        if self.scales is not None:
            scales = tf.gather(self.scales, places)
            rows = tf.cast(rows, tf.float32) * scales[:, tf.newaxis]
        return tf.cast(rows, self.dtype)


def _to_float16(rows: np.ndarray, what: str) -> np.ndarray:
    result = np.empty(rows.shape, np.float16)
    for begin in range(0, len(rows), _CHUNK):
        chunk = rows[begin : begin + _CHUNK]
        with np.errstate(over="ignore"):
            halves = chunk.astype(np.float16)
        overflows = np.isinf(halves) & np.isfinite(chunk)
        if overflows.any():
            raise ValueError(
                f"{what} has the number {float(chunk[overflows][0])}, which "
                "float16 cannot hold; use dtype=None or 'int8'."
            )
        result[begin : begin + _CHUNK] = halves
    return result


def _to_int8(rows: np.ndarray, what: str) -> tuple[np.ndarray, np.ndarray]:
    result = np.empty(rows.shape, np.int8)
    scales = np.empty(len(rows), np.float32)
    for begin in range(0, len(rows), _CHUNK):
        chunk = rows[begin : begin + _CHUNK].astype(np.float64)
        largest = np.abs(chunk).max(axis=1)
        with np.errstate(over="ignore"):
            scale = (largest / _MOST_INT8).astype(np.float32)
        if not np.isfinite(scale).all():
            raise ValueError(
                f"{what} has a number that is not finite, or beyond float32, "
                "which int8 with a float32 scale cannot hold; use dtype=None."
            )
        # Below the smallest normal number a thread may take scales for zero.
        scale[scale < np.finfo(np.float32).tiny] = 0
        divisor = np.where(scale == 0, 1, scale).astype(np.float64)
        numbers = np.rint(chunk / divisor[:, np.newaxis])
        # Of a scale that was rounded down.
        numbers = np.clip(numbers, -_MOST_INT8, _MOST_INT8)
        result[begin : begin + _CHUNK] = numbers
        scales[begin : begin + _CHUNK] = scale
    return result, scales
