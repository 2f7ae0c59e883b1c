"""The parts of a table on several devices."""

import dataclasses
import functools
import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import tensorflow as tf

from lodestar import _private
from lodestar._library import gen_ops
from lodestar._resource import SharedResource, naming_devices
from lodestar.embedding import policies, saved_state
from lodestar.embedding.devices import is_remote
from lodestar.embedding.rows import InspectedIds
from lodestar.ops import embedding_partition_ops, id_hash
from lodestar.ops.packing import Parcel

# Saved tensors with one item per row, or per waiting id, and its axis.
_BY_ROW = {
    "rows": 0,
    "optimizer_slots": 1,
    "frequencies": 0,
    "last_seen": 0,
}
_BY_PENDING = {"pending_sightings": 0, "pending_last_seen": 0}
# States of an id, by the number that EmbeddingInspect returns.
_STATES = ("missing", "pending", "resident")


class TablePart(SharedResource):
    """The rows of a table on one device, or in this process.

    Args:
        name: Name of the table.
        device: Device of the rows, or None for this process.
        attributes: Attributes of the EmbeddingVariable op.
        missing_row: Row for an id without one: `[dim]`, or `[0]`.
    """

    def __init__(
        self,
        name: str,
        device: str | None,
        attributes: dict[str, Any],
        missing_row: Any,
    ):
        super().__init__(name, device)
        self._attributes = attributes
        self._missing_row = missing_row
        with tf.init_scope():
            _ = self.resource_handle
            self._eager_constants = self._constants()

    def _make_resource(self, shared_name: str, container: str) -> tf.Tensor:
        stored_as = saved_state.stored_dtype(self._attributes["dtype"])
        return gen_ops.lodestar_embedding_variable(
            shared_name=shared_name,
            container=container,
            stored_as=stored_as or "same",
            **self._attributes,
        )

    def _take_content(self, other: "TablePart") -> None:
        self.import_(other.export())

    def export(
        self, optimizer_slots: bool = True, with_rows: bool = True
    ) -> dict[str, tf.Tensor]:
        """Returns the content by checkpoint name."""
        outputs = self.call(
            gen_ops.lodestar_embedding_export,
            optimizer_slots=optimizer_slots,
            with_rows=with_rows,
            dtype=self._attributes["dtype"],
        )
        return dict(zip(saved_state.NAMES, outputs, strict=True))

    def import_(
        self, saved: Mapping[str, Any], mode: str = "replace"
    ) -> tf.Operation | None:
        """Loads what `export` returned, atomically."""
        result: tf.Operation | None = self.call(
            gen_ops.lodestar_embedding_import,
            *(saved[name] for name in saved_state.NAMES),
            mode=mode,
        )
        return result

    def call(self, op: Callable[..., Any], *inputs: Any, **attrs: Any) -> Any:
        """Runs `op`, whose first input is the handle, on the part's device."""
        with self.on_device():
            return op(self.resource_handle, *inputs, **attrs)

    def lookup_inputs(self) -> tuple[tf.Tensor, tf.Tensor]:
        """Returns a hook without a gradient, and `missing_row`."""
        if tf.executing_eagerly():
            return self._eager_constants
        return self._constants()

    def _constants(self) -> tuple[tf.Tensor, tf.Tensor]:
        with self.on_device():
            dtype = self._attributes["dtype"]
            return (
                tf.zeros([0, self._attributes["dim"]], dtype),
                tf.constant(self._missing_row, dtype),
            )


class ExportedTable(_private.Saved, tf.Module):
    """Saves a table in the graph of a SavedModel.

    `exported` maps its parts to their counterparts in that graph.
    """

    def __init__(self, table: Any, exported: Mapping[Any, Any]):
        super().__init__()
        # As attributes of a module they would be tracked.
        object.__setattr__(self, "_table", table)
        object.__setattr__(self, "_in_graph", exported)

    def _tensors_to_save(self) -> dict[str, tf.Tensor]:
        with_slots = saved_state.with_optimizer_slots()
        return saved_state.to_checkpoint(
            self._table.name,
            merged([part.export(with_slots) for part in self._parts()]),
        )

    def _restore_tensors(self, saved: Mapping[str, tf.Tensor]) -> Any:
        content = saved_state.from_checkpoint(self._table, saved)
        divide = self._table._placement.divide_content
        of_parts = divide(self._table, content, "replace")
        return tf.group(
            *(part.import_(own) for part, own in zip(self._parts(), of_parts))
        )

    def _parts(self) -> list[TablePart]:
        return [self._in_graph[part] for part in self._table._parts]


def shares(
    of_table: Sequence[policies.Eviction], count: int
) -> list[tuple[Any, ...]]:
    """Returns the eviction policies of each of a table's `count` parts.

    The caps of the parts sum to the cap of the table, which must be at least `count`.
    """
    return [*zip(*(_shares(p, count) for p in of_table))] or [()] * count


