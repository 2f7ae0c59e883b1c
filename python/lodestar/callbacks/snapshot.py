"""Saves snapshots while a model is trained."""

import contextlib
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Literal, TypeAlias, get_args

import keras
import tensorflow as tf

from lodestar import _bases
from lodestar._arguments import explained
from lodestar._checks import check_choice, check_count, check_epoch_or_count
from lodestar._typing import Every, Model, StrPath
from lodestar.callbacks.early_stopping import EarlyStopping
from lodestar.callbacks.resumption import Resumption
from lodestar.embedding import workers
from lodestar.embedding.embedding_variable import EmbeddingVariable
from lodestar.snapshot.compaction import remove_old
from lodestar.snapshot.errors import SnapshotError, SnapshotLockedError
from lodestar.snapshot.folder import SnapshotFolder
from lodestar.snapshot.found_tables import tables_in
from lodestar.snapshot.info import versions
from lodestar.snapshot.manifest import check_metadata
from lodestar.snapshot.model import restore, restore_values, save
from lodestar.snapshot.restoring import (
    OnExtra,
    OnMissing,
    OptimizerSlots,
    RestoreReport,
)
from lodestar.snapshot.resumable_dataset import ResumableDataset
from lodestar.snapshot.save_interval import SaveInterval
from lodestar.snapshot.together import Together

# Metadata of the place in training before the first batch.
_START = {"epoch": 0, "batch": -1, "epoch_ended": False}
# How long the end of training waits for another writer.
_LOCK_SECONDS = 60


# What to do if a snapshot cannot be written.
OnSnapshotError: TypeAlias = Literal["raise", "warn"]


