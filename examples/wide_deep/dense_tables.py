"""The baseline's tables: keras.layers.Embedding over a known vocabulary."""

from collections.abc import Mapping

import keras
import numpy as np
import tensorflow as tf


class DenseTable(keras.layers.Layer):
    """Pools rows of one keras.layers.Embedding for many slots.

    Stands where lodestar.layers.EmbeddingCollection does, but has to be told
    every id beforehand; any other id reads zeros.

    Args:
        vocabulary: Name of the slot -> its ids, int64 `[V]`, distinct.
        dim: Width of a row.
        combiner: `"mean"` or `"sum"`.
        initializer: Of the embedding.
    """

    def __init__(
        self,
        vocabulary: Mapping[str, np.ndarray],
        dim: int,
        combiner: str,
        initializer: str = "uniform",
        name: str | None = None,
    ):
        super().__init__(autocast=False, name=name)
        self._combiner = combiner
        self._indices = {}
        count = 0
        for slot, ids in vocabulary.items():
            self._indices[slot] = tf.lookup.StaticHashTable(
                tf.lookup.KeyValueTensorInitializer(
                    tf.constant(ids, tf.int64),
                    tf.range(count, count + len(ids), dtype=tf.int64),
                ),
                default_value=-1,
            )
            count += len(ids)
        self.embedding = keras.layers.Embedding(
            max(count, 1), dim, embeddings_initializer=initializer
        )
        self.supports_jit = False

    def build(self, input_shape=None):
        """Makes the embedding."""
        self.embedding.build()
        self.built = True

    def call(self, inputs: Mapping[str, tf.RaggedTensor]):
        """Name -> ragged ids `[B, None]` to name -> pooled rows `[B, dim]`."""
        bags = {slot: inputs[slot] for slot in self._indices}
        indices = tf.concat(
            [self._indices[s][bag.values] for s, bag in bags.items()], 0
        )
        known = tf.cast(indices >= 0, tf.float32)[:, None]
        rows = self.embedding(tf.maximum(indices, 0)) * known
        parts = tf.split(rows, [tf.size(bag.values) for bag in bags.values()])
        return {
            slot: self._pool(bag.with_values(part))
            for (slot, bag), part in zip(bags.items(), parts, strict=True)
        }

    def _pool(self, rows: tf.RaggedTensor) -> tf.Tensor:
        sums = tf.math.segment_sum(rows.values, rows.value_rowids())
        missing = rows.nrows() - tf.shape(sums, tf.int64)[0]
        sums = tf.pad(sums, [[0, missing], [0, 0]])
        if self._combiner == "mean":
            lengths = tf.cast(rows.row_lengths(), tf.float32)
            sums /= tf.maximum(lengths, 1.0)[:, None]
        return tf.ensure_shape(sums, [None, self.embedding.output_dim])

    def compute_output_spec(self, inputs):
        """Symbolic rows, one `[B, dim]` a slot."""
        return {
            slot: keras.KerasTensor(
                (inputs[slot].shape[0], self.embedding.output_dim), "float32"
            )
            for slot in self._indices
        }
