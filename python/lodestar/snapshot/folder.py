"""The snapshot folder: its versions and its lock.

    PATH/LOCK                held by the process that writes
    PATH/00000001/MANIFEST   makes its folder a version
    PATH/00000001/...        the files that the manifest lists
    PATH/00000002/...        left by a writer that died: it has no MANIFEST

A manifest gets its name when all files that it lists are on disk, so versions
appear atomically. Version numbers only increase. A process that reads a version
holds a shared lock on its manifest, so that no process removes what it needs.
"""

import contextlib
import errno
import fcntl
import json
import os
import re
import shutil
import socket
import stat
import time
from collections.abc import Iterable, Iterator, Sequence

from lodestar._files import errors_name, make_synced_folders, sync, write_synced
from lodestar._typing import StrPath
from lodestar.ops import snapshot_ops
from lodestar.snapshot import manifest as manifest_lib
from lodestar.snapshot.errors import (
    CorruptSnapshotError,
    MissingSnapshotError,
    SnapshotError,
    SnapshotLockedError,
    corrupt_files,
)
from lodestar.snapshot.manifest import (
    FileEntry,
    Manifest,
    SavedTable,
    TableEntry,
)

LOCK = "LOCK"
_VERSION = re.compile(r"[0-9]{8,19}")
_MAX_VERSION = 2**63 - 1
PARTIAL = f"{manifest_lib.NAME}.partial"


def local_path(path: StrPath, name: str = "path") -> str:
    """Returns `path` as a string; raises ValueError unless it is local."""
    text = os.fspath(path)
    if not isinstance(text, str) or not text:
        raise ValueError(
            f"`{name}` must be the path of a folder, got {path!r}."
        )
    if "://" in text:
        raise ValueError(
            f"`{name}` must be a folder of a local or mounted file system, since "
            f"snapshots need fsync and an atomic rename, got {text!r}. "
            "lodestar.snapshot.copy copies versions to and from other file "
            "systems."
        )
    return text


def _version_number(name: str) -> int | None:
    """Returns the number of the version whose folder has a name, or None."""
    if not _VERSION.fullmatch(name):
        return None
    number = int(name)
    # Only the canonical name of a number counts.
    return (
        number if f"{number:08d}" == name and number <= _MAX_VERSION else None
    )