class Snapshot(_bases.Callback):
    """Saves snapshots of the whole training in the background.

    A snapshot has the tables, weights, optimizer, random seeds and position in the
    data at a consistent point in time between two steps. Most are deltas with only
    the rows that changed. A step waits for a snapshot only if rows are written
    faster than the disk can store them; lookups never wait.

    Pass it to `lodestar.train.fit` to resume training from the newest snapshot:

    >>> snapshots = lodestar.callbacks.Snapshot("snapshots", 1000, keep=3)
    >>> history = lodestar.train.fit(model, batches, epochs=3, snapshots=snapshots)

    Snapshots then also have the sums of metrics and the states of other callbacks:
    Keras's and Lodestar's EarlyStopping, ReduceLROnPlateau, ModelCheckpoint,
    TensorBoard, TableStats, and any callback with `get_state()`, which returns JSON
    values, and `set_state(state)`, which is called after `on_train_begin`. A
    BackupAndRestore saves, but does not restore.

    As a callback of `model.fit` it only saves; call `restore` to resume. A
    snapshot that is due while the previous one is being written, or while another
    process writes to the folder, is taken as soon as that ends. If any step
    follows the last snapshot, the end of training takes one more and waits for it.

    Args:
        path: Folder of the snapshots; see `lodestar.snapshot.save`.
        every_n_steps: Steps between snapshots; `"epoch"` for one at the end of
            each epoch; or `"auto"` for one when writing the last took at most 2 % of
            the time since.
        deltas_per_full: Deltas between two full snapshots. 0 writes only full ones.
        keep: Number of versions to keep, with all that they depend on. None keeps
            all.
        iterator: The reader whose position is saved: a
            `lodestar.snapshot.ResumableDataset`, or the iterator of your own loop.
            `lodestar.train.fit` sets it.
        metadata: A dict to save with each version, or a function that returns it.
            Versions also have `epoch` and `batch`, the last ones that were trained
            (from 0), and `epoch_ended`.
        on_error: What to do if a snapshot cannot be written: `"raise"` ends
            training after the current step; `"warn"` warns and continues with the
            next snapshot.

    Raises:
        ValueError: If an argument is out of range.
    """

    @explained()
    def __init__(
        self,
        path: StrPath,
        every_n_steps: Every | Literal["auto"] = "epoch",
        deltas_per_full: int = 10,
        keep: int | None = None,
        iterator: ResumableDataset | tf.data.Iterator | None = None,
        metadata: Mapping[str, Any]
        | Callable[[], Mapping[str, Any]]
        | None = None,
        on_error: OnSnapshotError = "raise",
    ):
        super().__init__()
        self._folder = SnapshotFolder(path)
        check_epoch_or_count("every_n_steps", every_n_steps, "auto")
        check_count("deltas_per_full", deltas_per_full, 0)
        check_choice("on_error", on_error, get_args(OnSnapshotError))
        self._every_n_steps: Any = every_n_steps
        self._interval = SaveInterval() if every_n_steps == "auto" else None
        self._deltas_per_full = deltas_per_full
        self._keep = None if keep is None else check_count("keep", keep, 1)
        self._iterator = iterator
        self._metadata = metadata
        self._on_error = on_error
        self._writing: Any = None  # PendingSnapshot
        self._steps = 0  # Steps since the last snapshot.
        self._due = False
        # Place of the last trained batch, or None if it is unknown.
        self._place: Any = dict(_START)
        self._first_batch = 0  # First batch of the next epoch.
        self._fresh = True  # The model is not at `_place`.
        self._unsaved = False  # A step followed the last snapshot.
        self._stopped = False  # The epoch ended before its last batch.
        self._training: Resumption | None = None  # During lodestar.train.fit.
        self._moment: dict[
            str, Any
        ] = {}  # Result of its `moment()` at `_place`.
        # Callbacks whose best epoch has just ended, or is being written.
        self._best: list[EarlyStopping] = []
        self._best_in_writing: list[EarlyStopping] = []
        self._restored: EarlyStopping | None = None
        # Versions that the snapshot being written refers to.
        self._kept_in_writing: list[int] = []
        # The last version that was written or restored, for EarlyStopping.
        self._newest: int | None = None

    def _reader(self, data: tf.data.Dataset) -> ResumableDataset:
        """Returns the reader of `data` whose position is saved; for `train.fit`."""
        known = self._iterator
        if known is None and self._fresh:
            if not isinstance(data, ResumableDataset):
                data = ResumableDataset(data)
            self._iterator = known = data
        if not isinstance(known, ResumableDataset) or not (
            data is known or data is known.dataset
        ):
            raise ValueError(
                f"`snapshots` saves the position of {known!r}, not of `data`. "
                "Create it with iterator=data, a lodestar.snapshot."
                "ResumableDataset, or create a new one without `iterator`."
            )
        return known

    @contextlib.contextmanager
    def _resume(
        self,
        callbacks: keras.callbacks.CallbackList,
        build: Callable[[], str],
    ) -> Iterator[Resumption]:
        """Returns a context for training with `callbacks`; for `train.fit`.

        Restores the newest snapshot, if any, unless this callback restored one or
        completed a training before.
        """
        model, path = callbacks.model, self._folder.path
        if self._fresh:
            self._collect()
            if _together(model).of_first(lambda: bool(versions(path))):
                if not model.built:
                    build()
                self.restore(model)
        if self._place is None:
            raise ValueError(
                f"The snapshot restored from {path} was not written by this "
                "callback: its metadata has no `epoch` and `batch`."
            )
        epoch, done = self._place["epoch"], self._place["batch"] + 1
        steps = callbacks.params["steps"]
        if self._place.get("epoch_ended") or (steps and done >= steps):
            epoch, done = epoch + 1, 0
        epochs = callbacks.params["epochs"]
        if epoch >= epochs:
            done = 0
        training = Resumption(callbacks, self._moment, epoch, done, build)
        if training.has_stopped():
            training.epoch, training.batch = max(epoch, epochs), 0
        self._training, self._first_batch = training, training.batch
        try:
            for callback in self._keeping():
                callback._keeper = self
            yield training
            self._moment = training.moment()
        except BaseException:
            # The model and the reader may be a batch apart.
            self._fresh = True
            raise
        finally:
            for callback in self._keeping():
                callback._keeper = None
            self._training = None
        # Other callbacks have seen an interrupted epoch end.
        self._fresh = self._stopped

    def restore(
        self,
        model: Model,
        version: int | None = None,
        *,
        rename: Mapping[str, str] | None = None,
        on_missing: OnMissing = "error",
        on_extra: OnExtra = "error",
        optimizer_slots: OptimizerSlots = "require",
    ) -> RestoreReport:
        """Restores a model; see `lodestar.snapshot.restore`.

        `lodestar.train.fit` then resumes after `epoch` and `batch` of the report's
        `metadata`.

        Args:
            model: A built model.
            version: Version to restore. Defaults to the newest.
            rename: See `lodestar.snapshot.restore`, also for the next ones.
            on_missing: How to handle a table or weight that the snapshot lacks.
            on_extra: How to handle one that the model lacks.
            optimizer_slots: Whether to restore or to reset these.
        """
        report = restore(
            model,
            self._folder.path,
            version=version,
            iterator=self._iterator,
            rename=rename,
            on_missing=on_missing,
            on_extra=on_extra,
            optimizer_slots=optimizer_slots,
        )
        place = {name: report.metadata.get(name) for name in _START}
        known = all(type(place[name]) is int for name in ("epoch", "batch"))
        self._place = place if known else None
        self._moment = report.dense
        self._newest = report.version
        self._fresh = self._stopped = False
        return report

    def on_epoch_begin(
        self, epoch: int, logs: dict[str, Any] | None = None
    ) -> None:
        self._place = {**_START, "epoch": epoch, "batch": self._first_batch - 1}
        self._first_batch = 0
        self._fresh = False
        self._stopped = False

    def on_train_batch_end(
        self, batch: int, logs: dict[str, Any] | None = None
    ) -> None:
        """Takes a snapshot if one is due."""
        # With steps_per_execution a call is several steps.
        self._steps += batch - self._place["batch"]
        self._place["batch"] = batch
        self._unsaved = True
        self._due |= self._is_due()
        if self._batches_left() == 0:
            # Left to on_epoch_end, after the other callbacks saw the epoch end.
            return
        self._stopped = workers.agree_to_stop(self.model)
        if self._stopped:
            # The epoch ends for them now, and again when it is completed.
            self._take_now()
        elif self._due:
            self._take_if_free()

    def on_epoch_end(
        self, epoch: int, logs: dict[str, Any] | None = None
    ) -> None:
        """Takes a snapshot if one is due or the epoch is the best."""
        if (
            not self._stopped
            and workers.agree_to_stop(self.model)
            and self._batches_left()
        ):
            # The stop signal came after the end of the batch.
            self._stopped = True
            self._take_now()
        if self._stopped:
            # The last snapshot already has this state.
            self._best_in_writing += self._best
            self._best = []
            return
        self._place["epoch_ended"] = True
        self._unsaved = True
        if self._best:
            self._take_now()
        elif self._every_n_steps == "epoch":
            self._due = True
            self._collect()
            self._take()
        elif self._due:
            self._take_if_free()

    def on_train_end(self, logs: dict[str, Any] | None = None) -> None:
        """Takes the last snapshot and waits for it."""
        self._collect()
        if self._unsaved:
            if self._restored is not None:
                self._keep_best(self._restored)
            self._take_now()
        self._restored = None
        self._collect()

    def _keep_best(self, callback: EarlyStopping) -> None:
        """Marks the current epoch, of which a snapshot is kept."""
        callback._kept = 0
        self._best.append(callback)

    def _restore_best(self, callback: EarlyStopping) -> None:
        """Restores the tables and weights of the best epoch."""
        self._collect()
        if callback._kept is None:
            raise SnapshotError("its snapshot could not be written")
        if callback._kept == self._newest and not self._unsaved:
            return
        restore_values(self.model, self._folder.path, callback._kept)
        # An interrupted epoch resumes from the newest snapshot.
        if not self._stopped:
            self._unsaved = True
            self._restored = callback

    def _is_due(self) -> bool:
        """Returns whether a snapshot is due between two steps, in all workers."""
        if self._every_n_steps == "epoch":
            return False
        if self._interval is None:
            return bool(self._steps >= self._every_n_steps)
        if self._writing is not None:
            if not self._writing.done():
                return False
            self._collect()
        strategy = self.model.distribute_strategy
        return workers.any_of(strategy, self._interval.due())

    def _batches_left(self) -> int | None:
        """Returns the number of batches left in the epoch, or None if unknown."""
        batches = (self.params or {}).get("steps")
        if batches is None:
            return None
        return max(0, batches - 1 - self._place["batch"])

    def _keeping(self) -> list[EarlyStopping]:
        if self._training is None:
            return []
        callbacks = self._training.callbacks.callbacks
        return [c for c in callbacks if isinstance(c, EarlyStopping)]

    def _take_if_free(self) -> None:
        """Takes the due snapshot unless one is being written."""
        if self._writing is not None and self._writing.done():
            self._collect()
        if self._writing is None:
            self._take()

    def _take_now(self) -> None:
        """Takes a snapshot, waiting for the previous one and other writers."""
        self._collect()
        self._due = True
        tries = 10 * _LOCK_SECONDS  # Counted, so that all workers agree.
        while self._due:
            self._take(wait_for_lock=tries > 0)
            if self._due:
                time.sleep(0.1)
                tries -= 1

    def _take(self, wait_for_lock: bool = True) -> None:
        """Starts a snapshot, which stays due while another process writes."""
        try:
            moment, metadata, delta = self._moment_of_all()
            kept = [callback._kept for callback in self._keeping()]
            self._writing = save(
                self.model,
                self._folder.path,
                delta,
                iterator=self._iterator,
                dense=moment,
                metadata=metadata,
                blocking=False,
            )
            self._kept_in_writing = [version for version in kept if version]
            self._best_in_writing, self._best = self._best, []
        except SnapshotLockedError as error:
            if wait_for_lock:
                return
            self._failed(error)
        except Exception as error:
            self._failed(error)
        # After a failure, wait until the next one is due.
        self._due = False
        self._steps = 0
        self._unsaved = False

    def _moment_of_all(self) -> tuple[dict[str, Any], dict[str, Any], bool]:
        """Returns the state and metadata to save, and whether to save a delta.

        Raises in all workers if it fails in one of them.
        """
        together = _together(self.model)
        moment: dict[str, Any] = {}
        metadata: dict[str, Any] = {}

        def tell() -> bool:
            if self._training:
                moment.update(self._training.moment())
            own = self._metadata
            own = (own() if callable(own) else own) or {}
            taken = sorted(_START.keys() & set(own))
            if taken:
                raise ValueError(
                    f"`metadata` must not have the reserved names "
                    f"{', '.join(taken)}."
                )
            metadata.update(check_metadata({**self._place, **own}))
            if together.first:
                with contextlib.suppress(SnapshotError):
                    chain = self._folder.chain(self._folder.newest_version())
                    return len(chain) <= self._deltas_per_full
            return False

        return moment, metadata, together.agree(tell)[0]

    def _collect(self) -> None:
        """Waits for the snapshot that is being written."""
        writing, self._writing = self._writing, None
        if writing is None:
            return
        best, self._best_in_writing = self._best_in_writing, []
        try:
            info = writing.wait()
        except Exception as error:
            for callback in best:
                callback._kept = None
            self._failed(error)
            return
        self._newest = info.version
        for callback in best:
            callback._kept = info.version
        if self._interval is not None:
            self._interval.saved(info.seconds)
        keep = self._keep
        if keep is None:
            return
        try:
            _together(self.model).of_first(lambda: self._remove_old(keep))
        except Exception as error:
            self._failed(error)

    def _remove_old(self, keep: int) -> None:
        # If another process is writing, it or the next snapshot removes them.
        with contextlib.suppress(SnapshotLockedError), self._folder.lock():
            remove_old(self._folder, keep, self._kept_in_writing)

    def _failed(self, error: Exception) -> None:
        if self._interval is not None:
            self._interval.saved()
        if self._on_error == "raise":
            raise error
        warnings.warn(
            f"No snapshot was written to {self._folder.path}: {error}",
            RuntimeWarning,
            stacklevel=3,
        )


def _together(model: keras.Model) -> Together:
    """Returns the processes that write snapshots of the model together."""
    return Together(
        table
        for table in tables_in(model)
        if isinstance(table, EmbeddingVariable)
    )