def _shares(policy: policies.Eviction, count: int) -> list[Any]:
    if not isinstance(policy, policies.MaxRows):
        return [policy] * count
    if policy.n < count:
        raise ValueError(
            f"{policy!r} is below the number of parts, {count}. Each part "
            "needs room for at least one row."
        )
    if policy.when_full == "raise" and count > 1:
        raise NotImplementedError(
            f"{policy!r} is not supported for a table in {count} parts, which "
            "fill up one by one. Use when_full='evict', or a single device."
        )
    whole, rest = divmod(policy.n, count)
    return [
        dataclasses.replace(policy, n=whole + (i < rest)) for i in range(count)
    ]


def each(
    what: str, parts: Sequence[TablePart], run: Callable[[int, TablePart], Any]
) -> list[Any]:
    """Runs a function on all parts; an error names the devices already done."""
    results = []
    for i, part in enumerate(parts):
        with naming_devices(what, [done.device for done in parts[:i]]):
            results.append(run(i, part))
    return results


class Job(NamedTuple):
    """A function that runs on a device.

    Attributes:
        device: The device, or None for this process.
        run: The function, which returns tensors.
        inputs: Its arguments.
    """

    device: str | None
    run: Callable[..., Sequence[tf.Tensor]]
    inputs: Sequence[tf.Tensor] = ()


def run_all(jobs: Sequence[Job]) -> list[list[tf.Tensor]]:
    """Runs functions, with a `Parcel` to and from each other process.

    TensorFlow would send each tensor in a message of its own. Results for other
    processes need known dimensions apart from the first.
    """
    results: dict[int, list[tf.Tensor]] = {}
    of_servers: dict[str, list[int]] = {}
    for number, job in enumerate(jobs):
        device = job.device
        if tf.executing_eagerly() or device is None or not is_remote(device):
            results[number] = list(job.run(*job.inputs))
        else:
            of_servers.setdefault(device, []).append(number)
    for device, numbers in of_servers.items():
        found = _run_there(device, [jobs[number] for number in numbers])
        results.update(zip(numbers, found, strict=True))
    return [results[number] for number in range(len(jobs))]


def _run_there(device: str, jobs: Sequence[Job]) -> list[list[tf.Tensor]]:
    sent = Parcel.of([tensor for job in jobs for tensor in job.inputs])
    with tf.device(device):
        given = iter(sent.unpack())
        found = [
            list(job.run(*itertools.islice(given, len(job.inputs))))
            for job in jobs
        ]
        results = Parcel.of([tensor for own in found for tensor in own])
    received = iter(results.unpack())
    return [[*itertools.islice(received, len(own))] for own in found]


class Call(NamedTuple):
    """A function that runs in the parts of a table, for their shares of some ids.

    Attributes:
        table: The EmbeddingVariable.
        ids: Int64 `[N]`; unique, for a table of several workers.
        run: Returns tensors `[N_p, ...]` for a part and its share `[N_p]` of the ids.
        device: The device of the results.
        columns: Further arguments of `run`, int64 `[N]`, which are divided as well.
    """

    table: Any
    ids: tf.Tensor
    run: Callable[..., Sequence[tf.Tensor]]
    device: str = "CPU"
    columns: Sequence[tf.Tensor] = ()

    def divide(
        self, count: int
    ) -> tuple[list[tuple[tf.Tensor, ...]], tf.Tensor]:
        """Divides the ids and columns among `count` parts.

        Returns their shares, and the places of the ids in the concatenated shares.
        """
        of_parts, places = embedding_partition_ops.partition(self.ids, count)
        divided = [
            [
                share
                for _, share in embedding_partition_ops.partition_rows(
                    self.ids, column, count
                )
            ]
            for column in self.columns
        ]
        return [*zip(of_parts, *divided, strict=True)], places


def by_id(calls: Sequence[Call]) -> list[list[tf.Tensor]]:
    """Returns the results of functions in the order of their ids."""
    jobs: list[Job] = []
    places: list[Any] = []
    for call in calls:
        parts = call.table._parts
        if parts[0].device is None:
            shares: Sequence[Sequence[tf.Tensor]] = [(call.ids, *call.columns)]
            places.append(None)
        else:
            shares, own_places = call.divide(len(parts))
            places.append(own_places)
        jobs += [
            Job(part.device, functools.partial(call.run, part), share)
            for part, share in zip(parts, shares, strict=True)
        ]
    found = iter(run_all(jobs))
    results = []
    for call, own_places in zip(calls, places, strict=True):
        of_call = [next(found) for _ in call.table._parts]
        results.append(
            of_call[0]
            if own_places is None
            else [
                embedding_partition_ops.assemble(
                    column, own_places, call.device
                )
                for column in zip(*of_call, strict=True)
            ]
        )
    return results


