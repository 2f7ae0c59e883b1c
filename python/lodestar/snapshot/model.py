"""Saves and restores models, reader positions and tables."""

import dataclasses
import os
from collections.abc import Mapping
from typing import Any, Literal, overload

import keras
import numpy as np
import tensorflow as tf

from lodestar._arguments import explained
from lodestar._checks import check_model_first
from lodestar._typing import StrPath
from lodestar.ops.compile_line import compiled_optimizer
from lodestar.schema import model_schema
from lodestar.snapshot import blobs, model_variables, schema_file
from lodestar.snapshot.errors import SnapshotError, listed
from lodestar.snapshot.folder import SnapshotFolder
from lodestar.snapshot.found_tables import (
    FoundTables,
    HasTables,
    find_tables,
    tables_of_optimizer,
)
from lodestar.snapshot.info import SnapshotInfo
from lodestar.snapshot.manifest import Manifest
from lodestar.snapshot.restoring import (
    OnExtra,
    OnMissing,
    OptimizerSlots,
    Plan,
    Read,
    RestoreOptions,
    RestoreReport,
    with_version,
)
from lodestar.snapshot.resumable_dataset import ResumableDataset
from lodestar.snapshot.saving import (
    DENSE,
    Content,
    PendingSnapshot,
    begin,
    dense_arrays,
)
from lodestar.snapshot.together import Together

WEIGHT = "weight/"
_OPTIMIZER = "optimizer/"
_READER = "reader"


@overload
def save(
    model: HasTables,
    path: StrPath,
    delta: bool = False,
    *,
    iterator: ResumableDataset | tf.data.Iterator | None = None,
    dense: Mapping[str, Any] | None = None,
    metadata: Mapping[str, Any] | None = None,
    step: int | None = None,
    blocking: Literal[True] = True,
) -> SnapshotInfo: ...


@overload
def save(
    model: HasTables,
    path: StrPath,
    delta: bool = False,
    *,
    iterator: ResumableDataset | tf.data.Iterator | None = None,
    dense: Mapping[str, Any] | None = None,
    metadata: Mapping[str, Any] | None = None,
    step: int | None = None,
    blocking: Literal[False],
) -> PendingSnapshot: ...


@overload
def save(
    model: HasTables,
    path: StrPath,
    delta: bool = False,
    *,
    iterator: ResumableDataset | tf.data.Iterator | None = None,
    dense: Mapping[str, Any] | None = None,
    metadata: Mapping[str, Any] | None = None,
    step: int | None = None,
    blocking: bool,
) -> SnapshotInfo | PendingSnapshot: ...


