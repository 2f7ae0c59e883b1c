"""Gradients of one step, into the tables that they belong to."""

import weakref
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import tensorflow as tf

from lodestar._library import gen_ops
from lodestar._resource import SharedResource, naming_devices
from lodestar.embedding.devices import on_gpu
from lodestar.embedding.embedding_variable import EmbeddingVariable
from lodestar.embedding.table_variable import TableVariable
from lodestar.ops.embedding_partition_ops import partition_rows
from lodestar.optimizers import update_attempt
from lodestar.optimizers.gradients import merge_duplicates
from lodestar.optimizers.replay import ReplayUpdate
from lodestar.optimizers.row_optimizers import RowUpdate
from lodestar.optimizers.update_attempt import UpdateAttempt

# As EmbeddingApply takes it: the table's step stays as it is.
_SAME_STEP = -2
# Behind the name of a table: that of the table of its sums.
GRADIENT_SUM = "_gradient_sum"


class TableUpdate(NamedTuple):
    """One update of a table.

    Attributes:
        table: What is updated; for an op, one of its parts.
        gradient: Rows `[N, dim]` by id; those of equal ids are summed.
        update: How.
        next_step: The table's step afterwards; -1 advances it.
        create_missing: Makes rows of ids without one, in place of dropping
            their gradients; not where the update is replayed.
        additions: The rows are sums to which so many such updates are added
            before they start again; 0: they are not.
    """

    table: Any
    gradient: tf.IndexedSlices
    update: RowUpdate | ReplayUpdate
    next_step: Any = -1
    create_missing: bool = False
    additions: int = 0


def apply_updates(
    updates: Sequence[TableUpdate],
    nonfinite: str,
    emptied: Sequence[EmbeddingVariable] = (),
) -> list[tf.Operation]:
    """Applies `updates` of several tables, or none where `nonfinite` is "raise".

    Tables that are `emptied` lose all their rows in the same step. Returns, in a
    graph, the operations that have then run.
    """
    if not updates and not emptied:
        return []
    _check_gpus(updates, emptied)
    updates = [of_part for u in updates for of_part in _of_parts(u)]
    attempt = update_attempt.current()
    if attempt is not None:
        if emptied or any(u.additions for u in updates):
            raise NotImplementedError(
                "gradient_accumulation_steps is not supported where a lost "
                "worker's step is run again. Use larger batches."
            )
        return _stage_and_commit(updates, nonfinite, attempt)
    by_device: dict[str | None, _Group] = {}
    for u in updates:
        _group(by_device, u.table).updates.append(u)
    for table in emptied:
        for part in table.parts:
            _group(by_device, part).emptied.append(part)
    checks = []
    if nonfinite == "raise" and (
        len(by_device) > 1
        or not next(iter(by_device.values())).is_one_op
        or any(u.additions for u in updates)
    ):
        # An op looks at its own sums before it writes; what another one would
        # refuse, or what a later one would, must be known before, too.
        checks = [_check(u) for u in updates]
    with tf.control_dependencies(_operations(checks)):
        return _on_each_device(by_device, nonfinite)


def _check_gpus(
    updates: Sequence[TableUpdate], emptied: Sequence[EmbeddingVariable]
) -> None:
    """Refuses what tables in the memory of GPUs do not take."""
    for u in updates:
        replayed = isinstance(u.update, ReplayUpdate)
        if (replayed or u.additions) and on_gpu(u.table.parts[0].device):
            raise NotImplementedError(
                f"{u.table!r} lies on a GPU, where "
                + (
                    "only optimizers with a rule of the op library train rows; "
                    f"found {u.update.optimizer!r}."
                    if replayed
                    else "gradients are not added up over steps; found "
                    "gradient_accumulation_steps."
                )
            )
    if any(on_gpu(table.parts[0].device) for table in emptied):
        raise NotImplementedError(
            "gradient_accumulation_steps is not supported for tables on a GPU."
        )