class SnapshotFolder:
    """The versions in a folder, which need not exist yet."""

    def __init__(self, path: StrPath):
        self.path = local_path(path)
        # Manifests with the last lines of their files, by version.
        self._known: dict[int, tuple[bytes, Manifest]] = {}

    def version_path(self, version: int) -> str:
        """Returns the path of a version's folder."""
        return os.path.join(self.path, f"{version:08d}")

    def file_path(self, version: int, file: str) -> str:
        """Returns the path of a version's file."""
        return os.path.join(self.version_path(version), file)

    def manifest_path(self, version: int) -> str:
        """Returns the path of a version's manifest."""
        return self.file_path(version, manifest_lib.NAME)

    def _names(self) -> list[str]:
        """Returns the names in the folder; none if it does not exist."""
        try:
            return os.listdir(self.path)
        except FileNotFoundError:
            return []

    def _exists(self, path: str) -> bool:
        """Returns whether a file exists; raises OSError if that is unknown.

        `os.path.exists` returns False on any error, and a version whose manifest a
        network file system briefly fails to show would be removed as a leftover.
        """
        try:
            os.lstat(path)
        except (FileNotFoundError, NotADirectoryError):
            return False
        return True

    def _read(self, path: str, tail: int | None = None) -> bytes:
        """Reads a manifest, or its last `tail` bytes.

        Raises FileNotFoundError or NotADirectoryError without it.
        """
        return _read_regular(path, tail)

    def numbers(self) -> list[int]:
        """Returns the numbers of all folders, with or without a manifest."""
        numbers = map(_version_number, self._names())
        return sorted(number for number in numbers if number is not None)

    def versions(self) -> list[int]:
        """Returns the versions in ascending order."""
        return [n for n in self.numbers() if self.has(n)]

    def has(self, version: int) -> bool:
        """Returns whether there is a version of this number."""
        return self._exists(self.manifest_path(version))

    def manifest(self, version: int) -> Manifest:
        """Returns the manifest of a version.

        Parses it only if its checksum has changed since the last call.
        """
        path = self.manifest_path(version)
        try:
            checksum = self._read(path, tail=manifest_lib.CHECKSUM_BYTES)
            known = self._known.get(version)
            if known is not None and known[0] == checksum:
                return known[1]
            data = self._read(path)
        except (FileNotFoundError, NotADirectoryError):
            raise SnapshotError(
                f"{self.path}: has no version {version}; it has "
                f"{_numbers(self.versions())}"
            ) from None
        found = manifest_lib.decode(data, path)
        if found.version != version:
            raise CorruptSnapshotError(
                f"{path}: `version` must be {version}, as in the folder's "
                f"name, got {found.version}"
            )
        self._known[version] = checksum, found
        return found

    def newest_version(self) -> int:
        """Returns the newest version; raises SnapshotError without any."""
        versions = self.versions()
        if not versions:
            raise MissingSnapshotError.of(self.path)
        return versions[-1]

    def at_step(self, step: int) -> int:
        """Returns the newest version of a step, or raises SnapshotError."""
        steps = []
        for version in reversed(self.versions()):
            found = self.manifest(version).step
            if found == step:
                return version
            steps.append(found)
        raise SnapshotError(
            f"{self.path}: has no snapshot of step {step}; it has steps "
            f"{_numbers(sorted(set(steps)))}"
        )

    def chain(self, version: int) -> list[Manifest]:
        """Returns the manifests that a version needs, its own last.

        Raises CorruptSnapshotError if they do not belong together.
        """
        found = [self.manifest(version)]
        while (wanted := found[-1].parent) is not None:
            child = found[-1]
            if not self.has(wanted.version):
                raise CorruptSnapshotError(
                    f"{self.manifest_path(child.version)}: is a delta on version "
                    f"{wanted.version}, but "
                    f"{self.manifest_path(wanted.version)} is missing"
                )
            parent = self.manifest(wanted.version)
            manifest_lib.check_parent(
                child, parent, self.manifest_path(child.version)
            )
            found.append(parent)
        needed = {manifest.version for manifest in found}
        self._known = {v: k for v, k in self._known.items() if v in needed}
        return found[::-1]

    @contextlib.contextmanager
    def kept(self, version: int | None) -> Iterator[list[Manifest]]:
        """Keeps a version, by default the newest, and all that it needs.

        Nobody removes them until the block ends. Returns their manifests as `chain`,
        and raises the same errors. Writers are not affected.
        """
        while True:
            chosen = self.newest_version() if version is None else version
            path = self.manifest_path(chosen)
            with _locked(path, fcntl.LOCK_SH) as is_locked:
                if is_locked:
                    yield self.chain(chosen)
                    return
            if version is not None or self.has(chosen):
                self.manifest(chosen)  # an error unless it is being removed
            time.sleep(0.01)

    @contextlib.contextmanager
    def copied(self) -> Iterator[None]:
        """Raises SnapshotLockedError if another one copies from this folder."""
        with _locked(self.path, fcntl.LOCK_EX) as is_free:
            if not is_free:
                raise SnapshotLockedError(
                    f"{self.path}: another process or thread is copying versions "
                    "from this folder. Wait for its end."
                )
            yield

    def table_files(
        self, chain: Sequence[Manifest], name: str
    ) -> list[list[tuple[str, TableEntry]]]:
        """Returns checked paths and entries of a table's files by part.

        The whole file of a part comes first, followed by its changes.
        """
        return [
            [
                (self.check_file(manifest, entry), entry)
                for manifest, entry in _part_entries(chain, part)
            ]
            for part in _table(chain[-1], name).files
        ]

    def needed_files(
        self, chain: Sequence[Manifest]
    ) -> list[tuple[Manifest, FileEntry]]:
        """Returns all files that a chain's last version needs, with owners."""
        last = chain[-1]
        found: list[tuple[Manifest, FileEntry]] = [
            file for part in last.tables for file in _part_entries(chain, part)
        ]
        return found + [(last, file) for file in last.files]

    def check_file(self, manifest: Manifest, entry: FileEntry) -> str:
        """Returns the path of a version's file; checks its size and label.

        Raises CorruptSnapshotError if the file is missing, has another size, or
        belongs to another table, version or manifest.
        """
        path = self.file_path(manifest.version, entry.file)
        self.check_size(path, entry)
        wanted = manifest.label(entry)
        if wanted is None:
            return path
        with corrupt_files():
            found = snapshot_ops.read_label(path)
        if found != wanted:
            raise CorruptSnapshotError(
                f"{path}: is another file: {manifest_lib.label_text(found)} "
                f"instead of {manifest_lib.label_text(wanted)}, which "
                f"{self.manifest_path(manifest.version)} lists"
            )
        return path

    def intact_file(self, manifest: Manifest, entry: FileEntry) -> str:
        """Returns the path of a version's file; also checks its checksum."""
        path = self.check_file(manifest, entry)
        check_crc(path, entry, snapshot_ops.file_crc(path).crc32c)
        return path

    def check_size(self, path: str, entry: FileEntry) -> None:
        """Raises CorruptSnapshotError if a file is missing or has another size."""
        try:
            size = os.stat(path).st_size
        except (FileNotFoundError, NotADirectoryError):
            raise CorruptSnapshotError(f"{path}: is missing") from None
        if size != entry.bytes:
            what = "is truncated" if size < entry.bytes else "continues"
            raise CorruptSnapshotError(
                f"{path}: {what} at byte {min(size, entry.bytes)}: must have "
                f"{entry.bytes} bytes, got {size}"
            )

    @contextlib.contextmanager
    def lock(self) -> Iterator[None]:
        """Locks the folder for writing; creates it if needed.

        Raises SnapshotLockedError if another writer holds the lock.
        """
        lock = FolderLock(self.path)
        # An interrupt may arrive between any two calls.
        try:
            lock.acquire()
            yield
        finally:
            lock.release()

    def acquire(self) -> "FolderLock":
        """Locks the folder as `lock`, until the returned lock is released."""
        lock = FolderLock(self.path)
        try:
            lock.acquire()
        except BaseException:
            lock.release()
            raise
        return lock

    def begin_version(self, at_least: int = 1) -> int:
        """Creates the folder of a new version, numbered `at_least` or higher.

        Requires the lock. Removes folders that dead writers left; their numbers
        are not reused.
        """
        numbers = self.numbers()
        version = max([at_least, *(n + 1 for n in numbers)])
        if version > _MAX_VERSION:
            raise SnapshotError(
                f"{self.version_path(version - 1)}: is the last possible "
                "version. Remove the folder if it is not a version."
            )
        os.mkdir(self.version_path(version))
        self._remove_leftovers(version)
        return version

    def _remove_leftovers(self, before: int) -> None:
        versions = set(self.versions())
        for number in self.numbers():
            if number < before and number not in versions:
                shutil.rmtree(self.version_path(number), ignore_errors=True)

    def commit(self, manifest: Manifest) -> None:
        """Writes the manifest, which makes its folder a version.

        Requires the files to be on disk. Syncs the names of the files and of
        the folder.
        """
        sync(self.path)
        path = self.version_path(manifest.version)
        write_synced(
            self.manifest_path(manifest.version),
            manifest_lib.encode(manifest),
            os.path.join(path, PARTIAL),
        )

    def discard(self, version: int) -> None:
        """Removes an uncommitted version; a committed one stays."""
        with contextlib.suppress(OSError):
            if not self.has(version):
                self.remove(version)

    def remove(self, version: int) -> None:
        """Removes a committed or uncommitted version, ignoring errors.

        Removes the manifest first, so that no partial version is visible.
        """
        folder = self.version_path(version)
        with contextlib.suppress(OSError):
            os.unlink(self.manifest_path(version))
            sync(folder)
        with contextlib.suppress(OSError):
            if not self.has(version):
                shutil.rmtree(folder, ignore_errors=True)

    def remove_unneeded(self, keep: int, also: Iterable[int] = ()) -> list[int]:
        """Removes all but the `keep` newest versions, `also` and their parents.

        Requires the lock. Removes a version before its parents, so that each
        version can be restored at any time. Removes nothing if a manifest
        cannot be read, and no version that is in use (`kept`). Returns the versions
        removed.
        """
        removed = []
        in_use: set[int] = set()
        for version in self.unneeded(keep, also):
            if version in in_use:
                continue
            with _locked(self.manifest_path(version), fcntl.LOCK_EX) as is_free:
                if is_free:
                    self.remove(version)
                    removed.append(version)
                else:
                    in_use |= {m.version for m in self.chain(version)}
        # Numbers above the newest version must not be reused.
        self._remove_leftovers(max(self.versions(), default=0))
        return removed

    def unneeded(self, keep: int, also: Iterable[int] = ()) -> list[int]:
        """Returns the versions that may be removed, newest first."""
        versions = self.versions()
        stay = {*versions[-keep:], *also} & set(versions)
        needed = {
            manifest.version
            for version in stay
            for manifest in self.chain(version)
        }
        return [v for v in reversed(versions) if v not in needed]