def frequencies(table: Any, ids: tf.Tensor) -> tf.Tensor:
    """Returns the frequencies of `ids` of any shape."""
    call = Call(
        table,
        tf.reshape(ids, [-1]),
        lambda part, own: [
            part.call(gen_ops.lodestar_embedding_frequency, own)
        ],
    )
    [(found,)] = by_id([call])
    return tf.reshape(found, tf.shape(ids))


def inspect(table: Any, ids: tf.Tensor) -> InspectedIds:
    """Inspects `ids` in all parts, whose shards are numbered consecutively."""
    names: list[str] = []
    first_shards, count = {}, 0
    for part in table._parts:
        first_shards[id(part)] = count
        if part is not table._parts[-1]:
            _, shards = part.call(gen_ops.lodestar_embedding_stats)
            count += int(shards.shape[0])

    def of_part(part: TablePart, own: tf.Tensor) -> Sequence[tf.Tensor]:
        rows, slots, slot_names, frequencies, last_seen, shards, states = (
            part.call(
                gen_ops.lodestar_embedding_inspect,
                own,
                dtype=table._row_dtype,
            )
        )
        names[:] = [name.decode() for name in slot_names.numpy()]
        shards += first_shards[id(part)]
        slots = tf.transpose(slots, [1, 0, 2])
        return [rows, slots, frequencies, last_seen, shards, states]

    [(rows, slots, frequencies, last_seen, shards, states)] = by_id(
        [Call(table, ids, of_part)]
    )
    return InspectedIds(
        ids=ids,
        rows=rows,
        optimizer_slots=dict(zip(names, tf.unstack(slots, axis=1))),
        frequencies=frequencies,
        last_seen=last_seen,
        shards=shards,
        states=[_STATES[state] for state in states.numpy()],
    )


def merged(parts: Sequence[Mapping[str, tf.Tensor]]) -> dict[str, tf.Tensor]:
    """Merges the saved content of all parts, as one table would save it."""
    first = dict(parts[0])
    if len(parts) == 1:
        return first

    def joined(names: Mapping[str, int], ids: str) -> None:
        first[ids] = tf.concat([part[ids] for part in parts], 0)
        order = tf.argsort(first[ids])
        first[ids] = tf.gather(first[ids], order)
        for name, axis in names.items():
            column = tf.concat([part[name] for part in parts], axis)
            # Without rows, only the ids are saved.
            there = order[: tf.shape(column)[axis]]
            first[name] = tf.gather(column, there, axis=axis)

    joined(_BY_ROW, "ids")
    joined(_BY_PENDING, "pending_ids")
    counters = [part["sketch"] for part in parts]
    for sketch in counters[1:]:
        first["sketch"] = tf.maximum(first["sketch"], sketch)
    return first


def divided(saved: Mapping[str, Any], count: int) -> list[dict[str, tf.Tensor]]:
    """Divides saved content over `count` parts."""
    parts: list[dict[str, Any]] = [dict(saved) for _ in range(count)]

    def divide(names: Mapping[str, int], ids: str) -> None:
        all_ids = tf.convert_to_tensor(saved[ids], tf.int64)
        own_ids, places = embedding_partition_ops.partition(all_ids, count)
        # Indices of each part's ids among all ids.
        order = tf.argsort(places)
        owned = tf.split(order, [tf.size(x) for x in own_ids], num=count)
        for part, own, index in zip(parts, own_ids, owned):
            part[ids] = own
            for name, axis in names.items():
                part[name] = tf.gather(saved[name], index, axis=axis)

    divide(_BY_ROW, "ids")
    divide(_BY_PENDING, "pending_ids")
    return parts


def within(
    cap: tf.Tensor, lfu: bool, saved: Mapping[str, tf.Tensor]
) -> dict[str, tf.Tensor]:
    """Drops the rows that `MaxRows(cap)` evicts first from saved content."""
    # Flipping the sign bit sorts int64 as unsigned.
    order = tf.argsort(
        tf.bitwise.bitwise_xor(id_hash.mixed(saved["ids"]), tf.int64.min)
    )
    keys = ["last_seen"] + ["frequencies"] * lfu
    for key in keys:
        by_key = tf.argsort(tf.gather(saved[key], order), stable=True)
        order = tf.gather(order, by_key)
    kept = tf.sort(order[tf.maximum(tf.size(order) - cap, 0) :])
    result = dict(saved, ids=tf.gather(saved["ids"], kept))
    for name, axis in _BY_ROW.items():
        result[name] = tf.gather(saved[name], kept, axis=axis)
    return result
