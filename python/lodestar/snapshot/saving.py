"""Copies tables at one point in time and writes them while training continues.

Each task copies and writes its own tables and parts of tables.
"""

import _thread
import contextlib
import dataclasses
import os
import threading
import time
import warnings
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from lodestar._checks import check_eager
from lodestar._errors import describe_error
from lodestar._files import sync
from lodestar._typing import StrPath
from lodestar.ops import snapshot_ops
from lodestar.snapshot import blobs, id_contents
from lodestar.snapshot.errors import (
    CorruptSnapshotError,
    SnapshotError,
    listed,
)
from lodestar.snapshot.folder import FolderLock, SnapshotFolder
from lodestar.snapshot.found_tables import FoundTables
from lodestar.snapshot.info import SnapshotInfo, make_info
from lodestar.snapshot.manifest import (
    FileEntry,
    Manifest,
    TableEntry,
    check_metadata,
    decode,
    encode,
    make_label,
    new_mark,
    now,
)
from lodestar.snapshot.outcome import Pending, Work
from lodestar.snapshot.places import Place, PlacedPart, each, places_of
from lodestar.snapshot.together import Together
from lodestar.snapshot.verifying import check_parent

DENSE = "dense/"
_MIN_STEP, _MAX_STEP = -(2**63), 2**63 - 1

# How many marks of a table's history are remembered.
_MAX_HISTORY = 64


class _Saved(NamedTuple):
    """The version that a table was last saved as or restored from."""

    path: str
    version: int
    name: str


_saved_as: weakref.WeakKeyDictionary[Any, _Saved] = weakref.WeakKeyDictionary()
# The marks of the versions that each table was saved as or restored from, oldest
# first.
_histories: weakref.WeakKeyDictionary[Any, tuple[str, ...]] = (
    weakref.WeakKeyDictionary()
)


def note_saved(
    table: Any, folder: SnapshotFolder, manifest: Manifest, name: str
) -> None:
    """Notes that a table equals `name` in a version."""
    _saved_as[table] = _Saved(
        os.path.abspath(folder.path), manifest.version, name
    )
    _note_history(table, manifest.marks)


def _note_history(table: Any, marks: Iterable[str]) -> None:
    history = (*_histories.get(table, ()), *marks)
    _histories[table] = history[-_MAX_HISTORY:]


def dense_arrays(
    dense: Mapping[str, Any] | None,
) -> Callable[[], dict[str, np.ndarray]]:
    """Returns a function that copies `dense`; checks `dense` first."""
    if dense is not None and not (
        isinstance(dense, Mapping)
        and all(isinstance(name, str) and name for name in dense)
    ):
        raise ValueError(
            "`dense` must be a dict of arrays with non-empty strings as keys, "
            f"got {dense!r:.60}."
        )
    return lambda: {
        f"{DENSE}{name}": blobs.to_array(f"dense[{name!r}]", value)
        for name, value in (dense or {}).items()
    }


@dataclasses.dataclass(frozen=True)
class Content:
    """The content of a new snapshot.

    When the tables are copied, `arrays` copies arrays by blob name, and
    `write_files` writes files into a folder and returns their names.
    """

    tables: FoundTables
    arrays: Callable[[], dict[str, np.ndarray]] = dict
    write_files: Callable[[str], Sequence[str]] = lambda _: ()


def begin(
    path: StrPath,
    content: Content,
    delta: bool,
    *,
    metadata: Mapping[str, Any] | None,
    step: int | None,
    blocking: bool,
) -> "SnapshotInfo | PendingSnapshot":
    """Writes `content` to a snapshot folder; see `lodestar.snapshot.save`."""
    check_eager("snapshot.save")
    for name, flag in (("delta", delta), ("blocking", blocking)):
        if not isinstance(flag, (bool, np.bool_)):
            raise ValueError(f"`{name}` must be True or False, got {flag!r}.")
    if step is not None:
        step = check_step(step)
    folder = SnapshotFolder(path)
    if not blocking:
        # The working directory may change before the files are written.
        folder = SnapshotFolder(os.path.abspath(folder.path))
    saving = _Saving(folder, content, delta, check_metadata(metadata), step)
    # An interrupt may arrive between any two lines.
    try:
        if not blocking:
            pending = PendingSnapshot(saving)
            saving.warn()
            return pending
        try:
            # An interrupt can break the start of a threading.Thread.
            _thread.start_new_thread(saving.run, ())
        except RuntimeError:
            # No thread can start, as during interpreter shutdown.
            saving.run()
        saving.ended.wait()
        saving.warn()
        return saving.result()
    except BaseException:
        saving.give_up()
        raise