def _stage_and_commit(
    updates: Sequence[TableUpdate], nonfinite: str, attempt: UpdateAttempt
) -> list[tf.Operation]:
    """All tasks have checked what they are to write before the first writes.

    What is replayed, or lies where no log is, is not staged, and is written
    last.
    """
    staged = []
    others: dict[str | None, _Group] = {}
    for u in updates:
        log_inputs = attempt.stage_inputs(u.table)
        if log_inputs is not None and isinstance(u.update, RowUpdate):
            staged.append(_stage(u, u.update, nonfinite, log_inputs))
            continue
        # One more, whatever the steps of other workers have made of it.
        _group(others, u.table).updates.append(u._replace(next_step=-1))
        if nonfinite == "raise":
            staged.append(_check(u))
    # All meet here, and not each task with each other one.
    with tf.control_dependencies(staged):
        all_staged = tf.no_op()
    with tf.control_dependencies([all_staged]):
        written = attempt.commit()
    if not others:
        return written
    with tf.control_dependencies(written):
        return _on_each_device(others, nonfinite)


def _stage(
    u: TableUpdate,
    update: RowUpdate,
    nonfinite: str,
    log_inputs: tuple[tf.Tensor, tf.Tensor, tf.Tensor],
) -> Any:
    with u.table.on_device():
        return gen_ops.lodestar_embedding_stage(
            u.table.resource_handle,
            tf.cast(u.gradient.indices, tf.int64),
            tf.cast(u.gradient.values, u.table.update_dtype),
            update.hyperparameters,
            tf.constant(-1, tf.int64),
            *log_inputs,
            optimizer=update.optimizer,
            slot_inits=update.slot_inits,
            create_missing=u.create_missing,
            nonfinite=nonfinite,
        )


def _of_parts(u: TableUpdate) -> list[TableUpdate]:
    """The updates of a table's parts, which all take its next step."""
    parts = u.table.parts
    if len(parts) == 1:
        return [u._replace(table=parts[0])]
    merged = merge_duplicates(
        tf.IndexedSlices(
            tf.cast(u.gradient.values, u.table.update_dtype),
            tf.cast(u.gradient.indices, tf.int64),
        )
    )
    shared_out = partition_rows(merged.indices, merged.values, len(parts))
    return [
        u._replace(table=part, gradient=tf.IndexedSlices(rows, ids))
        for part, (ids, rows) in zip(parts, shared_out, strict=True)
    ]


class _Group(NamedTuple):
    """What is done on one device, as one step of it."""

    updates: list[TableUpdate]
    emptied: list[SharedResource]

    @property
    def is_one_op(self) -> bool:
        """Whether nothing is done but updates by rules of the op."""
        return not self.emptied and all(
            isinstance(u.update, RowUpdate) for u in self.updates
        )


def _group(by_device: dict[str | None, _Group], part: SharedResource) -> _Group:
    return by_device.setdefault(part.device, _Group([], []))


def _on_each_device(
    by_device: Mapping[str | None, _Group], nonfinite: str
) -> list[tf.Operation]:
    # No device's step waits for another's, so that steps that snapshots hold
    # up on several devices never wait for each other.
    applied: list[tf.Operation] = []
    for i, group in enumerate(by_device.values()):
        updates, emptied = group
        table = updates[0].table if updates else emptied[0]
        with (
            naming_devices("An optimizer step", list(by_device)[:i]),
            table.on_device(),
        ):
            applied += _apply_on_device(group, nonfinite)
    return applied


def _apply_on_device(group: _Group, nonfinite: str) -> list[tf.Operation]:
    if not group.is_one_op:
        return _apply_as_one_step(*group, nonfinite)
    if len(group.updates) == 1:
        return _operations([_apply(group.updates[0], nonfinite)])
    return _operations([_apply_all(group.updates, nonfinite)])


