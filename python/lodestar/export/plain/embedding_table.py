"""A copy of an embedding variable for lookups with plain TensorFlow ops."""

from typing import Any

import tensorflow as tf

from lodestar.embedding import initializers
from lodestar.embedding.embedding_variable import EmbeddingVariable
from lodestar.export.plain.id_index import IdIndex
from lodestar.export.plain.initial_rows import InitialRows
from lodestar.export.plain.stored_rows import StoredRows
from lodestar.ops import id_hash


class EmbeddingTable(tf.Module):
    """A copy of the ids and rows of a table."""

    def __init__(self, table: EmbeddingVariable, index: str, dtype: str | None):
        super().__init__()
        what = f"the table {table.name!r}"
        content = table._export_all(with_rows=False)
        ids = content["ids"]

        def read(begin: int, end: int) -> tf.Tensor:
            rows, _ = table.find(ids[begin:end])
            return rows

        self._dim = table.output_dim
        self._dtype = table._row_dtype
        self._index = IdIndex(ids, index)
        self._rows = StoredRows(
            read,
            (ids.shape[0], table.output_dim),
            table._row_dtype,
            dtype,
            what,
        )
        _, self._missing_row, self._missing = table._collection_inputs()
        # Only for the respective values of `missing`.
        self._shared: Any = None
        self._initial: Any = None
        if self._missing == "shared":
            shared = content["shared_rows"]
            self._shared = StoredRows(
                lambda begin, end: shared[begin:end],
                tuple(shared.shape),
                table._row_dtype,
                dtype,
                what,
            )
        elif self._missing == "initial":
            # From the content, since a restored table keeps its old seed.
            _, seed, salt, _ = content["counters"].numpy().tolist()
            self._initial = InitialRows(
                initializers.initializer_attrs(
                    table.get_config()["embeddings_initializer"]
                ),
                seed,
                salt,
                self._dim,
                self._dtype,
            )
        self.lookup = tf.function(
            self._lookup, input_signature=[tf.TensorSpec([None], tf.int64)]
        )

    def _lookup(self, ids: tf.Tensor) -> tf.Tensor:
        rows, _ = self.find(ids, self._missing_row, self._missing, None)
        return rows

    def find(
        self,
        ids: tf.Tensor,
        missing_row: tf.Tensor,
        missing: str,
        padding_id: int | None,
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """Replaces `embedding_ops.find` for this table."""
        flat = tf.reshape(ids, [-1])
        places = self._index.find(flat)
        found = places >= 0
        rows = tf.where(
            found[:, tf.newaxis],
            self._rows.gather(places),
            self._missing_rows(flat, missing_row, missing),
        )
        if padding_id is not None:
            real = tf.not_equal(flat, padding_id)
            found = tf.logical_and(found, real)
            rows = tf.where(real[:, tf.newaxis], rows, tf.zeros_like(rows))
        rows = tf.reshape(rows, tf.concat([tf.shape(ids), [self._dim]], 0))
        rows = tf.ensure_shape(rows, ids.shape.concatenate([self._dim]))
        found = tf.ensure_shape(tf.reshape(found, tf.shape(ids)), ids.shape)
        return rows, found

    def _missing_rows(
        self, ids: tf.Tensor, missing_row: tf.Tensor, missing: str
    ) -> tf.Tensor:
        """Returns the rows of missing `ids` `[M]`; broadcasts to `[M, D]`."""
        if missing == "vector":
            return missing_row
        if missing == "initial":
            return self._initial.draw(ids)
        if missing == "shared":
            return self._shared.gather(self._shared_places(ids))
        return tf.zeros([self._dim], self._dtype)

    def _shared_places(self, ids: tf.Tensor) -> tf.Tensor:
        words = tf.bitcast(id_hash.mixed(ids), tf.uint64)
        places = words % tf.constant(self._shared.count, tf.uint64)
        return tf.bitcast(places, tf.int64)
