"""The embedding variable whose rows lie on several devices."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import keras
import tensorflow as tf

from lodestar._checks import check_eager
from lodestar._library import gen_ops
from lodestar._resource import gpu_in_scope
from lodestar.embedding import ids as ids_lib
from lodestar.embedding import (
    policies,
    strategies,
    table_parts,
)
from lodestar.embedding import stats as stats_lib
from lodestar.embedding.devices import check_devices, check_library, on_gpu
from lodestar.embedding.embedding_variable import STATES, EmbeddingVariable
from lodestar.embedding.rows import InspectedIds
from lodestar.embedding.spread_variable import SpreadEmbeddingVariable
from lodestar.embedding.table_parts import TablePart, by_id, each
from lodestar.ops import embedding_collection_ops as collection_ops
from lodestar.ops import embedding_ops, embedding_partition_ops
from lodestar.ops.flat_values import map_flat


@keras.saving.register_keras_serializable(package="lodestar")
class PartitionedEmbeddingVariable(SpreadEmbeddingVariable):
    """What `EmbeddingVariable(devices=...)` makes.

    The row of an id lies on the device that a hash of the id names. A lookup
    sends each distinct id to its device once and gets a row back; bags are
    pooled, and gradients of equal ids summed, where the lookup is. All
    methods are those of EmbeddingVariable.
    """

    def __init__(
        self, output_dim: int, *args: Any, devices: Any = None, **kwargs: Any
    ):
        gpu = gpu_in_scope()
        if devices is None and gpu is not None:
            devices = [gpu]
        # None stays None where the strategy says which, for another cluster.
        self._given_devices = devices
        self._devices = devices = check_devices(devices or strategies.servers())
        super().__init__(output_dim, *args, devices=devices, **kwargs)

    def _make_parts(self) -> tuple[TablePart, ...]:
        if self.shared_rows:
            raise NotImplementedError(
                f"The table '{self.name}' has "
                f"default_row={self._shared_rows!r}, rows that are not of one "
                "id and so of no one of `devices`: use "
                "default_row='initial' or a vector."
            )
        attributes = self._attributes()
        check_library(self.name, self._devices)
        evictions = zip(
            *(
                table_parts.shares(policy, len(self._devices))
                for policy in self._eviction
            )
        )
        return tuple(
            self._make_part(device, {**attributes, **policies.attributes(own)})
            for device, own in zip(
                self._devices, [*evictions] or [()] * len(self._devices)
            )
        )

    @property
    def resource_handle(self) -> tf.Tensor:
        """None that holds all rows.

        Raises:
            NotImplementedError: Always.
        """
        raise NotImplementedError(
            f"{self!r} lies on {list(self.devices)}, which this does not take: "
            "restore it from a snapshot, a tf.train.Checkpoint or by load_weights "
            "into a table made without `devices`."
        )

    def _saved_children(self, save_type: str) -> dict[str, Any]:
        if save_type == "savedmodel":
            _ = self.resource_handle
        return super()._saved_children(save_type)

    @property
    def devices(self) -> tuple[str, ...]:
        """Those that the rows are spread over."""
        return self._devices

    @property
    def counts_occurrences(self) -> bool:
        """Whether each occurrence of an id in a lookup is a sighting."""
        return bool(self._attributes().get("count_occurrences"))

    def get_config(self) -> dict[str, Any]:
        config = super().get_config()
        if self._given_devices is None:
            config["devices"] = None
        return config

    def __repr__(self) -> str:
        return f"{super().__repr__()[:-1]} devices={len(self._devices)}>"

    def _lookup(
        self,
        feature: collection_ops.FeatureAttrs,
        inputs: collection_ops.FeatureInputs,
        **options: Any,
    ) -> tf.Tensor:
        if (
            len(self.parts) > 1
            or feature.combiner is not None
            or not on_gpu(self.parts[0].device)
        ):
            return super()._lookup(feature, inputs, **options)
        # All of it on that GPU: ids need not be made distinct here.
        (part,) = self.parts
        hook, _, missing = self.collection_inputs()
        _, missing_row = part.lookup_inputs()
        of_ids = (part.resource_handle, hook, inputs.ids, missing_row)
        misses: Any = {"missing": missing, "padding_id": feature.padding_id}
        with part.on_device():
            if options["insert"] or options["count"]:
                return embedding_ops.find_or_insert(
                    *of_ids, **(options | misses)
                )
            return embedding_ops.find(*of_ids, **misses)[0]

    def _each(
        self, op: Callable[..., Any], *inputs: Any, **attrs: Any
    ) -> list[Any]:
        """Runs an op of the same arguments on all parts."""
        return each(
            op.__name__, self.parts, lambda _, p: p.call(op, *inputs, **attrs)
        )

    def _sum(self, op: Callable[..., Any], **attrs: Any) -> tf.Tensor:
        return tf.add_n(self._each(op, **attrs))

    @property
    def step(self) -> tf.Tensor:
        """As that of EmbeddingVariable; one for all devices."""
        return self.parts[0].call(gen_ops.lodestar_embedding_step)

    def set_step(self, step: Any) -> None:
        """As that of EmbeddingVariable, on all devices."""
        if step is None:
            self._each(gen_ops.lodestar_embedding_release_step)
            return
        step = ids_lib.to_int64(step, name="step")
        self._each(gen_ops.lodestar_embedding_set_step, step)

    def insert_or_assign(self, ids: Any, rows: Any) -> None:
        """As that of EmbeddingVariable."""
        divided = embedding_partition_ops.partition_rows(
            ids_lib.to_dense_int64(ids, "insert_or_assign"),
            ids_lib.to_numbers(rows, "rows", self.row_dtype),
            len(self.parts),
        )
        each(
            "insert_or_assign",
            self.parts,
            lambda i, part: part.call(
                gen_ops.lodestar_embedding_insert_or_assign, *divided[i]
            ),
        )

    def remove(self, ids: Any) -> tf.Tensor:
        """As that of EmbeddingVariable."""
        ids = tf.reshape(ids_lib.to_dense_int64(ids, "remove"), [-1])
        of_parts, _ = embedding_partition_ops.partition(ids, len(self.parts))
        return tf.add_n(
            each(
                "remove",
                self.parts,
                lambda i, part: part.call(
                    gen_ops.lodestar_embedding_remove, of_parts[i]
                ),
            )
        )

    def _count(self) -> tf.Tensor:
        return self._sum(gen_ops.lodestar_embedding_size)

    def evict(
        self,
        policy: policies.Eviction | Sequence[policies.Eviction] | None = None,
    ) -> tf.Tensor:
        """As that of EmbeddingVariable; `MaxRows(n)` is shared out."""
        chosen = [
            table_parts.shares(p, len(self.parts))
            for p in policies.check_eviction(policy, "policy")
        ]
        return tf.add_n(
            each(
                "evict",
                self.parts,
                lambda i, part: part.call(
                    gen_ops.lodestar_embedding_evict,
                    own_policy=policy is None,
                    **policies.attributes([own[i] for own in chosen]),
                ),
            )
        )

    def decay_frequencies(self, rate: float) -> None:
        """As that of EmbeddingVariable, on all devices."""
        rate = tf.cast(rate, tf.float64)
        self._each(gen_ops.lodestar_embedding_decay_frequencies, rate)

    def clear(self) -> None:
        """As that of EmbeddingVariable, on all devices."""
        self._each(gen_ops.lodestar_embedding_clear)

    def compact(self) -> tf.Tensor:
        """As that of EmbeddingVariable, on all devices."""
        return self._sum(gen_ops.lodestar_embedding_compact)

    def frequency(self, ids: Any) -> Any:
        """As that of EmbeddingVariable."""

        def of_ids(flat: tf.Tensor) -> tf.Tensor:
            (frequencies,) = self._by_id(
                flat,
                lambda part, own: [
                    part.call(gen_ops.lodestar_embedding_frequency, own)
                ],
            )
            return tf.reshape(frequencies, tf.shape(flat))

        return map_flat(of_ids, ids_lib.to_int64(ids))

    def _by_id(self, ids: tf.Tensor, run: Any) -> list[tf.Tensor]:
        return by_id(self.parts, tf.reshape(ids, [-1]), run)

    def stats(self, reset: bool = False) -> dict[str, Any]:
        """As that of EmbeddingVariable, sums, and `per_part`."""
        check_eager("stats")
        of_parts = [
            (values.numpy(), shards.numpy())
            for values, shards in self._each(
                gen_ops.lodestar_embedding_stats, reset=reset
            )
        ]
        return stats_lib.of_parts(self.devices, of_parts)

    def inspect(self, ids: Any) -> InspectedIds:
        """As that of EmbeddingVariable; shards are numbered over all devices."""
        check_eager("inspect")
        ids = ids_lib.to_dense_int64(ids, "inspect")
        names: list[str] = []
        first_shards, count = {}, 0
        for part, (_, shards) in zip(
            self.parts, self._each(gen_ops.lodestar_embedding_stats)
        ):
            first_shards[id(part)] = count
            count += int(shards.shape[0])

        def of_part(part: TablePart, own: tf.Tensor) -> Sequence[tf.Tensor]:
            rows, slots, slot_names, *others = part.call(
                gen_ops.lodestar_embedding_inspect,
                own,
                dtype=self.row_dtype,
                slot_dtype=self.update_dtype,
            )
            names[:] = [name.decode() for name in slot_names.numpy()]
            frequencies, last_seen, shards, states = others
            shards += first_shards[id(part)]
            slots = tf.transpose(slots, [1, 0, 2])
            return [rows, slots, frequencies, last_seen, shards, states]

        rows, slots, frequencies, last_seen, shards, states = self._by_id(
            ids, of_part
        )
        return InspectedIds(
            ids=ids,
            rows=rows,
            optimizer_slots=dict(zip(names, tf.unstack(slots, axis=1))),
            frequencies=frequencies,
            last_seen=last_seen,
            shards=shards,
            states=[STATES[state] for state in states.numpy()],
        )

    def export_all(
        self, optimizer_slots: bool = True, with_rows: bool = True
    ) -> dict[str, tf.Tensor]:
        """As that of EmbeddingVariable: as if there were one device."""
        self.check_followed()
        return table_parts.merged(
            each(
                "export",
                self.parts,
                lambda _, part: part.export(optimizer_slots, with_rows),
            )
        )

    def import_all(
        self, saved: Mapping[str, Any], mode: str = "replace"
    ) -> tf.Operation | None:
        """As that of EmbeddingVariable, whole or not at all on each device.

        Rows that a table with fewer devices had under a cap, and that one of
        these has no room for, are left out, as `MaxRows` evicts them.
        """
        self.slots.restored()
        of_parts = self._divided(saved, len(self.parts), mode)
        done = each(
            "load_rows",
            self.parts,
            lambda i, part: part.import_(of_parts[i], mode),
        )
        return None if tf.executing_eagerly() else tf.group(*done)


EmbeddingVariable.on_devices = PartitionedEmbeddingVariable