@explained()
def save(
    model: HasTables,
    path: StrPath,
    delta: bool = False,
    *,
    iterator: ResumableDataset | tf.data.Iterator | None = None,
    dense: Mapping[str, Any] | None = None,
    metadata: Mapping[str, Any] | None = None,
    step: int | None = None,
    blocking: bool = True,
) -> SnapshotInfo | PendingSnapshot:
    """Writes a model or tables to a new version in a snapshot folder.

    For a Keras model, saves everything that training resumes from: tables,
    weights, random seeds, the optimizer's variables, accumulated gradients, and
    the schema if the model has one (`Schema.of`).

    All tables are copied at one point in time between two optimizer steps;
    tables on several devices at one point per device. Training and lookups
    continue while files are written. A version appears atomically, so a crash
    never leaves a partial one. Save models between two steps, as callbacks do.

    >>> info = lodestar.snapshot.save(model, "snapshots")
    >>> info = lodestar.snapshot.save(model, "snapshots", delta=True)

    Args:
        model: A built Keras model, compiled if its optimizer is to be saved.
            Or only tables: an EmbeddingVariable, IdTable, IdLookup, layer or
            module that has some, a list of these, or a dict that names them.
            Names must be unique. Id tables are always written whole.
        path: Path to a folder on a local or mounted file system; created if
            needed.
        delta: If True, writes only the rows that changed since the newest
            version. A table that the newest version lacks, or whose changes
            since then are unknown, is written whole, as are weights.
        iterator: A ResumableDataset, or an iterator of a `tf.data.Dataset`,
            whose position is saved.
        dense: Name -> variable, tensor or array of numbers. Copied right after
            the tables, so consistent with them if no step runs at that time.
            `restore` returns them as `dense` of its report.
        metadata: JSON values by name, stored with the version.
        step: Step of the version. Defaults to the optimizer's iterations, or
            without an optimizer to the largest step of the tables.
        blocking: If False, returns at once and a thread writes the files. With
            several workers, each must call `save`, and all wait for the files.

    Returns:
        A `SnapshotInfo`, or a `PendingSnapshot` if `blocking` is False.

    Raises:
        TypeError: `model` and `path` are swapped.
        ValueError: An argument is invalid, or the model is not built.
        SnapshotError: Another process or thread writes to the folder, or the
            newest version there has a later format.
        OSError, tf.errors.OpError: A file cannot be written (names it). The
            folder has no new version, and the next delta loses nothing.
    """
    check_model_first("snapshot.save", model, path)
    dense_copies = dense_arrays(dense)
    checkpoint = _checkpoint(iterator)
    schema = None
    if isinstance(model, keras.Model):
        optimizer = _built_optimizer(model)
        schema = model_schema.schema_or_none(model)
        if optimizer is not None and step is None:
            step = int(keras.ops.convert_to_numpy(optimizer.iterations))
    tables = find_tables(model)

    def arrays() -> dict[str, np.ndarray]:
        if not isinstance(model, keras.Model):
            return dense_copies()
        variables = {
            WEIGHT: model_variables.weights(model),
            _OPTIMIZER: model_variables.optimizer_variables(
                model, tables.embeddings
            ),
        }
        return dense_copies() | {
            prefix + name: blobs.to_array(prefix + name, variable)
            for prefix, named in variables.items()
            for name, variable in named.items()
        }

    def write_files(folder: str) -> list[str]:
        names = schema_file.write(schema, folder)
        if checkpoint is None:
            return names
        checkpoint.write(os.path.join(folder, _READER))
        return names + sorted(
            name for name in os.listdir(folder) if name.startswith(_READER)
        )

    content = Content(_with_optimizer(tables, model), arrays, write_files)
    return begin(
        path, content, delta, metadata=metadata, step=step, blocking=blocking
    )


def restore_values(model: keras.Model, path: StrPath, version: int) -> None:
    """Restores tables and weights, but not the optimizer's own variables."""
    # The optimizer's own tables are not restored either.
    of_tables = RestoreOptions({}, on_extra="ignore")
    options = RestoreOptions({}, optimizer_slots="reset")
    tables = find_tables(model)
    _restore(model, path, tables, of_tables, options, version=version)


