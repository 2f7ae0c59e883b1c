"""What a table on several devices consists of."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import tensorflow as tf

from lodestar import _private
from lodestar._library import gen_ops
from lodestar._resource import SharedResource, naming_devices
from lodestar.embedding import policies, saved_state
from lodestar.ops import embedding_partition_ops, id_hash

# What is saved of each row, of each id that waits, and the axis of these.
_BY_ROW = {
    "rows": 0,
    "optimizer_slots": 1,
    "frequencies": 0,
    "last_seen": 0,
}
_BY_PENDING = {"pending_sightings": 0, "pending_last_seen": 0}


class TablePart(SharedResource):
    """The rows of a table that are on one device, or in this process.

    Args:
        name: The table's.
        device: Where they are; None: in this process.
        attributes: Those of the op EmbeddingVariable.
        missing_row: What an id without a row reads: `[dim]`, or `[0]`.
        update_dtype: The table's.
    """

    def __init__(
        self,
        name: str,
        device: str | None,
        attributes: dict[str, Any],
        missing_row: Any,
        update_dtype: tf.DType,
    ):
        super().__init__(name, device)
        self._attributes = attributes
        self._missing_row = missing_row
        self.update_dtype = update_dtype
        with tf.init_scope():
            _ = self.resource_handle
            self._eager_constants = self._constants()

    def _make_resource(self, shared_name: str, container: str) -> tf.Tensor:
        return gen_ops.lodestar_embedding_variable(
            shared_name=shared_name, container=container, **self._attributes
        )

    def _take_content(self, other: "TablePart") -> None:
        self.import_(other.export())

    def export(
        self, optimizer_slots: bool = True, with_rows: bool = True
    ) -> dict[str, tf.Tensor]:
        """Returns the content by the names of a checkpoint."""
        outputs = self.call(
            gen_ops.lodestar_embedding_export,
            optimizer_slots=optimizer_slots,
            with_rows=with_rows,
            dtype=self._attributes["dtype"],
            slot_dtype=self.update_dtype,
        )
        return dict(zip(saved_state.NAMES, outputs, strict=True))

    def import_(
        self, saved: Mapping[str, Any], mode: str = "replace"
    ) -> tf.Operation | None:
        """Takes what `export` returned, atomically."""
        result: tf.Operation | None = self.call(
            gen_ops.lodestar_embedding_import,
            *(saved[name] for name in saved_state.NAMES),
            mode=mode,
        )
        return result

    def call(self, op: Callable[..., Any], *inputs: Any, **attrs: Any) -> Any:
        """Runs `op`, whose first input is the handle, where the rows lie."""
        with self.on_device():
            return op(self.resource_handle, *inputs, **attrs)

    def lookup_inputs(self) -> tuple[tf.Tensor, tf.Tensor]:
        """A hook that gets no gradient, and `missing_row`."""
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
    """What saves a table of one part in the graph of a SavedModel.

    Args:
        table: The table.
        exported: What stands for the part in that graph, when it is saved.
    """

    def __init__(self, table: Any, exported: Mapping[Any, Any]):
        super().__init__()
        # Not as attributes of a module, which would track them.
        object.__setattr__(self, "_table", table)
        object.__setattr__(self, "_in_graph", exported)

    def _tensors_to_save(self) -> dict[str, tf.Tensor]:
        part = self._in_graph[self._table.parts[0]]
        return saved_state.to_checkpoint(
            part.export(saved_state.with_optimizer_slots())
        )

    def _restore_tensors(self, saved: Mapping[str, tf.Tensor]) -> Any:
        part = self._in_graph[self._table.parts[0]]
        return part.import_(saved_state.from_checkpoint(self._table, saved))


def shares(policy: Any, count: int) -> list[Any]:
    """`policy` of a table for each of its parts: those of MaxRows sum to n.

    Raises:
        ValueError: There are more parts than rows.
    """
    if not isinstance(policy, policies.MaxRows):
        return [policy] * count
    if policy.n < count:
        raise ValueError(
            f"{policy!r} leaves no row for some of {count} `devices`; wanted "
            "one for each at least."
        )
    whole, rest = divmod(policy.n, count)
    return [
        policies.MaxRows(whole + (i < rest), policy.policy)
        for i in range(count)
    ]


def each(
    what: str, parts: Sequence[TablePart], run: Callable[[int, TablePart], Any]
) -> list[Any]:
    """Runs something on all parts; an error names those where it was done."""
    results = []
    for i, part in enumerate(parts):
        with naming_devices(what, [done.device for done in parts[:i]]):
            results.append(run(i, part))
    return results


def by_id(
    parts: Sequence[TablePart],
    ids: tf.Tensor,
    run: Callable[[TablePart, tf.Tensor], Sequence[tf.Tensor]],
) -> list[tf.Tensor]:
    """What `run` gives for the ids of each part, in the order of `ids`.

    Args:
        parts: P.
        ids: int64 `[N]`.
        run: Returns tensors `[N_p, ...]` for ids `[N_p]`.
    """
    of_parts, places = embedding_partition_ops.partition(ids, len(parts))
    results = [run(part, own) for part, own in zip(parts, of_parts)]
    return [
        embedding_partition_ops.assemble(column, places)
        for column in zip(*results, strict=True)
    ]


def merged(parts: Sequence[Mapping[str, tf.Tensor]]) -> dict[str, tf.Tensor]:
    """What one table would save, of what its parts save."""
    first = dict(parts[0])
    if len(parts) == 1:
        return first

    def joined(names: Mapping[str, int], ids: str) -> None:
        first[ids] = tf.concat([part[ids] for part in parts], 0)
        order = tf.argsort(first[ids])
        first[ids] = tf.gather(first[ids], order)
        for name, axis in names.items():
            column = tf.concat([part[name] for part in parts], axis)
            # Of rows that are left out there are only the ids.
            there = order[: tf.shape(column)[axis]]
            first[name] = tf.gather(column, there, axis=axis)

    joined(_BY_ROW, "ids")
    joined(_BY_PENDING, "pending_ids")
    counters = [part["sketch"] for part in parts]
    for sketch in counters[1:]:
        first["sketch"] = tf.maximum(first["sketch"], sketch)
    return first


def divided(saved: Mapping[str, Any], count: int) -> list[dict[str, tf.Tensor]]:
    """What is saved of one table, by the parts of another."""
    parts: list[dict[str, Any]] = [dict(saved) for _ in range(count)]

    def divide(names: Mapping[str, int], ids: str) -> None:
        all_ids = tf.convert_to_tensor(saved[ids], tf.int64)
        own_ids, places = embedding_partition_ops.partition(all_ids, count)
        # Where each part's ids are among all of them.
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
    """What is saved without the rows that `MaxRows(cap)` evicts first."""
    # Unsigned, as signed numbers.
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
