"""Snapshots while `model.fit` trains."""

from __future__ import annotations

import contextlib
import os
import time
import warnings
from collections.abc import Callable, Mapping
from typing import Any

import keras

from lodestar.snapshot.compaction import check_keep, remove_old
from lodestar.snapshot.errors import SnapshotError, SnapshotLockedError
from lodestar.snapshot.folder import SnapshotFolder
from lodestar.snapshot.model import restore_model, save_model
from lodestar.snapshot.restoring import RestoreReport
from lodestar.snapshot.saving import PendingSnapshot

# How long the end of training waits for another writer of the folder.
_LOCK_SECONDS = 60


class Snapshot(keras.callbacks.Callback):
    """Writes snapshots of all that training goes on from, in the background.

    One snapshot holds tables, weights, optimizer, random seeds and the reader's
    place of one moment between two steps; training restored from it goes on as
    if it had never stopped. Most are deltas, which hold only the rows that
    changed. A step waits for a snapshot only where writers of rows outrun the
    disk; look-ups never do.

    >>> reader = lodestar.snapshot.ResumableDataset(batches.repeat())
    >>> snapshots = lodestar.callbacks.Snapshot("snapshots", 1000, iterator=reader)
    >>> if lodestar.snapshot.list("snapshots"):
    ...     report = snapshots.restore(model)
    >>> model.fit(reader, steps_per_epoch=500, callbacks=[snapshots])

    A snapshot that is due while the one before it is still being written, or
    while another process writes to the folder, is taken as soon as that has
    ended. The end of training takes one more, unless nothing was trained since
    the last, and waits for it.

    Args:
        path: Folder of the snapshots, as `lodestar.snapshot.save` takes it.
        every_n_steps: Steps between two, at least 1, or `"epoch"`: one at the
            end of each epoch.
        deltas_per_full: Deltas between two full ones. 0: all are full.
        keep: Versions that stay, at least 1, with all that they need; None:
            all.
        iterator: Whose place is saved: a `lodestar.snapshot.ResumableDataset`,
            or the iterator of a loop of your own.
        metadata: Saved with each version, beside `epoch` and `batch`, those
            that were trained last, from 0; or a function without arguments
            that returns it.
        on_error: What a snapshot that cannot be written does: `"raise"` ends
            training after the step in which it shows; `"warn"` warns, and the
            next one is tried when it is due.

    Raises:
        ValueError: An argument is none of these.
    """

    def __init__(
        self,
        path: str | os.PathLike,
        every_n_steps: int | str = "epoch",
        deltas_per_full: int = 10,
        keep: int | None = None,
        iterator: Any = None,
        metadata: Mapping[str, Any]
        | Callable[[], Mapping[str, Any]]
        | None = None,
        on_error: str = "raise",
    ):
        super().__init__()
        self._folder = SnapshotFolder(path)
        if every_n_steps != "epoch" and (
            type(every_n_steps) is not int or every_n_steps < 1
        ):
            raise ValueError(
                f"`every_n_steps`={every_n_steps!r} is not 'epoch' or a number "
                "of steps, at least 1."
            )
        if type(deltas_per_full) is not int or deltas_per_full < 0:
            raise ValueError(
                f"`deltas_per_full`={deltas_per_full!r} is not 0 or more."
            )
        if on_error not in ("raise", "warn"):
            raise ValueError(
                f"`on_error`={on_error!r} is not in ('raise', 'warn')."
            )
        self._every_n_steps = every_n_steps
        self._deltas_per_full = deltas_per_full
        self._keep = None if keep is None else check_keep(keep)
        self._iterator = iterator
        self._metadata = metadata
        self._on_error = on_error
        self._pending: PendingSnapshot | None = None
        self._steps = 0  # since the last snapshot
        self._due = False
        self._place = {"epoch": 0, "batch": -1}

    def restore(
        self, model: keras.Model, version: int | None = None, **options: Any
    ) -> RestoreReport:
        """As `lodestar.snapshot.restore_model`, with this path and iterator.

        `metadata` of the report has the `epoch` and `batch` trained last.

        Args:
            model: Built.
            version: Default: the newest.
            **options: `rename`, `missing`, `extra`, `optimizer_slots`.
        """
        return restore_model(
            self._folder.path,
            model,
            version=version,
            iterator=self._iterator,
            **options,
        )

    def on_epoch_begin(
        self, epoch: int, logs: Mapping[str, Any] | None = None
    ) -> None:
        """Notes the epoch."""
        self._place = {"epoch": epoch, "batch": -1}

    def on_train_batch_end(
        self, batch: int, logs: Mapping[str, Any] | None = None
    ) -> None:
        """Takes a snapshot if one is due."""
        # A call may stand for several steps (steps_per_execution).
        self._steps += batch - self._place["batch"]
        self._place["batch"] = batch
        if self._every_n_steps != "epoch":
            self._due |= self._steps >= self._every_n_steps
        if self._pending is not None and self._pending.done():
            self._collect()
        if self._due and self._pending is None:
            self._take()

    def on_epoch_end(
        self, epoch: int, logs: Mapping[str, Any] | None = None
    ) -> None:
        """Takes a snapshot, if there is one an epoch."""
        if self._every_n_steps == "epoch":
            self._due = True
            self._collect()
            self._take()

    def on_train_end(self, logs: Mapping[str, Any] | None = None) -> None:
        """Takes the last snapshot, and waits for it."""
        self._collect()
        self._due = self._steps > 0
        deadline = time.monotonic() + _LOCK_SECONDS
        while self._due:
            self._take(wait_for_lock=time.monotonic() < deadline)
            if self._due:
                time.sleep(0.1)
        self._collect()

    def _take(self, wait_for_lock: bool = True) -> None:
        """Begins a snapshot; stays due while another writer has the folder."""
        try:
            metadata = self._metadata
            if callable(metadata):
                metadata = metadata()
            self._pending = save_model(
                self._folder.path,
                self.model,
                self._is_delta(),
                iterator=self._iterator,
                metadata={**self._place, **(metadata or {})},
                blocking=False,
            )
        except SnapshotLockedError as error:
            if wait_for_lock:
                return
            self._failed(error)
        except Exception as error:
            self._failed(error)
        # One that failed is tried again when the next is due.
        self._due = False
        self._steps = 0

    def _is_delta(self) -> bool:
        with contextlib.suppress(SnapshotError):
            chain = self._folder.chain(self._folder.newest_version())
            return len(chain) <= self._deltas_per_full
        return False

    def _collect(self) -> None:
        """Waits for what is being written."""
        pending, self._pending = self._pending, None
        if pending is None:
            return
        try:
            pending.wait()
            if self._keep is not None:
                self._remove_old()
        except Exception as error:
            self._failed(error)

    def _remove_old(self) -> None:
        # Another writer does so, or the next snapshot will.
        with contextlib.suppress(SnapshotLockedError), self._folder.lock():
            remove_old(self._folder, self._keep)

    def _failed(self, error: Exception) -> None:
        if self._on_error == "raise":
            raise error
        warnings.warn(
            f"A snapshot was not written to {self._folder.path}: {error}",
            RuntimeWarning,
            stacklevel=3,
        )
