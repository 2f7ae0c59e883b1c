"""The embedding variable with rows on several devices."""

from collections.abc import Mapping
from typing import Any

import keras
import tensorflow as tf

from lodestar._resource import gpu_in_scope
from lodestar.embedding import policies, strategies
from lodestar.embedding.devices import (
    check_devices,
    check_library,
    is_remote,
    on_gpu,
)
from lodestar.embedding.placed_table import PlacedTable
from lodestar.embedding.sharded_variable import ShardedEmbeddingVariable
from lodestar.embedding.table_parts import TablePart, each, shares
from lodestar.ops import embedding_ops
from lodestar.ops.embedding_collection_ops import FeatureAttrs, FeatureInputs


@keras.saving.register_keras_serializable(package="lodestar")
class PartitionedEmbeddingVariable(ShardedEmbeddingVariable):
    """An EmbeddingVariable that partitions its rows over `devices`.

    A hash of the id selects the device. A lookup deduplicates its ids, fetches each
    row from its device once, and pools bags and sums gradients locally.
    """

    def _make_parts(self) -> tuple[TablePart, ...]:
        gpu = gpu_in_scope()
        if self._given_devices is None and gpu is not None:
            self._given_devices = [gpu]
        # None in the config, so that it also loads in another cluster.
        self._devices = check_devices(
            self._given_devices or strategies.servers()
        )
        on_one_gpu = len(self._devices) == 1 and on_gpu(self._devices[0])
        if self._shared_row_count and not on_one_gpu:
            raise NotImplementedError(
                f"The table '{self.name}' has "
                f"default_row={self._shared_rows!r}, which `devices` supports "
                "for a single GPU only. Use default_row='initial' or a vector."
            )
        attributes = self._attributes()
        check_library(self.name, self._devices)
        evictions = shares(self._eviction, len(self._devices))
        return tuple(
            self._make_part(
                device, {**attributes, **policies.own_attributes(own)}
            )
            for device, own in zip(self._devices, evictions, strict=True)
        )

    @property
    def resource_handle(self) -> tf.Tensor:
        """Refuses: no single handle holds all rows.

        Raises:
            NotImplementedError: Always.
        """
        raise NotImplementedError(
            f"{self!r} is on {list(self.devices)}, so no single handle has its "
            "rows. Use the methods of the table."
        )

    def _saved_children(self, save_type: str) -> dict[str, Any]:
        if save_type == "savedmodel" and any(map(is_remote, self.devices)):
            raise NotImplementedError(
                f"{self!r} is on {list(self.devices)}, but a SavedModel needs "
                "its rows in one process. Restore it from a snapshot, a "
                "tf.train.Checkpoint or by load_weights into a table made without "
                "`devices`, and export that."
            )
        return super()._saved_children(save_type)

    @property
    def devices(self) -> tuple[str, ...]:
        """The devices that hold the rows."""
        return self._devices

    def get_config(self) -> dict[str, Any]:
        config = super().get_config()
        if self._given_devices is None:
            config["devices"] = None
        return config

    def __repr__(self) -> str:
        return f"{super().__repr__()[:-1]} devices={len(self._devices)}>"

    def _lookup(
        self, feature: FeatureAttrs, inputs: FeatureInputs, **options: Any
    ) -> tf.Tensor:
        if (
            len(self._parts) > 1
            or feature.combiner is not None
            or not on_gpu(self._parts[0].device)
        ):
            return super()._lookup(feature, inputs, **options)
        # The GPU does it all, so ids need no deduplication here.
        (part,) = self._parts
        hook, _, missing = self._collection_inputs()
        _, missing_row = part.lookup_inputs()
        with part.on_device():
            return embedding_ops.lookup_rows(
                part.resource_handle,
                hook,
                inputs.ids,
                missing_row,
                missing=missing,
                padding_id=feature.padding_id,
                **options,
            )

    def _import_all(
        self, saved: Mapping[str, Any], mode: str = "replace"
    ) -> tf.Operation | None:
        """Loads what `_export_all` returned, atomically on each device.

        If the rows of a capped table exceed the share of a device, `MaxRows` selects
        the rows that are left out.
        """
        self._slots.restored()
        of_parts = self._divided(saved, len(self._parts), mode)
        done = each(
            "load_rows",
            self._parts,
            lambda i, part: part.import_(of_parts[i], mode),
        )
        return None if tf.executing_eagerly() else tf.group(*done)


PlacedTable._on_devices = PartitionedEmbeddingVariable