class FolderLock:
    """The lock of a snapshot folder; see `SnapshotFolder.lock`."""

    def __init__(self, path: str):
        self._folder = path
        self._descriptor: int | None = None

    def acquire(self) -> None:
        """Raises as `SnapshotFolder.lock`. Call `release` even after an error."""
        make_synced_folders(os.path.abspath(self._folder))
        path = os.path.join(self._folder, LOCK)
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC
        self._descriptor = _open_regular(path, flags)
        try:
            with errors_name(path):
                fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise SnapshotLockedError(
                f"{path}: is held by {_holder(self._descriptor)}. Only one "
                "writer at a time is possible."
            ) from None
        _note_holder(self._descriptor)

    def release(self) -> None:
        """Releases the lock. May be called repeatedly."""
        if self._descriptor is None:
            return
        # A forked process may hold the file open, but must not hold the lock.
        fcntl.flock(self._descriptor, fcntl.LOCK_UN)
        descriptor, self._descriptor = self._descriptor, None
        os.close(descriptor)


@contextlib.contextmanager
def _locked(path: str, kind: int) -> Iterator[bool]:
    """Locks a file or folder; returns False if it is locked otherwise, or missing.

    The lock ends with the process. File systems without locks grant all of them.
    """
    descriptor = None
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
        is_granted = os.path.samestat(os.fstat(descriptor), os.stat(path))
    except (BlockingIOError, FileNotFoundError):
        is_granted = False
    except OSError:
        is_granted = True
    try:
        yield is_granted
    finally:
        if descriptor is not None:
            # A forked process may hold the file open, but must not hold the lock.
            with contextlib.suppress(OSError):
                fcntl.flock(descriptor, fcntl.LOCK_UN)
            os.close(descriptor)


