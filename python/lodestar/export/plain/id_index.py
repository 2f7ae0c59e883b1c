"""Keys -> places 0, 1, 2, ... with TensorFlow's ops only."""

import tensorflow as tf

from lodestar._resource import SharedResource

INDEXES = ("hash", "sorted")


class _HashTable(SharedResource):
    """A table of keys to their places in `keys`, filled where it is loaded.

    It is initialized from a variable, not from constants, which a graph of 2 GB
    would have to hold, and never looked up in the process that exports. The
    op's table takes every key, and a lookup before the initializer has run is
    an error: other than one that is restored from a checkpoint, it is never
    found empty.
    """

    def __init__(self, keys: tf.Variable):
        super().__init__("id_index")
        self._keys = keys
        # Else the first trace that reads it would hold a table of its own.
        with tf.init_scope():
            _ = self.resource_handle

    # What TensorFlow calls to make and fill the resource; both are traced into
    # the SavedModel.

    def _make_resource(self, shared_name: str, container: str) -> tf.Tensor:
        return tf.raw_ops.HashTableV2(
            key_dtype=self._keys.dtype,
            value_dtype=tf.int64,
            shared_name=shared_name,
            container=container,
        )

    def _fill(self) -> tf.Operation:
        """Fills the table."""
        return tf.raw_ops.InitializeTableV2(
            table_handle=self.resource_handle,
            keys=self._keys.value(),
            values=tf.range(tf.size(self._keys, tf.int64)),
        )


class IdIndex(tf.Module):
    """Finds keys.

    Args:
        keys: int64 or string `[N]`, all different; ascending where `kind` is
            "sorted".
        kind: `"hash"`, a hash table; or `"sorted"`, a binary search, for int64
            keys: slower on a CPU, but without a resource, so that XLA compiles
            it and a GPU runs it.
    """

    def __init__(self, keys: tf.Tensor, kind: str):
        super().__init__()
        self.size = int(keys.shape[0])
        with tf.device("CPU"):
            self.keys = tf.Variable(keys, trainable=False, name="keys")
        self._table = None
        if kind == "hash" and self.size > 0:  # one cannot be made of no keys
            self._table = _HashTable(self.keys)

    def find(self, keys: tf.Tensor) -> tf.Tensor:
        """Returns the places of `keys`, int64 of their shape, -1: not there."""
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
        """Returns the place of the last key that is not above each of `keys`.

        It is 0 where all are above. This is tf.searchsorted, whose op tf2onnx
        does not convert and XLA compiles to a comparison of all pairs.
        """
        places = tf.zeros_like(keys, tf.int64)
        for bit in reversed(range((self.size - 1).bit_length())):
            further = places + (1 << bit)
            inside = tf.minimum(further, self.size - 1)
            goes_on = tf.logical_and(
                tf.equal(further, inside), tf.gather(self.keys, inside) <= keys
            )
            places = tf.where(goes_on, further, places)
        return places
