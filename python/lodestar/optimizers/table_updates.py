"""Applies the gradients of one step to tables."""

import weakref
from collections.abc import Sequence
from typing import Any, NamedTuple

import tensorflow as tf

from lodestar._library import gen_ops
from lodestar._resource import naming_devices
from lodestar.embedding.devices import first_gpu, on_gpu
from lodestar.embedding.embedding_variable import EmbeddingVariable
from lodestar.embedding.table_parts import Job, TablePart
from lodestar.embedding.table_variable import TableVariable
from lodestar.ops.embedding_partition_ops import partition_rows
from lodestar.optimizers import update_attempt
from lodestar.optimizers.gradients import merge_duplicates
from lodestar.optimizers.row_optimizers import RowUpdate
from lodestar.optimizers.unfused import UnfusedUpdate
from lodestar.optimizers.update_attempt import UpdateAttempt

# Value of `next_step` that keeps the table's step.
_SAME_STEP = -2
# Ops that compute the gradient of a table from one lookup.
_LOOKUP_GRADIENTS = (
    "Lodestar>EmbeddingGradient",
    "Lodestar>EmbeddingCollectionGradient",
)
# Suffix of the name of a table of gradient sums.
GRADIENT_SUM = "_gradient_sum"


class TableUpdate(NamedTuple):
    """One update of a table.

    Attributes:
        table: The table, or one of its parts.
        gradient: Rows `[N, dim]` by int64 id, in float32; rows of
            equal ids are summed.
        update: The update rule.
        next_step: The table's step afterwards; -1 advances it.
        create_missing: Whether to create rows of missing ids instead of dropping
            their gradients. Not supported for unfused optimizers.
        additions: Number of such updates in a sum of gradients before it restarts;
            0 if the rows are no sums.
    """

    table: Any
    gradient: tf.IndexedSlices
    update: RowUpdate | UnfusedUpdate
    next_step: Any = -1
    create_missing: bool = False
    additions: int = 0


def apply_updates(
    updates: Sequence[TableUpdate],
    nonfinite: str,
    emptied: Sequence[EmbeddingVariable] = (),
) -> list[tf.Operation]:
    """Applies updates of several tables, atomically if `nonfinite` is "raise".

    Tables in `emptied` lose all rows in the same step. In a graph, returns the
    operations to wait for.
    """
    if not updates and not emptied:
        return []
    of_parts = [of_part for u in updates for of_part in _of_parts(u)]
    attempt = update_attempt.current()
    if attempt is not None:
        if emptied or any(u.additions for u in of_parts):
            raise NotImplementedError(
                "gradient_accumulation_steps is not supported if a lost worker's "
                "step may run again. Use larger batches."
            )
        return _stage_and_commit(of_parts, nonfinite, attempt)
    groups = _by_device(of_parts, [x for t in emptied for x in t._parts])
    checks = []
    if nonfinite == "raise" and (
        len(groups) > 1
        or not groups[0].is_one_op
        or any(u.additions for u in of_parts)
    ):
        # An op checks its own sums before it writes; errors of other ops and of
        # later updates must be found before that.
        checks = [_check(u) for u in of_parts]
    with tf.control_dependencies(checks):
        return _on_each_device(groups, nonfinite)


def _stage_and_commit(
    updates: Sequence[TableUpdate], nonfinite: str, attempt: UpdateAttempt
) -> list[tf.Operation]:
    """Lets all tasks check their updates before the first one writes.

    Updates of unfused optimizers, or without a log on their device, are not staged
    and are written last.
    """
    of_logs: dict[str, list[TableUpdate]] = {}
    others = []
    for u in updates:
        device = attempt.device_of(u.table)
        if device is not None and isinstance(u.update, RowUpdate):
            of_logs.setdefault(device, []).append(u)
        else:
            # Advances the step, whatever the steps of other workers made it.
            others.append(u._replace(next_step=-1))
    stages = {
        device: _staging(of_log, nonfinite, attempt, device)
        for device, of_log in of_logs.items()
    }
    checks = [_check(u) for u in others] if nonfinite == "raise" else []
    written = attempt.commit(stages, checks)
    if not others:
        return written
    with tf.control_dependencies(written):
        return _on_each_device(_by_device(others), nonfinite)