def check_crc(path: str, entry: FileEntry, found: int) -> None:
    """Raises CorruptSnapshotError unless `found` is the checksum of `entry`."""
    if found != entry.crc32c:
        raise CorruptSnapshotError(
            f"{path}: bytes 0 to {entry.bytes} have the checksum {found:08x}, "
            f"but the manifest has {entry.crc32c:08x}"
        )


def _open_regular(path: str, flags: int) -> int:
    """Opens a regular file without following links or blocking."""
    try:
        descriptor = os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK, 0o666)
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENXIO, errno.EISDIR):
            raise _no_regular_file(path) from None
        raise
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise _no_regular_file(path)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def _no_regular_file(path: str) -> CorruptSnapshotError:
    return CorruptSnapshotError(f"{path}: is not a regular file")


def _read_regular(path: str, tail: int | None = None) -> bytes:
    """Reads a manifest, or its last `tail` bytes."""
    descriptor = _open_regular(path, os.O_RDONLY | os.O_CLOEXEC)
    with errors_name(path), os.fdopen(descriptor, "rb") as file:
        size = os.fstat(file.fileno()).st_size
        if size > manifest_lib.MAX_BYTES:
            raise CorruptSnapshotError(
                f"{path}: must have at most {manifest_lib.MAX_BYTES} bytes, got "
                f"{size}"
            )
        if tail is not None:
            file.seek(max(0, size - tail))
        return file.read()


def _part_entries(
    chain: Sequence[Manifest], last: TableEntry
) -> list[tuple[Manifest, TableEntry]]:
    """Returns the files of a table's part with their owners, whole one first.

    `last` is the part's file in the chain's last version.
    """
    found: list[tuple[Manifest, TableEntry]] = []
    for manifest in reversed(chain):
        entry = _table(manifest, last.name).files[last.part]
        found.append((manifest, entry))
        if entry.whole:
            break
    return found[::-1]


def _table(manifest: Manifest, name: str) -> SavedTable:
    """Returns a table that the manifest is known to have."""
    table = manifest.table(name)
    assert table is not None
    return table


def _numbers(numbers: Sequence[int]) -> str:
    shown = [str(number) for number in numbers[-8:]]
    more = ["..."] if len(numbers) > len(shown) else []
    return ", ".join(more + shown) or "none"


def _note_holder(descriptor: int) -> None:
    holder = {"process": os.getpid(), "host": socket.gethostname()}
    note = json.dumps(holder).encode()
    # Removing versions must remain possible on a full disk.
    with contextlib.suppress(OSError):
        if os.pread(descriptor, 4096, 0) != note:
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, note, 0)


def _holder(descriptor: int) -> str:
    try:
        holder = json.loads(os.pread(descriptor, 4096, 0))
        return f"process {holder['process']} on {holder['host']}"
    except (ValueError, TypeError, KeyError):
        return "another process"