def check_step(step: Any) -> int:
    """Returns `step` as an int; raises ValueError unless it is an int64."""
    try:
        number = int(step)
        exact = number == step
    except (TypeError, ValueError, OverflowError):
        exact = False
    if not exact or not _MIN_STEP <= number <= _MAX_STEP:
        raise ValueError(f"`step` must be a 64-bit integer, got {step!r}.")
    return number


class _Saving(Work[SnapshotInfo]):
    """One snapshot, which `run` copies and writes on its own thread.

    Only the main thread receives interrupts, so all resources are acquired and
    released on this other thread.

    It has begun when the tables are copied.

    Attributes:
        warning: Text of a warning for the caller; final when `ready` is set.
        cancelled: Whether the snapshot was cancelled.
    """

    def __init__(
        self,
        folder: SnapshotFolder,
        content: Content,
        delta: bool,
        metadata: dict[str, Any],
        step: int | None,
    ):
        super().__init__("written")
        self._start = time.perf_counter()
        self._folder = folder
        self._content = content
        self._delta = delta
        self._metadata = metadata
        self._step: Any = step  # None until `_copy_tables`
        self._mark = new_mark()
        self._tables = content.tables.embeddings
        self._places = places_of(self._tables)
        self._together = Together(self._tables.values())
        self._lock: FolderLock | None = None
        self._parent: Manifest | None = None  # None until `_copy_tables`
        self._snapshots: dict[Place, tf.Tensor] = {}
        self._begun: dict[PlacedPart, snapshot_ops.BegunTable] = {}
        self._version: Any = None  # until `_copy_tables`
        self._file_names: Sequence[str] = ()
        self._files: list[FileEntry] = []  # without tables' files
        self._blobs: tuple[Any, ...] = ()
        self._cancelling = threading.Lock()
        self._running = False
        self._committed = False
        self.warning = ""
        self.cancelled = False

    def _do(self) -> SnapshotInfo:
        with self._cancelling:
            # Cancelled before the thread began: nobody waits for it.
            if self.cancelled:
                raise self._cancellation()
            self._running = True
        self._copy_tables()
        # With several workers, no other collective call may interleave with
        # `_finish`.
        self._begin(wake=not self._together.several)
        return self._finish()

    def _cancellation(self) -> SnapshotError:
        return SnapshotError(
            f"{self._folder.path}: the snapshot was cancelled."
        )

    def warn(self) -> None:
        """Warns the caller of `save`."""
        if self.warning:
            warnings.warn(self.warning, RuntimeWarning, stacklevel=5)

    def give_up(self) -> None:
        """Cancels the snapshot and waits until it is removed or complete."""
        self.told = True
        self.cancel()
        if self._running:
            self.ended.wait()

    def _copy_tables(self) -> None:
        """Plans the snapshot and copies the tables."""
        try:
            plan = self._together.of_first(self._make_plan)
            if not self._together.first:
                self._delta, self._mark = plan["delta"], plan["mark"]
                self._version = plan["version"]
            # An interrupt may arrive after the commit.
            for table in self._own_tables().values():
                _note_history(table, [self._mark])
            self._together.agree(lambda: self._take(plan["parent"]))
            if self._step is None:
                steps = [begun.step for begun in self._begun.values()]
                self._step = max(steps, default=0)
        except BaseException:
            self._abort()
            raise

    def _make_plan(self) -> dict[str, Any]:
        """Locks the folder and returns the plan for all workers."""
        self._lock = self._folder.acquire()
        self._parent = self._find_parent()
        self._version = self._folder.begin_version(self._least_version())
        return {
            "delta": self._delta,
            "mark": self._mark,
            "version": self._version,
            "parent": self._parent and self._parent.version,
        }

    def _find_parent(self) -> Manifest | None:
        """Returns the newest version if a delta can build on it."""
        folder = self._folder
        versions = folder.versions()
        if not versions:
            return None
        parent = None
        try:
            parent = folder.manifest(versions[-1])
            if self._delta:
                check_parent(folder, folder.chain(versions[-1]))
        except (SnapshotError, OSError, tf.errors.OpError) as error:
            # Saving continues after damaged versions, but fails on a later
            # format.
            if parent is None and not isinstance(error, CorruptSnapshotError):
                raise
            if self._delta:
                self.warning = (
                    f"No delta can build on version {versions[-1]} of "
                    f"{folder.path}, so a full snapshot is written: "
                    f"{describe_error(error)}"
                )
            return None
        own = self._own_tables()
        known = {m for table in own.values() for m in _histories.get(table, ())}
        if not own or known & parent.marks:
            return parent
        self.warning = (
            f"{folder.path}: version {parent.version}, the newest, has another "
            f"history than this model. It is of step {parent.step} and has the "
            f"tables {listed(t.name for t in parent.saved_tables())}. This model "
            f"has the tables {listed(self._tables)}, and "
            f"{_last_saved(self._saved())}. A full snapshot is written, which "
            "readers of the folder load next. Use a folder of its own, or restore "
            "the newest version to continue it."
        )
        return None

    def _own_tables(self) -> dict[str, Any]:
        tables = self._content.tables
        return {**tables.embeddings, **tables.id_tables}

    def _saved(self) -> list[_Saved]:
        found = map(_saved_as.get, self._own_tables().values())
        return [saved for saved in found if saved is not None]

    def _base(self, part: PlacedPart) -> str:
        """Returns the base of a delta of the part, or ""."""
        parent = self._parent
        if not self._delta or parent is None or not parent.table(part.name):
            return ""
        base = snapshot_ops.base(part.handle)
        saved = _saved_as.get(self._tables[part.name])
        # A delta is invalid under another name.
        same_name = saved is not None and saved.name == part.name
        return base if same_name and base in parent.marks else ""

    def _least_version(self) -> int:
        """Returns a number above the tables' versions, even if those are removed."""
        path = os.path.abspath(self._folder.path)
        return 1 + max(
            (saved.version for saved in self._saved() if saved.path == path),
            default=0,
        )

    def _take(self, parent: int | None) -> None:
        """Copies the tables; waits for the disk only for small files."""
        content = self._content
        if not self._together.first:
            self._parent = self._folder.manifest(parent) if parent else None
        found = each(self._places, lambda p: [self._base(x) for x in p.parts])
        bases = dict(zip(self._places, found))

        def take(place: Place) -> None:
            snapshot, begun = snapshot_ops.begin(place.handles, bases[place])
            self._snapshots[place] = snapshot
            self._begun.update(zip(place.parts, begun, strict=True))

        each(self._places, take)
        self._time = now()
        self._arrays = content.arrays()
        for name, table in content.tables.id_tables.items():
            for part, array in id_contents.to_arrays(table).items():
                self._arrays[f"{id_contents.PREFIX}{name}/{part}"] = array
        if not self._together.first:
            # Copying may be collective, but only the first worker writes.
            self._arrays = {}
            return
        self._file_names = content.write_files(
            self._folder.version_path(self._version)
        )

    def _finish(self) -> SnapshotInfo:
        """Writes the files and commits, or removes everything."""
        try:
            written = self._together.agree(self._write)
            tables = [table for part in written for table in part]
            manifest = self._together.of_first(lambda: self._commit(tables))
            if self._together.several:
                manifest = decode(manifest.encode(), "the manifest")
            self._committed = True
        except BaseException:
            self._abort()
            if self.cancelled:
                raise self._cancellation() from None
            raise
        try:
            self._end(manifest.mark)
            for name, table in self._own_tables().items():
                note_saved(table, self._folder, manifest, name)
        finally:
            self._release()
        seconds = time.perf_counter() - self._start
        return make_info(self._folder, manifest, seconds)

    def _write(self) -> list[dict[str, Any]]:
        """Writes this process's files; returns the entries of its tables."""
        if self.cancelled:
            raise self._cancellation()
        folder, version = self._folder, self._version
        if self._arrays:
            file, self._blobs = blobs.write(
                folder, version, self._mark, self._arrays
            )
            self._arrays = {}
            self._files.append(file)
        for name in self._file_names:
            path = folder.file_path(version, name)
            sync(path)
            self._files.append(FileEntry(name, *snapshot_ops.file_crc(path)))
        written = each(self._places, self._write_place, self._give_back)
        return [dataclasses.asdict(table) for of in written for table in of]

    def _commit(self, written: list[dict[str, Any]]) -> Manifest | str:
        """Commits the version; returns the manifest, encoded for other workers."""
        numbers = {name: number for number, name in enumerate(self._tables)}
        tables = [
            TableEntry(**{**table, "slot_names": tuple(table["slot_names"])})
            for table in written
        ]
        tables.sort(key=lambda entry: (numbers[entry.name], entry.part))
        full = all(table.whole for table in tables)
        manifest = Manifest(
            version=self._version,
            mark=self._mark,
            parent=None if full or not self._parent else self._parent.id,
            same_as=None,
            kind="full" if full else "delta",
            step=self._step,
            time=self._time,
            tables=tuple(tables),
            blobs=self._blobs,
            files=tuple(self._files),
            metadata=self._metadata,
        )
        with self._cancelling:
            if self.cancelled:
                raise self._cancellation()
            self._folder.commit(manifest)
            self._committed = True
        if self._together.several:
            return encode(manifest).decode()
        return manifest

    def _write_place(self, place: Place) -> list[TableEntry]:
        folder, version = self._folder, self._version
        files = [self._file_name(part) for part in place.parts]
        paths = [folder.file_path(version, file) for file in files]
        labels = [
            make_label(self._mark, version, part.name, part.part, part.parts)
            for part in place.parts
        ]
        written = snapshot_ops.write(
            self._snapshots[place], [place.path(path) for path in paths], labels
        )
        entries = []
        for part, file, path, out in zip(
            place.parts, files, paths, written, strict=True
        ):
            begun = self._begun[part]
            entry = TableEntry(
                file=file,
                name=part.name,
                whole=begun.whole,
                dim=begun.dim,
                dtype=begun.dtype,
                optimizer=begun.optimizer,
                slot_names=tuple(begun.slot_names),
                part=part.part,
                parts=part.parts,
                **out._asdict(),
            )
            entries.append(entry)
            try:
                folder.check_size(path, entry)
            except CorruptSnapshotError as error:
                raise SnapshotError(
                    f"{error} here, where the manifest is written, but not on "
                    f"{place.device}, which wrote it. Use a folder that all "
                    "tasks share."
                ) from None
        return entries

    def _file_name(self, part: PlacedPart) -> str:
        name = f"table-{list(self._tables).index(part.name):05d}"
        if part.parts == 1:
            return name
        return f"{name}-part-{part.part:05d}-of-{part.parts:05d}"

    def cancel(self) -> None:
        """Makes `run` fail soon, unless the version is committed."""
        with self._cancelling:
            if self._committed:
                return
            self.cancelled = True
        self._give_back()

    def _end(self, base: str) -> None:
        """Ends the copies of all places; see `snapshot_ops.end`."""
        begun = dict(self._snapshots)
        each(list(begun), lambda place: snapshot_ops.end(begun[place], base))

    def _give_back(self) -> None:
        """Ends the copies of all places as failed."""
        with contextlib.suppress(tf.errors.OpError):
            self._end("")

    def _abort(self) -> None:
        """Ends the snapshot and removes its files."""
        try:
            # Explicitly, since an error may still reference the copies.
            self._give_back()
            if self._version is not None and self._together.first:
                self._folder.discard(self._version)
        finally:
            self._release()

    def _release(self) -> None:
        self._snapshots = {}
        if self._lock is not None:
            self._lock.release()


def _last_saved(saved: Sequence[_Saved]) -> str:
    if not saved:
        return "was never saved nor restored"
    last = saved[-1]
    return f"was last saved as or restored from version {last.version} of {last.path}"


class PendingSnapshot(Pending[SnapshotInfo]):
    """A snapshot of copied tables that a thread is writing.

    A process waits for the thread before it exits. `wait` also raises SnapshotError if
    the snapshot was cancelled.
    """

    def __init__(self, saving: _Saving):
        self._saving = saving
        super().__init__(saving)

    def cancel(self) -> bool:
        """Cancels the snapshot and waits until its files are removed.

        Returns:
            Whether the snapshot is cancelled; False if it was written or has
            failed.
        """
        if not self.done():
            self._saving.cancel()
        self._saving.ended.wait()
        self._thread.join()
        cancelled = self._saving.cancelled and self._saving.error is not None
        self._saving.told |= cancelled
        return cancelled
