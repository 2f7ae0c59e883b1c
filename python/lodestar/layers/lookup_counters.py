"""Lookup counters of a collection, by feature."""

import tensorflow as tf

from lodestar._library import gen_ops
from lodestar._resource import SharedResource

_COUNTS = ("ids", "padding", "unique", "hits")


class LookupCounters(SharedResource):
    """Counts training lookups by feature, on a GPU or by default the CPU.

    Loading and copying reset the counters.
    """

    def __init__(self, num_features: int, device: str | None = None):
        super().__init__("lookup_counters", device)
        self._num_features = num_features
        with tf.init_scope():
            _ = self.resource_handle

    def _make_resource(self, shared_name: str, container: str) -> tf.Tensor:
        return gen_ops.lodestar_embedding_collection_counters(
            shared_name=shared_name,
            container=container,
            num_features=self._num_features,
        )

    def _take_content(self, other: "LookupCounters") -> None:
        _ = self.resource_handle

    def read(self, reset: bool = False) -> list[dict[str, int]]:
        """Returns ids, padding, unique and hits of each feature. Runs eagerly."""
        with self.on_device():
            counts = gen_ops.lodestar_embedding_collection_stats(
                self.resource_handle, reset=reset
            )
        return [
            dict(zip(_COUNTS, row, strict=True))
            for row in counts.numpy().tolist()
        ]
