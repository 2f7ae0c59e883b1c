"""The table to compare with: keras.layers.Embedding with a known vocabulary."""

from collections.abc import Iterable, Mapping
from typing import Any, Literal

import keras
import numpy as np
import tensorflow as tf

import lodestar


def vocabulary(
    batches: tf.data.Dataset, names: Iterable[str]
) -> dict[str, np.ndarray]:
    """Returns the unique ids of each slot in one epoch.

    Args:
        batches: Batches of `(features, label)`, with ragged slots.
        names: Names of the slots.

    Returns:
        {name: sorted ids, int64 `[V]`}.
    """
    found = {name: np.zeros(0, np.int64) for name in names}
    for features, _ in batches:
        for name, ids in found.items():
            found[name] = np.union1d(ids, features[name].values)
    return found


class DenseTable(keras.layers.Layer):
    """One keras.layers.Embedding that replaces an EmbeddingCollection.

    Pools its rows for many slots. All ids must be known in advance; any other
    id reads zeros.

    >>> table = DenseTable({"item": np.array([7, 9])}, 2, "sum", "ones")
    >>> rows = table({"item": tf.ragged.constant([[7, 9, 8], []], tf.int64)})
    >>> rows["item"].numpy().tolist()
    [[2.0, 2.0], [0.0, 0.0]]

    Args:
        vocabulary: {name of a slot: its unique ids, int64 `[V]`}.
        dim: Embedding dimension.
        combiner: `"mean"` or `"sum"`.
        initializer: Initializer of the embedding.
    """

    def __init__(
        self,
        vocabulary: Mapping[str, np.ndarray],
        dim: int,
        combiner: Literal["mean", "sum"],
        initializer: str = "uniform",
    ):
        super().__init__(autocast=False)
        self._combiner = combiner
        self._indices = {}
        count = 0
        for slot, ids in vocabulary.items():
            numbers = tf.range(count, count + len(ids), dtype=tf.int64)
            self._indices[slot] = tf.lookup.StaticHashTable(
                tf.lookup.KeyValueTensorInitializer(
                    tf.constant(ids, tf.int64), numbers
                ),
                default_value=-1,
            )
            count += len(ids)
        self.embedding = keras.layers.Embedding(
            max(count, 1), dim, embeddings_initializer=initializer
        )
        self.supports_jit = False

    def build(self, input_shape: Any = None) -> None:
        self.embedding.build()
        self.built = True

    def call(
        self, inputs: Mapping[str, tf.RaggedTensor]
    ) -> dict[str, tf.Tensor]:
        """Maps ragged ids `[B, None]` by name to pooled rows `[B, dim]` by name."""
        bags = {slot: inputs[slot] for slot in self._indices}
        indices = tf.concat(
            [self._indices[s][bag.values] for s, bag in bags.items()], 0
        )
        known = tf.cast(indices >= 0, tf.float32)[:, None]
        rows = self.embedding(tf.maximum(indices, 0)) * known
        parts = tf.split(rows, [tf.size(bag.values) for bag in bags.values()])
        return {
            slot: tf.ensure_shape(
                lodestar.sequence.pool(bag.with_values(part), self._combiner),
                [None, self.embedding.output_dim],
            )
            for (slot, bag), part in zip(bags.items(), parts, strict=True)
        }

    def compute_output_spec(self, inputs: Any) -> dict[str, keras.KerasTensor]:
        """Returns symbolic rows, one `[B, dim]` per slot."""
        shape = (None, self.embedding.output_dim)
        return {s: keras.KerasTensor(shape, "float32") for s in self._indices}
