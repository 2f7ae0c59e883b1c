"""The rows of a table as one dense tensor."""

import math
import warnings
import weakref
from typing import Any

import numpy as np
import tensorflow as tf

from lodestar._library import gen_ops

# TensorBoard needs 240 bytes and 0.4 us per number for a histogram and fails for
# images of more than 999,999 pixels in one direction.
_MOST_NUMBERS = 1 << 20
_MOST_ROWS = 1 << 19

_SAMPLED = (
    "{table!r} has {rows} rows, of which this reads {shown}, evenly spaced "
    "over the ids. `table.export().rows` has all of them. This warning appears "
    "once per table."
)

_warned: weakref.WeakSet[Any] = weakref.WeakSet()


def dense_view(table: Any) -> tf.Tensor:
    """Returns the rows `[N, dim]` of `table` in this process or on its devices.

    Changes and counts nothing, and needs no other worker. Above 2^20 numbers or 2^19
    rows it returns a sample, with a warning on the first call for a table. It always
    reads all ids, 8 bytes each. An empty table is one row of zeros, because
    TensorFlow aborts the process when it encodes an image without pixels.
    """
    limit = max(1, min(_MOST_ROWS, _MOST_NUMBERS // table.output_dim))
    ids, rows, count = sampled_rows(table, limit)
    if len(ids) < count and table not in _warned:
        _warned.add(table)
        warnings.warn(
            _SAMPLED.format(table=table, rows=count, shown=len(ids)),
            stacklevel=2,
        )
    return tf.constant(
        rows if count else np.zeros([1, table.output_dim], rows.dtype)
    )


def expect_sample(table: Any) -> None:
    """Keeps `dense_view` from warning that it reads a sample of `table`."""
    _warned.add(table)


def sampled_rows(table: Any, limit: int) -> tuple[np.ndarray, np.ndarray, int]:
    """Returns ids `[N]`, their rows `[N, dim]`, and the size of the table.

    If the size exceeds `limit`, N is about `limit` and the ids are evenly spaced.
    They ascend within each part of the table.
    """
    ids = [
        part.export(optimizer_slots=False, with_rows=False)["ids"].numpy()
        for part in table._parts
    ]
    count = sum(map(len, ids))
    if count > limit:
        ids = [_spaced(own, limit / count) for own in ids]
    rows = []
    for part, own in zip(table._parts, ids, strict=True):
        found, *_ = part.call(
            gen_ops.lodestar_embedding_inspect,
            own,
            dtype=table._row_dtype,
        )
        rows.append(found.numpy())
    return np.concatenate(ids), np.concatenate(rows), count


def _spaced(ids: np.ndarray, share: float) -> np.ndarray:
    """Returns a share of `ids`, evenly spaced."""
    kept = math.ceil(len(ids) * share)
    return ids[np.linspace(0, len(ids) - 1, kept).astype(np.int64)]
