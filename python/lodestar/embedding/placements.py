"""Where the rows of a table are: in this process, on devices or on workers."""

import struct
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import tensorflow as tf

from lodestar._resource import gpu_in_scope
from lodestar.embedding import (
    partitioned_lookup,
    policies,
    strategies,
    table_parts,
    workers,
)
from lodestar.embedding.devices import (
    check_devices,
    check_library,
    is_remote,
    on_gpu,
)
from lodestar.embedding.saved_state import NAMES
from lodestar.embedding.workers import Workers
from lodestar.ops import embedding_ops, embedding_partition_ops
from lodestar.ops.embedding_collection_ops import (
    FeatureAttrs,
    FeatureInputs,
    collection_lookup,
)

# An EmbeddingVariable, which imports this module.
Table = Any
# The content of a table, or of a part, by checkpoint name.
Content = Mapping[str, Any]

_FIRST_VALUES = struct.Struct("<qq")
# Equal in all parts of a table.
_EQUAL = (
    "optimizer",
    "slot_names",
    "slot_inits",
    "counters",
    "shared_rows",
    "shared_slots",
)


def choose(devices: Any) -> "InProcess":
    """Returns the placement of a new table with the argument `devices`."""
    if workers.of_strategy() is not None:
        if devices is not None:
            raise NotImplementedError(
                "`devices` is given under MultiWorkerMirroredStrategy, "
                "whose workers hold the rows. Leave it out."
            )
        return OnWorkers()
    gpu = gpu_in_scope()
    if devices is None and gpu is not None:
        devices = [gpu]
    servers = strategies.servers()
    if devices is None and not servers:
        return InProcess()
    return OnDevices(devices, servers)


def _lookup_rows(
    table: Table, feature: FeatureAttrs, inputs: FeatureInputs, **options: Any
) -> tf.Tensor:
    """Looks ids up in a table of one part, on its device."""
    (part,) = table._parts
    hook, missing_row, missing = table._collection_inputs()
    scope = embedding_ops.on_cpu_in_graphs()
    if part.device is not None:
        _, missing_row = part.lookup_inputs()
        scope = part.on_device()
    with scope:
        return embedding_ops.lookup_rows(
            part.resource_handle,
            hook,
            inputs.ids,
            missing_row,
            missing=missing,
            padding_id=feature.padding_id,
            **options,
        )