def _apply_as_one_step(
    updates: Sequence[TableUpdate],
    emptied: Sequence[SharedResource],
    nonfinite: str,
) -> list[tf.Operation]:
    """A snapshot that is taken meanwhile has all of them or none."""
    handles = [u.table.resource_handle for u in updates]
    step = gen_ops.lodestar_begin_step(
        handles or [part.resource_handle for part in emptied]
    )
    try:
        with tf.control_dependencies(_operations([step])):
            applied = _operations(
                [_apply(u, nonfinite, inside_step=True) for u in updates]
            )
        # Last, so that what waits is not lost where an update fails.
        with tf.control_dependencies(applied):
            applied += _operations(
                [
                    gen_ops.lodestar_embedding_remove_all(part.resource_handle)
                    for part in emptied
                ]
            )
    except BaseException:
        if tf.executing_eagerly():
            gen_ops.lodestar_end_step(step, [], [])
        raise
    next_steps = [tf.cast(u.next_step, tf.int64) for u in updates]
    with tf.control_dependencies(applied):
        return _operations(
            [gen_ops.lodestar_end_step(step, handles, next_steps)]
        )


def _check(u: TableUpdate) -> Any:
    with u.table.on_device():
        return gen_ops.lodestar_embedding_check_apply(
            u.table.resource_handle,
            tf.cast(u.gradient.indices, tf.int64),
            tf.cast(u.gradient.values, u.table.update_dtype),
            optimizer=u.update.optimizer,
            slot_names=u.update.slot_names,
            additions=u.additions,
        )


def _apply(u: TableUpdate, nonfinite: str, inside_step: bool = False) -> Any:
    # The steps of all tables move at the end of what they are updated in.
    next_step = tf.cast(_SAME_STEP if inside_step else u.next_step, tf.int64)
    if isinstance(u.update, ReplayUpdate):
        return u.update.replay.apply(
            u.table, u.update, u.gradient, next_step, nonfinite
        )
    return gen_ops.lodestar_embedding_apply(
        u.table.resource_handle,
        tf.cast(u.gradient.indices, tf.int64),
        tf.cast(u.gradient.values, u.table.update_dtype),
        u.update.hyperparameters,
        next_step,
        optimizer=u.update.optimizer,
        slot_inits=u.update.slot_inits,
        create_missing=u.create_missing,
        nonfinite=nonfinite,
        inside_step=inside_step,
    )


def _apply_all(updates: Sequence[TableUpdate], nonfinite: str) -> Any:
    rules = [u.update for u in updates if isinstance(u.update, RowUpdate)]
    return gen_ops.lodestar_embedding_apply_all(
        [u.table.resource_handle for u in updates],
        [tf.cast(u.gradient.indices, tf.int64) for u in updates],
        [tf.cast(u.gradient.values, u.table.update_dtype) for u in updates],
        [rule.hyperparameters for rule in rules],
        [tf.cast(u.next_step, tf.int64) for u in updates],
        optimizers=[rule.optimizer for rule in rules],
        slot_inits=[init for rule in rules for init in rule.slot_inits],
        create_missing=[u.create_missing for u in updates],
        nonfinite=nonfinite,
    )


def _operations(results: list[Any]) -> list[tf.Operation]:
    return [] if tf.executing_eagerly() else results


class GradientSum(tf.Module):
    """The sum of one table's gradients over several steps, itself a table."""

    def __init__(self, table: TableVariable):
        super().__init__()
        self._table = weakref.ref(table)
        self.sums = EmbeddingVariable(
            table.output_dim,
            embeddings_initializer="zeros",
            seed=(0, 0),
            dtype=table.update_dtype,
            devices=table.devices,
            name=f"{table.name}{GRADIENT_SUM}",
        )

    @property
    def table(self) -> TableVariable | None:
        """The table whose gradients are summed; None when it is gone."""
        return self._table()

    def addition(self, gradient: tf.IndexedSlices, steps: int) -> TableUpdate:
        """What adds `gradient`, one of `steps`: SGD of learning rate -1."""
        add = RowUpdate("sgd", [], tf.constant([-1.0, 0.0]))
        return TableUpdate(
            self.sums, gradient, add, create_missing=True, additions=steps
        )

    def mean(self, steps: int) -> tf.IndexedSlices:
        """Returns the sum divided by `steps`."""
        rows = self.sums.export_all(optimizer_slots=False)
        return tf.IndexedSlices(
            rows["rows"] / steps,
            rows["ids"],
            tf.constant([-1, self.sums.output_dim], tf.int32),
        )
