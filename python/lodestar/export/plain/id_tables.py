"""Replaces lookups of id tables."""

from collections.abc import Callable, Mapping
from typing import Any

import tensorflow as tf

from lodestar.export.plain.id_index import IdIndex
from lodestar.lookup import IdTable
from lodestar.ops import id_table_ops
from lodestar.ops.flat_values import map_flat


class _Table(tf.Module):
    """A copy of the keys and ids of a table."""

    def __init__(self, table: IdTable, index: str):
        super().__init__()
        keys, ids = table.export()
        self.size = int(keys.shape[0])
        if keys.dtype == tf.string:
            index = "hash"
        else:
            keys = _as_int64(keys)
            order = tf.argsort(keys)
            keys, ids = tf.gather(keys, order), tf.gather(ids, order)
        self._index = IdIndex(keys, index)
        with tf.device("CPU"):
            self._ids = tf.Variable(ids, trainable=False, name="ids")

    def find(self, keys: tf.Tensor, missing: Any) -> tf.Tensor:
        """Returns the ids of int64 or string `keys`; `missing` for others."""
        places = self._index.find(keys)
        if self.size == 0:
            return tf.zeros_like(places) + missing
        ids = tf.gather(self._ids, tf.maximum(places, 0))
        return tf.where(places >= 0, ids, missing)


class PlainIdTables:
    """Copies of all id tables that the model reads, with an `IdIndex` each."""

    def __init__(self, tables: Mapping[str, IdTable], index: str):
        self._tables = dict(tables)
        self.modules = {
            name: _Table(table, index) for name, table in tables.items()
        }

    def functions(self) -> dict[Callable[..., Any], Callable[..., Any]]:
        """Returns op -> replacement for `ops.stand_ins.stand_ins`."""
        return {
            id_table_ops.find: self._find,
            id_table_ops.find_or_hash: self._find_or_hash,
            id_table_ops.size: self._size,
        }

    def _of(self, handle: tf.Tensor) -> _Table:
        for name, table in self._tables.items():
            if table.resource_handle is handle:
                return self.modules[name]
        raise ValueError(
            "The model reads an id table that is not an attribute of a layer. "
            "Make it one, so that it is saved with the model."
        )

    def _size(self, handle: tf.Tensor) -> tf.Tensor:
        return tf.constant(self._of(handle).size, tf.int64)

    def _find(self, handle: tf.Tensor, keys: Any, default_value: Any) -> Any:
        table = self._of(handle)
        default_value = tf.cast(default_value, tf.int64)
        return map_flat(
            lambda flat: table.find(_as_int64(flat), default_value), keys
        )

    def _find_or_hash(
        self,
        handle: tf.Tensor,
        keys: Any,
        *,
        num_oov_buckets: int,
        hasher: str,
        hasher_key: list[int],
        first_bucket: int = -1,
    ) -> Any:
        table = self._of(handle)
        if first_bucket < 0:
            first_bucket = table.size

        def find(flat: tf.Tensor) -> tf.Tensor:
            flat = _as_int64(flat)
            text = flat
            if flat.dtype != tf.string:
                text = tf.strings.as_string(flat)
            if hasher == "strong":
                bucket = tf.strings.to_hash_bucket_strong(
                    text, num_oov_buckets, hasher_key
                )
            elif hasher == "legacy":
                bucket = tf.strings.to_hash_bucket(text, num_oov_buckets)
            else:
                bucket = tf.strings.to_hash_bucket_fast(text, num_oov_buckets)
            return table.find(flat, bucket + first_bucket)

        return map_flat(find, keys)


def _as_int64(keys: tf.Tensor) -> tf.Tensor:
    """Returns integers as int64, uint64 by its bits; strings are unchanged."""
    if keys.dtype in (tf.int64, tf.string):
        return keys
    if keys.dtype == tf.uint64:
        return tf.bitcast(keys, tf.int64)
    return tf.cast(keys, tf.int64)