def _staging(
    updates: Sequence[TableUpdate],
    nonfinite: str,
    attempt: UpdateAttempt,
    device: str,
) -> Job:
    """Returns a function that stages updates on one device."""
    log, own = attempt.logs[device], attempt.attempts[device]

    def stage(name: tf.Tensor, *given: tf.Tensor) -> list[tf.Tensor]:
        done = []
        for i, u in enumerate(updates):
            assert isinstance(u.update, RowUpdate)
            done.append(
                u.table.call(
                    gen_ops.lodestar_embedding_stage,
                    *given[3 * i : 3 * i + 3],
                    tf.constant(-1, tf.int64),
                    *(log.resource_handle, own, name),
                    optimizer=u.update.optimizer,
                    slot_inits=u.update.slot_inits,
                    create_missing=u.create_missing,
                    nonfinite=nonfinite,
                )
            )
        with tf.control_dependencies(done):
            return [tf.constant(True)]

    inputs = []
    for u in updates:
        assert isinstance(u.update, RowUpdate)
        numbers = tf.convert_to_tensor(u.update.hyperparameters)
        inputs += [u.gradient.indices, u.gradient.values, numbers]
    return Job(device, stage, inputs)


def _of_parts(u: TableUpdate) -> list[TableUpdate]:
    """Returns the updates of a table's parts, which all get its next step."""
    parts: Sequence[TablePart] = u.table._parts
    if len(parts) == 1:
        return [u._replace(table=parts[0])]
    gpu = first_gpu(parts)
    if gpu is None:
        pieces = [(merge_duplicates(u.gradient), "CPU")]
    else:
        # Each lookup has summed its rows by id. Parts sum over several lookups.
        pieces = [(x, _gpu_of(x.values) or gpu) for x in _pieces(u.gradient)]
    divided = []
    for piece, device in pieces:
        with tf.device(device):
            rows = tf.cast(piece.values, tf.float32)
        divided.append(partition_rows(piece.indices, rows, len(parts), device))
    of_parts = []
    for part, shares in zip(parts, zip(*divided), strict=True):
        ids, rows = shares[0]
        if len(shares) > 1:
            with part.on_device():
                ids, rows = (tf.concat(x, 0) for x in zip(*shares))
        gradient = tf.IndexedSlices(rows, ids)
        of_parts.append(u._replace(table=part, gradient=gradient))
    return of_parts


def _gpu_of(tensor: tf.Tensor) -> str | None:
    """Returns the GPU of a tensor; in a graph, the one that was asked for."""
    device: str = tensor.device
    return device if device and on_gpu(device) else None


def _pieces(gradient: tf.IndexedSlices) -> list[tf.IndexedSlices]:
    """Splits a gradient that was concatenated from several lookups' gradients.

    In a graph, each piece then stays on the GPU that computed it, and the
    concatenation is pruned. An eager gradient is already on one device.
    """
    values = gradient.values
    if not tf.is_symbolic_tensor(values):
        return [gradient]
    if values.op.type == "Cast":  # of 16-bit rows to the dtype of updates
        values = values.op.inputs[0]
    return _of_lookups(values, gradient.indices) or [gradient]


def _of_lookups(values: tf.Tensor, ids: tf.Tensor) -> list[tf.IndexedSlices]:
    """Returns the gradients of lookups that `values` consists of, or []."""
    op = values.op
    if op.type in _LOOKUP_GRADIENTS:
        return [tf.IndexedSlices(values, ids)]
    if op.type != "ConcatV2" or ids.op.type != "ConcatV2":
        return []
    *rows, axis = op.inputs
    *indices, _ = ids.op.inputs
    if tf.get_static_value(axis) != 0 or len(rows) != len(indices):
        return []
    pieces = [_of_lookups(*both) for both in zip(rows, indices, strict=True)]
    return [x for found in pieces for x in found] if all(pieces) else []


class _Group(NamedTuple):
    """Updates and removals on one device, which are one step of it."""

    part: TablePart  # the first
    updates: list[TableUpdate]
    emptied: list[TablePart]

    @property
    def is_one_op(self) -> bool:
        """Whether there are only fused updates."""
        return not self.emptied and all(
            isinstance(u.update, RowUpdate) for u in self.updates
        )


def _by_device(
    updates: Sequence[TableUpdate], emptied: Sequence[TablePart] = ()
) -> list[_Group]:
    groups: dict[str | None, _Group] = {}

    def group(part: TablePart) -> _Group:
        return groups.setdefault(part.device, _Group(part, [], []))

    for u in updates:
        group(u.table).updates.append(u)
    for part in emptied:
        group(part).emptied.append(part)
    return list(groups.values())


def _on_each_device(
    groups: Sequence[_Group], nonfinite: str
) -> list[tf.Operation]:
    # No device's step waits for another's, so that steps that are held up by
    # snapshots on several devices cannot deadlock.
    applied: list[tf.Operation] = []
    for i, group in enumerate(groups):
        done = [other.part.device for other in groups[:i]]
        with naming_devices("An optimizer step", done), group.part.on_device():
            if group.is_one_op:
                applied += _apply_fused(group.updates, nonfinite)
            else:
                applied += _apply_as_one_step(group, nonfinite)
    return applied


