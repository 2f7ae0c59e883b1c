"""Snapshots of a whole model: tables, weights, optimizer, reader's place."""

import dataclasses
import os
from collections.abc import Mapping
from typing import Any, Literal, overload

import keras
import numpy as np
import tensorflow as tf

from lodestar._typing import StrPath
from lodestar.data.schema import model_schema
from lodestar.ops import snapshot_ops
from lodestar.ops.compile_line import compiled_optimizer
from lodestar.snapshot import blobs, model_variables, schema_file
from lodestar.snapshot.errors import (
    CorruptSnapshotError,
    SnapshotError,
    listed,
)
from lodestar.snapshot.folder import SnapshotFolder
from lodestar.snapshot.found_tables import (
    FoundTables,
    find_tables,
    tables_of_optimizer,
)
from lodestar.snapshot.info import SnapshotInfo
from lodestar.snapshot.manifest import Manifest
from lodestar.snapshot.restoring import (
    Plan,
    Read,
    RestoreOptions,
    RestoreReport,
    check_options,
    with_version,
)
from lodestar.snapshot.resumable_dataset import ResumableDataset
from lodestar.snapshot.saving import (
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
def save_model(
    path: StrPath,
    model: keras.Model,
    delta: bool = False,
    *,
    iterator: Any = None,
    dense: Mapping[str, Any] | None = None,
    metadata: Mapping[str, Any] | None = None,
    step: int | None = None,
    blocking: Literal[True] = True,
) -> SnapshotInfo: ...


@overload
def save_model(
    path: StrPath,
    model: keras.Model,
    delta: bool = False,
    *,
    iterator: Any = None,
    dense: Mapping[str, Any] | None = None,
    metadata: Mapping[str, Any] | None = None,
    step: int | None = None,
    blocking: Literal[False],
) -> PendingSnapshot: ...


@overload
def save_model(
    path: StrPath,
    model: keras.Model,
    delta: bool = False,
    *,
    iterator: Any = None,
    dense: Mapping[str, Any] | None = None,
    metadata: Mapping[str, Any] | None = None,
    step: int | None = None,
    blocking: bool,
) -> SnapshotInfo | PendingSnapshot: ...


def save_model(
    path: StrPath,
    model: keras.Model,
    delta: bool = False,
    *,
    iterator: Any = None,
    dense: Mapping[str, Any] | None = None,
    metadata: Mapping[str, Any] | None = None,
    step: int | None = None,
    blocking: bool = True,
) -> SnapshotInfo | PendingSnapshot:
    """As `save`, of all that training goes on from.

    Tables as `save` takes them, weights, states of random seeds, the variables
    of the optimizer, gradients that it accumulates, and the reader's place, all
    of one moment: call it between two steps, as callbacks are called. Also the
    schema of the model, if it has one (`Schema.of`).

    Args:
        path: As `save`.
        model: Built; with `compile` called if its optimizer is to be saved.
        delta: Of the tables; weights are written whole.
        iterator: A ResumableDataset, or an iterator of a `tf.data.Dataset`.
        dense: As `save`, beside what the model has.
        metadata: As `save`.
        step: As `save`; default: the optimizer's iterations.
        blocking: As `save`.

    Returns:
        As `save`.

    Raises:
        Exception: As `save`.
    """
    _check_model(model)
    extra = dense_arrays(dense)
    tables = find_tables(model)
    schema = model_schema.schema_or_none(model)
    checkpoint = _checkpoint(iterator)
    optimizer = compiled_optimizer(model)
    if optimizer is not None and step is None:
        step = int(keras.ops.convert_to_numpy(optimizer.iterations))

    def arrays() -> dict[str, np.ndarray]:
        variables = {
            WEIGHT: model_variables.weights(model),
            _OPTIMIZER: model_variables.optimizer_variables(
                model, tables.embeddings
            ),
        }
        return extra() | {
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


def restore_values(path: StrPath, model: keras.Model, version: int) -> None:
    """As `restore_model`, of tables and weights alone.

    The optimizer's own variables stay as they are.
    """
    # What the optimizer keeps in tables is its own, too.
    of_tables = check_options(None, "error", "ignore", "require")
    of_weights = check_options(None, "error", "error", "reset")
    tables = find_tables(model)
    schema = model_schema.schema_or_none(model)

    def read(folder: SnapshotFolder, chain: list[Manifest]) -> Read[Any]:
        schema_file.check(folder, chain[-1], schema)
        plan = Plan(folder, chain, tables, of_tables)
        variables = _Variables(folder, chain[-1], model, tables, of_weights)

        def install(loaded: list[Any]) -> None:
            plan.install(loaded)
            variables.assign()

        return plan.load(), install

    together = Together(tables.embeddings.values())
    with_version(SnapshotFolder(path), None, version, read, together)


def restore_model(
    path: StrPath,
    model: keras.Model,
    step: int | None = None,
    *,
    version: int | None = None,
    iterator: Any = None,
    rename: Mapping[str, str] | None = None,
    missing: str = "error",
    extra: str = "error",
    optimizer_slots: str = "require",
) -> RestoreReport:
    """As `restore`, of what `save_model` wrote.

    All is checked before anything is touched: a model takes all of it or, with
    an error, none.

    Args:
        path: As `restore`.
        model: Built. Its optimizer is built here if it is not.
        step: As `restore`.
        version: As `restore`.
        iterator: Of the dataset that was read; goes on behind the last batch
            that was trained on. None leaves the place alone.
        rename: Tables, as `restore`.
        missing: As `restore`, of weights, too.
        extra: As `restore`, of weights, too.
        optimizer_slots: `"require"`, also of the optimizer's own variables; a
            model without an optimizer takes none. `"reset"` leaves the
            optimizer as it is.

    Returns:
        As `restore`; of weights and the optimizer's variables it names what was
        not restored.

    Raises:
        Exception: As `restore`; also for a weight of another shape or dtype, an
            optimizer with other variables, no reader's place to restore, or a
            column that the schemas of the model and of the snapshot declare
            differently.
    """
    _check_model(model)
    options = check_options(rename, missing, extra, optimizer_slots)
    checkpoint = _checkpoint(iterator)
    optimizer = compiled_optimizer(model)
    if optimizer is not None and not optimizer.built:
        with model.distribute_strategy.scope():
            optimizer.build(model.trainable_variables)
    tables = find_tables(model)
    schema = model_schema.schema_or_none(model)
    if options.optimizer_slots == "require":
        tables = _with_optimizer(tables, model)

    def read(folder: SnapshotFolder, chain: list[Manifest]) -> Read[Any]:
        manifest = chain[-1]
        schema_file.check(folder, manifest, schema)
        if checkpoint is not None:
            _check_reader(folder, manifest)
        table_options = options
        if options.optimizer_slots == "reset":
            # What the optimizer keeps in tables goes with the optimizer.
            table_options = dataclasses.replace(options, extra="ignore")
        variables = _Variables(folder, manifest, model, tables, options)
        plan = Plan(folder, chain, tables, table_options)

        def install(loaded: list[Any]) -> RestoreReport:
            report = plan.install(loaded)
            variables.assign()
            if checkpoint is not None:
                checkpoint.read(
                    folder.file_path(manifest.version, _READER)
                ).assert_consumed()
            return dataclasses.replace(
                report,
                initial=report.initial + variables.initial,
                ignored=report.ignored + variables.ignored,
            )

        return plan.load(), install

    together = Together(tables.embeddings.values())
    return with_version(SnapshotFolder(path), step, version, read, together)


class _Variables:
    """Weights and the optimizer's variables, with what they are to take."""

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
        self._match_weights(
            blobs.read(folder, manifest, WEIGHT),
            model_variables.weights(model),
            options,
        )
        saved = blobs.read(folder, manifest, _OPTIMIZER)
        if (
            options.optimizer_slots == "reset"
            or compiled_optimizer(model) is None
        ):
            self.ignored += tuple(saved)
        else:
            self._match_optimizer(
                saved,
                model_variables.optimizer_variables(model, tables.embeddings),
            )

    def assign(self) -> None:
        """Gives the variables their values."""
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
        if self.initial and options.missing == "error":
            raise SnapshotError(
                f"{self._path}: has no weights {listed(self.initial)}; it has "
                f"{listed(saved)}. Use missing='init' to leave them as they are"
            )
        if self.ignored and options.extra == "error":
            raise SnapshotError(
                f"{self._path}: has the weights {listed(self.ignored)}, which "
                f"are not among those here, {listed(here)}. Use extra='ignore'"
            )
        self._add(names, saved, here)

    def _match_optimizer(
        self, saved: Mapping[str, np.ndarray], here: Mapping[str, Any]
    ) -> None:
        names = model_variables.match_in_order(saved, here)
        if names is None:
            raise SnapshotError(
                f"{self._path}: the optimizer has the variables "
                f"{listed(saved)} in the snapshot, but {listed(here)} here; use "
                "optimizer_slots='reset' to start anew"
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
                raise SnapshotError(f"{self._path}: {name!r} has {wrong}")
            self._pairs.append((here[name], saved[there]))


def _check_model(model: Any) -> None:
    if not isinstance(model, keras.Model):
        raise ValueError(f"`model` is {model!r}, wanted a Keras model.")
    if not model.built:
        raise ValueError(
            f"`model` {model.name!r} is not built; call it on a batch first."
        )


def _with_optimizer(tables: FoundTables, model: keras.Model) -> FoundTables:
    """Adds the tables of gradients that the optimizer accumulates."""
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
            f"`iterator` is {iterator!r}, wanted a lodestar.snapshot."
            "ResumableDataset or the iterator of a tf.data.Dataset."
        )
    return tf.train.Checkpoint(iterator=iterator)


def _check_reader(folder: SnapshotFolder, manifest: Manifest) -> None:
    path = folder.version_path(manifest.version)
    files = [f for f in manifest.files if f.file.startswith(_READER)]
    if not files:
        raise SnapshotError(
            f"{path}: has no reader's place; it was saved without `iterator`"
        )
    for file in files:
        file_path = folder.check_file(manifest, file)
        if snapshot_ops.file_crc(file_path).crc32c != file.crc32c:
            raise CorruptSnapshotError(
                f"{file_path}: bytes 0 to {file.bytes}: the checksum is not "
                f"{file.crc32c:08x}, as the manifest has it"
            )
