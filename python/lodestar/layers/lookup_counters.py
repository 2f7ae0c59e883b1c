"""Counters of what a collection looks up, by feature."""

import uuid

import tensorflow as tf

from lodestar._library import gen_ops

_COUNTS = ("ids", "padding", "unique", "hits")


class LookupCounters(tf.saved_model.experimental.TrackableResource):
    """Counts training look-ups of each feature; starts from 0 where loaded."""

    def __init__(self, num_features: int):
        super().__init__(device="CPU")
        self._num_features = num_features
        self._shared_name = f"lookup_counters_{uuid.uuid4().hex}"
        with tf.init_scope():
            _ = self.resource_handle

    # What TensorFlow calls to make and drop the resource, also where a
    # SavedModel is loaded.

    def _create_resource(self) -> tf.Tensor:
        return gen_ops.lodestar_embedding_collection_counters(
            shared_name=self._shared_name, num_features=self._num_features
        )

    def _initialize(self) -> None:
        pass

    def _destroy_resource(self) -> None:
        tf.raw_ops.DestroyResourceOp(
            resource=self.resource_handle, ignore_lookup_error=True
        )

    def read(self, reset: bool = False) -> list[dict[str, int]]:
        """Returns ids, padding, unique and hits of each feature, eagerly."""
        counts = gen_ops.lodestar_embedding_collection_stats(
            self.resource_handle, reset=reset
        )
        return [
            dict(zip(_COUNTS, row, strict=True))
            for row in counts.numpy().tolist()
        ]