def _apply_as_one_step(group: _Group, nonfinite: str) -> list[tf.Operation]:
    """Applies all in one step, so that a snapshot has all of it or nothing."""
    handles = [u.table.resource_handle for u in group.updates]
    emptied = [part.resource_handle for part in group.emptied]
    fused = [u for u in group.updates if isinstance(u.update, RowUpdate)]
    unfused = [u for u in group.updates if not isinstance(u.update, RowUpdate)]
    step = gen_ops.lodestar_begin_step([*handles, *emptied])
    try:
        with tf.control_dependencies([step]):
            applied = _apply_fused(fused, nonfinite, inside_step=True)
        # After the op that may find a table full and then changes nothing.
        with tf.control_dependencies(applied or [step]):
            applied += [_apply(u, nonfinite, inside_step=True) for u in unfused]
        # Last, so that waiting gradients are not lost if an update fails.
        with tf.control_dependencies(applied):
            applied += [
                gen_ops.lodestar_embedding_remove_all(x) for x in emptied
            ]
    except BaseException:
        if tf.executing_eagerly():
            gen_ops.lodestar_end_step(step, [], [])
        raise
    next_steps = [tf.cast(u.next_step, tf.int64) for u in group.updates]
    with tf.control_dependencies(applied):
        return [gen_ops.lodestar_end_step(step, handles, next_steps)]


def _check(u: TableUpdate) -> Any:
    return u.table.call(
        gen_ops.lodestar_embedding_check_apply,
        *(u.gradient.indices, u.gradient.values),
        optimizer=u.update.optimizer,
        slot_names=u.update.slot_names,
        additions=u.additions,
    )


def _apply_fused(
    updates: Sequence[TableUpdate], nonfinite: str, inside_step: bool = False
) -> list[tf.Operation]:
    """Applies updates with fused rules atomically."""
    if not updates:
        return []
    if len(updates) == 1:
        return [_apply(updates[0], nonfinite, inside_step)]
    rules = [u.update for u in updates if isinstance(u.update, RowUpdate)]
    return [
        gen_ops.lodestar_embedding_apply_all(
            [u.table.resource_handle for u in updates],
            [u.gradient.indices for u in updates],
            [u.gradient.values for u in updates],
            [rule.hyperparameters for rule in rules],
            [_next_step(u, inside_step) for u in updates],
            optimizers=[rule.optimizer for rule in rules],
            slot_inits=[init for rule in rules for init in rule.slot_inits],
            create_missing=[u.create_missing for u in updates],
            nonfinite=nonfinite,
            inside_step=inside_step,
        )
    ]


def _apply(u: TableUpdate, nonfinite: str, inside_step: bool = False) -> Any:
    next_step = _next_step(u, inside_step)
    if isinstance(u.update, UnfusedUpdate):
        return u.update.unfused.apply(
            u.table,
            u.update,
            u.gradient.indices,
            u.gradient.values,
            next_step,
            nonfinite,
        )
    return gen_ops.lodestar_embedding_apply(
        u.table.resource_handle,
        u.gradient.indices,
        u.gradient.values,
        u.update.hyperparameters,
        next_step,
        optimizer=u.update.optimizer,
        slot_inits=u.update.slot_inits,
        create_missing=u.create_missing,
        nonfinite=nonfinite,
        inside_step=inside_step,
    )


def _next_step(u: TableUpdate, inside_step: bool) -> Any:
    # Inside a step, its end sets the steps of all tables.
    return tf.cast(_SAME_STEP if inside_step else u.next_step, tf.int64)


class GradientSum(tf.Module):
    """The sum of a table's gradients over several steps, itself a table."""

    def __init__(self, table: TableVariable):
        super().__init__()
        self._table = weakref.ref(table)
        self.sums = EmbeddingVariable(
            table.output_dim,
            embeddings_initializer="zeros",
            seed=(0, 0),
            devices=table.devices,
            name=f"{table.name}{GRADIENT_SUM}",
        )

    @property
    def table(self) -> TableVariable | None:
        """The table whose gradients are summed, or None once it is deleted."""
        return self._table()

    def addition(self, gradient: tf.IndexedSlices, steps: int) -> TableUpdate:
        """Returns the update that adds `gradient`: SGD with learning rate -1."""
        add = RowUpdate("sgd", [], tf.constant([-1.0, 0.0]))
        return TableUpdate(
            self.sums, gradient, add, create_missing=True, additions=steps
        )

    def mean(self, steps: int) -> tf.IndexedSlices:
        """Returns the sum divided by `steps`."""
        rows = self.sums._export_all(optimizer_slots=False)
        return tf.IndexedSlices(
            rows["rows"] / steps,
            rows["ids"],
            tf.constant([-1, self.sums.output_dim], tf.int32),
        )
