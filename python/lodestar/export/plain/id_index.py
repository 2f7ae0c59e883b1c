"""Maps keys to positions with plain TensorFlow ops."""

from typing import Literal, TypeAlias

import tensorflow as tf

from lodestar._resource import SharedResource

Index: TypeAlias = Literal["hash", "sorted"]


class _HashTable(SharedResource):
    """A table of keys to their positions in `keys`, filled when it is loaded.

    A variable initializes it, since constants are limited by the 2 GB of a
    graph. The op's table accepts every key, and unlike a table that is restored
    from a checkpoint, it raises an error if it is read before it is filled.
    """

    def __init__(self, keys: tf.Variable):
        super().__init__("id_index")
        self._keys = keys
        # Otherwise the first trace that reads it would create its own table.
        with tf.init_scope():
            _ = self.resource_handle

    # TensorFlow traces all methods into the SavedModel.

    def _make_resource(self, shared_name: str, container: str) -> tf.Tensor:
        dtypes = {"key_dtype": self._keys.dtype, "value_dtype": tf.int64}
        if tf.executing_eagerly() or tf.inside_function():
            # What Python loads: its last handle destroys it, so a function of the
            # loaded model needs nothing else of it.
            return tf.raw_ops.AnonymousHashTable(**dtypes)
        # What a session loads: each of its runs finds the table by its name.
        return tf.raw_ops.HashTableV2(
            shared_name=shared_name, container=container, **dtypes
        )

    def _drop(self) -> None:
        pass

    def _fill(self) -> tf.Operation:
        """Fills the table."""
        return tf.raw_ops.InitializeTableV2(
            table_handle=self.resource_handle,
            keys=self._keys.value(),
            values=tf.range(tf.size(self._keys, tf.int64)),
        )


class IdIndex(tf.Module):
    """Maps unique int64 or string keys `[N]` to their positions.

    `"hash"` uses a hash table. `"sorted"` searches ascending int64 keys, which
    is slower on a CPU but works with XLA and on GPUs.
    """

    def __init__(self, keys: tf.Tensor, kind: str):
        super().__init__()
        self.size = int(keys.shape[0])
        with tf.device("CPU"):
            self.keys = tf.Variable(keys, trainable=False, name="keys")
        self._table = None
        if kind == "hash" and self.size > 0:  # the op needs a key
            self._table = _HashTable(self.keys)

    def find(self, keys: tf.Tensor) -> tf.Tensor:
        """Returns int64 positions in the shape of `keys`; -1 for missing keys."""
        places = self._find(keys)
        places.set_shape(keys.shape)
        return places

    def _find(self, keys: tf.Tensor) -> tf.Tensor:
        if self.size == 0:
            return tf.fill(tf.shape(keys), tf.constant(-1, tf.int64))
        if self._table is not None:
            return tf.raw_ops.LookupTableFindV2(
                table_handle=self._table.resource_handle,
                keys=keys,
                default_value=tf.constant(-1, tf.int64),
            )
        flat = tf.reshape(keys, [-1])
        places = self._last_not_above(flat)
        found = tf.equal(tf.gather(self.keys, places), flat)
        return tf.reshape(tf.where(found, places, -1), tf.shape(keys))

    def _last_not_above(self, keys: tf.Tensor) -> tf.Tensor:
        """Returns the position of the last key <= each of `keys`, or 0.

        Replaces tf.searchsorted, which tf2onnx does not convert and which XLA
        compiles to a comparison of all pairs.
        """
        places = tf.zeros_like(keys, tf.int64)
        for bit in reversed(range((self.size - 1).bit_length())):
            further = places + (1 << bit)
            inside = tf.minimum(further, self.size - 1)
            advance = tf.logical_and(
                tf.equal(further, inside), tf.gather(self.keys, inside) <= keys
            )
            places = tf.where(advance, further, places)
        return places