@explained()
def restore(
    model: HasTables,
    path: StrPath,
    step: int | None = None,
    *,
    version: int | None = None,
    iterator: ResumableDataset | tf.data.Iterator | None = None,
    rename: Mapping[str, str] | None = None,
    on_missing: OnMissing = "error",
    on_extra: OnExtra = "error",
    optimizer_slots: OptimizerSlots = "require",
) -> RestoreReport:
    """Restores the content of a model or of tables from a snapshot.

    Everything is checked first, so that an error leaves the model unchanged.
    Shards, devices and eviction may differ from the saved tables. A table
    without admission drops ids that wait for admission. Training that resumes
    from here can save deltas.

    A table on several devices restores into any number of devices, or into this
    process. Each device needs memory for its old and new rows.

    Tables are matched by name. Automatic names such as `dynamic_embedding_3`
    change when a model is built again, so those tables are matched by their
    order in the model instead, if both sides have equally many of the same
    dimension and dtype. The report lists how each table was matched.

    >>> report = lodestar.snapshot.restore(model, "snapshots")

    Args:
        model: A built Keras model, tables, or objects with tables; see `save`.
            `{}` with `on_extra="ignore"` restores nothing, for a report with
            the `dense` arrays alone.
        path: Path to the snapshot folder.
        step: Restores the newest version of this step.
        version: Restores this version. Defaults to the newest.
        iterator: An iterator of the same dataset, or a ResumableDataset. It
            resumes after the last batch that was trained.
        rename: Name of a table in the snapshot -> its name here.
        on_missing: How to handle a table or weight that the snapshot lacks:
            `"error"`, or `"init"`, which leaves it unchanged.
        on_extra: How to handle a table or weight of the snapshot that the
            model lacks: `"error"` or `"ignore"`. Weights are ignored if
            `model` is not a Keras model, and `dense` arrays always are.
        optimizer_slots: `"require"` restores optimizer slots and a compiled
            model's optimizer variables, which must be of the same optimizer.
            `"reset"` omits them, so that the next optimizer starts fresh.

    Returns:
        A `RestoreReport` of what was restored and what was not, with the
        `dense` arrays of `save`.

    Raises:
        TypeError: `model` and `path` are swapped.
        ValueError: An argument is invalid, or the model is not built.
        CorruptSnapshotError: A file is damaged; names it, the offset where
            bytes are wrong, and an intact version.
        SnapshotError: The version does not exist; a table or weight is missing,
            unexpected, or of another shape, dtype or optimizer (names both
            sides); a table has more rows than its cap here, or ids that wait
            for another kind of admission or a filter of another size; the
            snapshot has no reader position; a column has different schemas in
            the model and the snapshot; or a device was lost after another had
            its rows (names both).
        tf.errors.OpError: A file cannot be read, or memory ran out.
    """
    check_model_first("snapshot.restore", model, path)
    rename = {} if rename is None else rename
    options = RestoreOptions(rename, on_missing, on_extra, optimizer_slots)
    checkpoint = _checkpoint(iterator)
    if isinstance(model, keras.Model):
        _built_optimizer(model)
    none = isinstance(model, dict) and not model
    tables = FoundTables({}, {}) if none else find_tables(model)
    of_tables = options
    if options.optimizer_slots == "require":
        tables = _with_optimizer(tables, model)
    elif isinstance(model, keras.Model):
        # The optimizer's own tables are reset with the optimizer.
        of_tables = dataclasses.replace(options, on_extra="ignore")
    return _restore(
        model, path, tables, of_tables, options, step, version, checkpoint
    )


def _restore(
    model: Any,
    path: StrPath,
    tables: FoundTables,
    of_tables: RestoreOptions,
    options: RestoreOptions,
    step: int | None = None,
    version: int | None = None,
    checkpoint: tf.train.Checkpoint | None = None,
) -> RestoreReport:
    keras_model = model if isinstance(model, keras.Model) else None
    schema = None
    if keras_model is not None:
        schema = model_schema.schema_or_none(keras_model)

    def read(folder: SnapshotFolder, chain: list[Manifest]) -> Read[Any]:
        manifest = chain[-1]
        if checkpoint is not None:
            _check_reader(folder, manifest)
        plan = Plan(folder, chain, tables, of_tables)
        dense = blobs.read(folder, manifest, DENSE)
        variables = None
        if keras_model is not None:
            schema_file.check(folder, manifest, schema)
            variables = _Variables(
                folder, manifest, keras_model, tables, options
            )

        def install(loaded: list[Any]) -> RestoreReport:
            report = dataclasses.replace(plan.install(loaded), dense=dense)
            if checkpoint is not None:
                checkpoint.read(
                    folder.file_path(manifest.version, _READER)
                ).assert_consumed()
            if variables is None:
                return report
            variables.assign()
            return dataclasses.replace(
                report,
                initial=report.initial + variables.initial,
                ignored=report.ignored + variables.ignored,
            )

        return plan.load(), install

    together = Together(tables.embeddings.values())
    return with_version(SnapshotFolder(path), step, version, read, together)


