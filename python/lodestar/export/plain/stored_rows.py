"""Rows in variables, optionally in a smaller dtype."""

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from lodestar.embedding.stored_rows import is_smaller, quantize

# Rows that are converted at once.
_CHUNK = 1 << 16


class StoredRows(tf.Module):
    """Rows `[N, D]` that are gathered by position.

    `read` returns rows [begin, end) in the table's dtype. A `dtype` that is smaller
    rounds as `quantize` does. Errors name the table `what`.
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
        if not is_smaller(dtype, row_dtype):
            dtype = None
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
            if dtype is not None:
                rows, scales = quantize(rows, dtype, what)
                if self.scales is not None:
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