class InProcess:
    """One part in this process.

    Attributes:
        devices: The devices that hold the rows, or None.
        workers: The workers that share the rows, if several do.
    """

    devices: tuple[str, ...] | None = None
    workers: Workers | None = None

    def evictions(self, table: Table) -> Sequence[tuple[Any, ...]]:
        """Checks a new table; returns the eviction policies of its parts."""
        return [table._eviction]

    def __deepcopy__(self, memo: dict[int, Any]) -> "InProcess":
        return self  # immutable

    def config(self) -> list[str] | None:
        """Returns the argument `devices` that makes such a table."""
        return None

    def suffix(self) -> str:
        """Returns what `repr` of a table adds."""
        return ""

    def check_saved_model(self, table: Table) -> None:
        """Raises NotImplementedError if no SavedModel can have the rows."""

    def check_async_checkpoint(self, table: Table) -> None:
        """Raises RuntimeError if an asynchronous checkpoint cannot have the rows."""

    def lookup(
        self,
        table: Table,
        feature: FeatureAttrs,
        inputs: FeatureInputs,
        **options: Any,
    ) -> tf.Tensor:
        """Looks up ids or bags, with options of `lookup_rows`."""
        if feature.combiner is None:
            return _lookup_rows(table, feature, inputs, **options)
        hook, missing_row, missing = table._collection_inputs()
        with embedding_ops.on_cpu_in_graphs():
            return collection_lookup(
                [table._parts[0].resource_handle],
                [hook],
                [missing_row],
                [missing],
                [feature],
                [inputs],
                **options,
            )[0]

    def find(self, table: Table, ids: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """See EmbeddingVariable.find."""
        hook, missing_row, _ = table._collection_inputs()
        handle = table._parts[0].resource_handle
        return embedding_ops.find(handle, hook, ids, missing_row)

    def divide_rows(
        self, ids: tf.Tensor, rows: tf.Tensor
    ) -> Sequence[tuple[tf.Tensor, tf.Tensor]]:
        """Returns the ids and rows of each part of this process."""
        return [(ids, rows)]

    def divide_content(
        self, table: Table, saved: Content, mode: str
    ) -> Sequence[Content]:
        """Returns the saved content of each part of this process.

        If the rows of a capped table exceed the share of a part, `MaxRows` selects
        the rows that are left out.
        """
        return [saved]

    def gather_content(
        self, table: Table, own: dict[str, tf.Tensor]
    ) -> dict[str, tf.Tensor]:
        """Returns the content of the table from that of this process."""
        return own


class _Partitioned(InProcess):
    """Parts in several places, divided by a hash of the id."""

    def lookup(
        self,
        table: Table,
        feature: FeatureAttrs,
        inputs: FeatureInputs,
        **options: Any,
    ) -> tf.Tensor:
        """Fetches each row once, from where it is."""
        (rows,) = partitioned_lookup.lookup(
            [table], [feature], [inputs], **options
        )
        return rows

    def find(self, table: Table, ids: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Fetches each row once, from where it is."""
        return partitioned_lookup.find(table, ids)


class OnDevices(_Partitioned):
    """A part on each of `devices`, which default to the parameter servers.

    A hash of the id selects the device. A lookup deduplicates its ids, fetches each
    row from its device once, and pools bags and sums gradients locally.
    """

    devices: tuple[str, ...]

    def __init__(self, devices: Any, servers: Sequence[str]):
        self.devices = check_devices(devices or servers)
        self._are_servers = devices is None

    def evictions(self, table: Table) -> Sequence[tuple[Any, ...]]:
        """Checks a new table; returns the share of each device."""
        on_one_gpu = len(self.devices) == 1 and on_gpu(self.devices[0])
        if table._shared_row_count and not on_one_gpu:
            raise NotImplementedError(
                f"The table '{table.name}' has "
                f"default_row={table._shared_rows!r}, which `devices` supports "
                "for a single GPU only. Use default_row='initial' or a vector."
            )
        check_library(table.name, self.devices)
        return table_parts.shares(table._eviction, len(self.devices))

    def config(self) -> list[str] | None:
        """Returns the devices, or None if they are all servers."""
        # None for servers, so that it also loads in another cluster.
        return None if self._are_servers else list(self.devices)

    def suffix(self) -> str:
        """Returns the number of devices."""
        return f" devices={len(self.devices)}"

    def check_saved_model(self, table: Table) -> None:
        """Raises NotImplementedError if rows are on servers."""
        if any(map(is_remote, self.devices)):
            raise NotImplementedError(
                f"{table!r} is on {list(self.devices)}, but a SavedModel needs "
                "its rows in one process. Restore it from a snapshot, a "
                "tf.train.Checkpoint or by load_weights into a table made without "
                "`devices`, and export that."
            )

    def lookup(
        self,
        table: Table,
        feature: FeatureAttrs,
        inputs: FeatureInputs,
        **options: Any,
    ) -> tf.Tensor:
        """Looks ids up on a single GPU, or fetches each row once."""
        if (
            len(self.devices) > 1
            or feature.combiner is not None
            or not on_gpu(self.devices[0])
        ):
            return super().lookup(table, feature, inputs, **options)
        # The GPU does it all, so ids need no deduplication here.
        return _lookup_rows(table, feature, inputs, **options)

    def divide_rows(
        self, ids: tf.Tensor, rows: tf.Tensor
    ) -> Sequence[tuple[tf.Tensor, tf.Tensor]]:
        """Returns the share of each device."""
        return embedding_partition_ops.partition_rows(
            ids, rows, len(self.devices)
        )

    def divide_content(
        self, table: Table, saved: Content, mode: str
    ) -> Sequence[Content]:
        """Returns the share of each device."""
        return _divided(table, saved, len(self.devices), mode)


class OnWorkers(_Partitioned):
    """A part in each worker of a MultiWorkerMirroredStrategy.

    A hash of the id selects the process that holds its row. In `lookup` and
    `find`, which all replicas must call together inside `strategy.run`, each
    process receives the rows of its own ids. `export` and checkpoints cover the
    whole table and must be called by all workers. Other methods read or remove
    the rows of this process only.
    """

    workers: Workers

    def __init__(self) -> None:
        found = workers.of_strategy()
        assert found is not None
        self.workers = found
        self._strategy = tf.distribute.get_strategy()

    def evictions(self, table: Table) -> Sequence[tuple[Any, ...]]:
        """Checks a new table; returns the share of this worker."""
        if table._shared_row_count:
            raise NotImplementedError(
                f"The table '{table.name}' has {table._shared_rows!r}, which "
                "MultiWorkerMirroredStrategy does not support. Use "
                "default_row='initial' or a vector."
            )
        if table._row_dtype == tf.bfloat16:
            raise NotImplementedError(
                f"The table '{table.name}' has dtype 'bfloat16', in which "
                "TensorFlow's MultiWorkerMirroredStrategy cannot create "
                "variables. Use 'float16' or 'float32'."
            )
        count, index, replicas = self.workers
        if replicas > 1:
            raise NotImplementedError(
                f"The table '{table.name}' is made under workers with "
                f"{replicas} replicas each. Give each worker of "
                "MultiWorkerMirroredStrategy one device."
            )
        # A table without a name draws a different seed in each process.
        words = _FIRST_VALUES.pack(table._seed, table._salt)
        table._seed, table._salt = _FIRST_VALUES.unpack(self.exchange(words)[0])
        return [table_parts.shares(table._eviction, count)[index]]

    def exchange(self, text: bytes) -> list[bytes]:
        """Returns the `text` of each worker. All workers must call it."""
        return workers.exchange(self._strategy, text)

    def suffix(self) -> str:
        """Returns the number of workers."""
        return f" workers={self.workers.count}"

    def check_saved_model(self, table: Table) -> None:
        """Raises NotImplementedError."""
        raise NotImplementedError(
            f"The rows of {table!r} are partitioned over workers, but a "
            "SavedModel needs them in one process. Restore a snapshot or "
            "checkpoint in a process without a strategy, and export the model "
            "there."
        )

    def check_async_checkpoint(self, table: Table) -> None:
        """Raises RuntimeError."""
        raise RuntimeError(
            f"{table!r} cannot be in an asynchronous checkpoint: the workers of "
            "MultiWorkerMirroredStrategy must gather its rows between two "
            "steps. Save without `experimental_enable_async_checkpoint`, or "
            "write a snapshot (lodestar.snapshot)."
        )

    def divide_rows(
        self, ids: tf.Tensor, rows: tf.Tensor
    ) -> Sequence[tuple[tf.Tensor, tf.Tensor]]:
        """Returns the share of this worker."""
        of_workers = embedding_partition_ops.partition_rows(
            ids, rows, self.workers.count
        )
        return [of_workers[self.workers.index]]

    def divide_content(
        self, table: Table, saved: Content, mode: str
    ) -> Sequence[Content]:
        """Returns the share of this worker."""
        of_workers = _divided(table, saved, self.workers.count, mode)
        return [of_workers[self.workers.index]]

    def gather_content(
        self, table: Table, own: dict[str, tf.Tensor]
    ) -> dict[str, tf.Tensor]:
        """Returns the content of all workers, which must all call it."""
        if not tf.executing_eagerly():
            self.check_saved_model(table)
        slots = "optimizer_slots"  # [S, N, W], gathered along N
        own[slots] = tf.transpose(own[slots], [1, 0, 2])
        names = [name for name in NAMES if name not in _EQUAL]
        of_workers = workers.of_each(
            self._strategy, [own[name] for name in names]
        )
        parts = [{**own, **dict(zip(names, arrays))} for arrays in of_workers]
        for part in parts:
            part[slots] = tf.transpose(part[slots], [1, 0, 2])
        return table_parts.merged(parts)


def _divided(
    table: Table, saved: Content, count: int, mode: str
) -> list[dict[str, tf.Tensor]]:
    """Divides saved content over `count` parts, each within its share of a cap."""
    of_parts = table_parts.divided(saved, count)
    caps = [p for p in table._eviction if isinstance(p, policies.MaxRows)]
    if mode != "replace" or not caps:
        return of_parts
    (cap,) = caps
    sizes = [tf.size(part["ids"]) for part in of_parts]
    # The op refuses more rows than the cap, as without `devices`.
    fits = tf.add_n(sizes) <= cap.n
    kept = [
        table_parts.within(
            tf.where(fits, own.n, size), cap.policy == "lfu", part
        )
        for (own,), size, part in zip(
            table_parts.shares([cap], count), sizes, of_parts
        )
    ]
    left_out = tf.add_n(sizes) - tf.add_n([tf.size(k["ids"]) for k in kept])
    if tf.executing_eagerly() and int(left_out):
        warnings.warn(
            f"{table!r} leaves out {int(left_out)} of {int(sum(sizes))} rows: "
            f"each part has room for its share of {cap!r}.",
            stacklevel=2,
        )
    return kept