class _Variables:
    """Weights and optimizer variables, matched with their saved values."""

    def __init__(
        self,
        folder: SnapshotFolder,
        manifest: Manifest,
        model: keras.Model,
        tables: FoundTables,
        options: RestoreOptions,
    ):
        self._path = folder.version_path(manifest.version)
        self._pairs: list[tuple[Any, np.ndarray]] = []
        self.initial: tuple[str, ...] = ()
        self.ignored: tuple[str, ...] = ()
        saved = blobs.read(folder, manifest, WEIGHT)
        self._match_weights(saved, model_variables.weights(model), options)
        saved = blobs.read(folder, manifest, _OPTIMIZER)
        reset = options.optimizer_slots == "reset"
        if reset or compiled_optimizer(model) is None:
            self.ignored += tuple(saved)
            return
        here = model_variables.optimizer_variables(model, tables.embeddings)
        names = model_variables.match_in_order(saved, here)
        if names is None:
            raise SnapshotError(
                f"{self._path}: the optimizer has the variables "
                f"{listed(saved)} in the snapshot, but {listed(here)} here. Use "
                "optimizer_slots='reset' to start with a fresh optimizer."
            )
        self._add(names, saved, here)

    def assign(self) -> None:
        """Assigns the saved values."""
        for variable, array in self._pairs:
            variable.assign(array)

    def _match_weights(
        self,
        saved: Mapping[str, np.ndarray],
        here: Mapping[str, Any],
        options: RestoreOptions,
    ) -> None:
        names = model_variables.match(list(saved), list(here))
        self.initial = tuple(name for name in here if name not in names)
        self.ignored = tuple(
            name for name in saved if name not in set(names.values())
        )
        if self.initial and options.on_missing == "error":
            raise SnapshotError(
                f"{self._path}: has no weights {listed(self.initial)}; it has "
                f"{listed(saved)}. Use on_missing='init' to leave them "
                "unchanged."
            )
        if self.ignored and options.on_extra == "error":
            raise SnapshotError(
                f"{self._path}: has the weights {listed(self.ignored)}, which "
                f"are not among those here, {listed(here)}. Use "
                "on_extra='ignore' to leave them out."
            )
        self._add(names, saved, here)

    def _add(
        self,
        names: Mapping[str, str],
        saved: Mapping[str, np.ndarray],
        here: Mapping[str, Any],
    ) -> None:
        for name, there in names.items():
            wrong = model_variables.difference(saved[there], here[name])
            if wrong:
                raise SnapshotError(f"{self._path}: {name!r} has {wrong}.")
            self._pairs.append((here[name], saved[there]))


def _built_optimizer(model: keras.Model) -> keras.optimizers.Optimizer | None:
    """Returns the optimizer of a compiled model; builds it if needed."""
    if not model.built:
        raise ValueError(
            f"`model` {model.name!r} is not built. Call it on a batch first."
        )
    optimizer = compiled_optimizer(model)
    if optimizer is not None and not optimizer.built:
        with model.distribute_strategy.scope():
            optimizer.build(model.trainable_variables)
    return optimizer


def _with_optimizer(tables: FoundTables, model: Any) -> FoundTables:
    """Adds the tables in which a model's optimizer accumulates gradients."""
    own = tables_of_optimizer(model)
    return FoundTables({**tables.embeddings, **own}, tables.id_tables)


def _checkpoint(iterator: Any) -> tf.train.Checkpoint | None:
    if iterator is None:
        return None
    if isinstance(iterator, ResumableDataset):
        iterator = iterator.iterator
    if isinstance(iterator, tf.data.Dataset) or not isinstance(
        iterator, tf.data.Iterator
    ):
        raise ValueError(
            "`iterator` must be a lodestar.snapshot.ResumableDataset or the "
            f"iterator of a tf.data.Dataset, got {iterator!r}."
        )
    return tf.train.Checkpoint(iterator=iterator)


def _check_reader(folder: SnapshotFolder, manifest: Manifest) -> None:
    files = [f for f in manifest.files if f.file.startswith(_READER)]
    if not files:
        raise SnapshotError(
            f"{folder.version_path(manifest.version)}: has no reader position; "
            "it was saved without `iterator`."
        )
    for file in files:
        folder.intact_file(manifest, file)
