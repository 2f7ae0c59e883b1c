"""The folder of snapshots: its versions, its lock, and what a crash leaves.

    PATH/LOCK                held by who writes
    PATH/00000001/MANIFEST   makes a version of the folder it is in
    PATH/00000001/...        the files that it lists
    PATH/00000002/...        without MANIFEST: left by a writer that died

A manifest gets its name when all that it lists is on the disk, so a version is
there whole or not at all. Numbers only rise.
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
from collections.abc import Iterable, Iterator, Sequence

from lodestar._files import (
    errors_name,
    make_synced_folders,
    sync,
    write_synced,
)
from lodestar._typing import StrPath
from lodestar.ops import snapshot_ops
from lodestar.snapshot import manifest as manifest_lib
from lodestar.snapshot.errors import (
    CorruptSnapshotError,
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
_MAX_MANIFEST_BYTES = 1 << 30
_PARTIAL = f"{manifest_lib.NAME}.partial"


def local_path(path: StrPath) -> str:
    """Returns `path` as text.

    Raises:
        ValueError: It is empty, or of a file system that has neither fsync nor
            an atomic rename.
    """
    text = os.fspath(path)
    if not isinstance(text, str) or not text:
        raise ValueError(f"`path` is {path!r}, wanted a folder's path.")
    if "://" in text:
        raise ValueError(
            f"`path` is {text!r}; wanted a folder of a local or mounted file "
            "system, as snapshots need fsync and an atomic rename."
        )
    return text


class SnapshotFolder:
    """The versions in a folder, which need not exist yet.

    Raises:
        ValueError: As `local_path`.
    """

    def __init__(self, path: StrPath):
        self.path = local_path(path)

    def version_path(self, version: int) -> str:
        """The folder of a version."""
        return os.path.join(self.path, f"{version:08d}")

    def file_path(self, version: int, file: str) -> str:
        """The path of a file of a version."""
        return os.path.join(self.version_path(version), file)

    def manifest_path(self, version: int) -> str:
        """The path of the manifest of a version."""
        return self.file_path(version, manifest_lib.NAME)

    def numbers(self) -> list[int]:
        """The numbers of all folders of versions, with manifest or not."""
        try:
            names = os.listdir(self.path)
        except FileNotFoundError:
            return []
        numbers = [int(name) for name in names if _VERSION.fullmatch(name)]
        # One number has one name.
        return sorted(
            n for n in numbers if f"{n:08d}" in names and n <= _MAX_VERSION
        )

    def versions(self) -> list[int]:
        """The versions, in ascending order."""
        return [
            number
            for number in self.numbers()
            if _exists(self.manifest_path(number))
        ]

    def manifest(self, version: int) -> Manifest:
        """Reads a version's manifest.

        Raises:
            CorruptSnapshotError: It is not what was written.
            SnapshotError: There is no such version, or it is of a later format.
        """
        path = self.manifest_path(version)
        try:
            data = _read_regular(path)
        except (FileNotFoundError, NotADirectoryError):
            raise SnapshotError(
                f"{self.path}: has no version {version}; it has "
                f"{_numbers(self.versions())}"
            ) from None
        found = manifest_lib.decode(data, path)
        if found.version != version:
            raise CorruptSnapshotError(
                f"{path}: `version` is {found.version}, wanted {version} as "
                "its folder has it"
            )
        return found

    def newest_version(self) -> int:
        """The newest version's number.

        Raises:
            SnapshotError: There is none.
        """
        versions = self.versions()
        if not versions:
            raise SnapshotError(f"{self.path}: holds no snapshot")
        return versions[-1]

    def at_step(self, step: int) -> int:
        """The newest version that was taken at `step`.

        Raises:
            SnapshotError: There is none.
        """
        steps = []
        for version in reversed(self.versions()):
            found = self.manifest(version).step
            if found == step:
                return version
            steps.append(found)
        raise SnapshotError(
            f"{self.path}: has no snapshot of step {step}; it has those of "
            f"{_numbers(sorted(set(steps)))}"
        )

    def chain(self, version: int) -> list[Manifest]:
        """The manifests of all that a version needs, itself last.

        Raises:
            CorruptSnapshotError: As `manifest`, or one is missing (names it), or
                they do not fit together.
            SnapshotError: As `manifest`.
        """
        found = [self.manifest(version)]
        while (parent_version := found[-1].parent) is not None:
            child = found[-1]
            path = self.manifest_path(child.version)
            if not _exists(self.manifest_path(parent_version)):
                raise CorruptSnapshotError(
                    f"{path}: is a delta on version {child.parent}, but "
                    f"{self.manifest_path(parent_version)} is missing"
                )
            parent = self.manifest(parent_version)
            if parent.root != child.root:
                raise CorruptSnapshotError(
                    f"{path}: is a delta on version {parent.version} of "
                    f"another folder: `root` is {child.root}, wanted "
                    f"{parent.root} as "
                    f"{self.manifest_path(parent.version)} has it"
                )
            self._check_tables(child, parent)
            found.append(parent)
        return found[::-1]

    def _check_tables(self, child: Manifest, parent: Manifest) -> None:
        for table in child.tables:
            if table.whole:
                continue
            before = parent.table(table.name)
            sides = [
                None if t is None else _kind(t)
                for t in (table, before.files[0] if before else None)
            ]
            if sides[0] != sides[1]:
                raise CorruptSnapshotError(
                    f"{self.manifest_path(child.version)}: the changes of "
                    f"the table {table.name!r} have {sides[0]}, but in "
                    f"{self.manifest_path(parent.version)} it has "
                    f"{sides[1] or 'no rows'}"
                )

    def table_files(
        self, chain: Sequence[Manifest], name: str
    ) -> list[list[tuple[str, TableEntry]]]:
        """Paths and entries of a table's files in a chain, part by part.

        Those of a part begin with the whole one.

        Raises:
            CorruptSnapshotError: As `check_file`.
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
        """All files that the last of a chain needs, and whose they are."""
        last = chain[-1]
        found: list[tuple[Manifest, FileEntry]] = [
            file for part in last.tables for file in _part_entries(chain, part)
        ]
        return found + [(last, file) for file in last.files]

    def check_file(self, manifest: Manifest, entry: FileEntry) -> str:
        """The path of a file, which is that of the version, by what it says.

        Raises:
            CorruptSnapshotError: It is missing, of another size, or the file of
                another table, version or manifest (names both).
            SnapshotError: It is of a later format.
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
                f"{path}: is another file: {manifest_lib.label_text(found)}, "
                f"wanted {manifest_lib.label_text(wanted)}, as "
                f"{self.manifest_path(manifest.version)} has it"
            )
        return path

    def check_size(self, path: str, entry: FileEntry) -> None:
        """Raises CorruptSnapshotError unless a file has its size."""
        try:
            size = os.stat(path).st_size
        except (FileNotFoundError, NotADirectoryError):
            raise CorruptSnapshotError(f"{path}: is missing") from None
        if size != entry.bytes:
            what = "is cut short" if size < entry.bytes else "goes on"
            raise CorruptSnapshotError(
                f"{path}: {what} at byte {min(size, entry.bytes)}: has {size} "
                f"bytes, wanted {entry.bytes}"
            )

    @contextlib.contextmanager
    def lock(self) -> Iterator[None]:
        """Keeps other writers out; the folder is made if there is none.

        Raises:
            SnapshotError: Another one writes (names it), or LOCK is no regular
                file.
        """
        lock = FolderLock(self.path)
        # An interrupt may come between any two calls.
        try:
            lock.acquire()
            yield
        finally:
            lock.release()

    def acquire(self) -> "FolderLock":
        """As `lock`, until the `release` of what it returns."""
        lock = FolderLock(self.path)
        try:
            lock.acquire()
        except BaseException:
            lock.release()
            raise
        return lock

    def begin_version(self, at_least: int = 1) -> int:
        """Makes the folder of a new version, of `at_least` this number.

        Under the lock. What writers that died have left goes; its numbers are
        not used again.
        """
        numbers = self.numbers()
        version = max([at_least, *(n + 1 for n in numbers)])
        if version > _MAX_VERSION:
            raise SnapshotError(
                f"{self.version_path(version - 1)}: no number is left for a "
                "version after it; remove the folder if it is none"
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
        """Makes the folder with the manifest's files a version.

        The files are on the disk already; their names are brought there, and
        the folder's, which file systems with a journal have then taken there
        with the files.
        """
        sync(self.path)
        path = self.version_path(manifest.version)
        write_synced(
            self.manifest_path(manifest.version),
            manifest_lib.encode(manifest),
            os.path.join(path, _PARTIAL),
        )

    def discard(self, version: int) -> None:
        """Removes what was to become a version; one that is seen stays."""
        with contextlib.suppress(OSError):
            if not _exists(self.manifest_path(version)):
                self.remove(version)

    def remove(self, version: int) -> None:
        """Removes a version, or what was to become one; no error if it cannot.

        It is no version from the first thing that goes.
        """
        with contextlib.suppress(OSError):
            os.unlink(self.manifest_path(version))
            sync(self.version_path(version))
        with contextlib.suppress(OSError):
            if not _exists(self.manifest_path(version)):
                shutil.rmtree(self.version_path(version), ignore_errors=True)

    def remove_unneeded(self, keep: int, also: Iterable[int] = ()) -> list[int]:
        """Removes all but the `keep` newest versions and what those need.

        Those of `also` that are there stay, too. Under the lock. A version
        goes before those that it builds on, so that at no moment one is there
        that cannot be restored.

        Returns:
            The versions removed.

        Raises:
            SnapshotError: What is needed cannot be told; nothing is removed.
        """
        unneeded = self.unneeded(keep, also)
        for version in unneeded:
            self.remove(version)
        # Not those above the newest version, whose numbers would come again.
        self._remove_leftovers(max(self.versions(), default=0))
        return unneeded

    def unneeded(self, keep: int, also: Iterable[int] = ()) -> list[int]:
        """What `remove_unneeded` removes, the newest first."""
        versions = self.versions()
        stay = {*versions[-keep:], *also} & set(versions)
        needed = {
            manifest.version
            for version in stay
            for manifest in self.chain(version)
        }
        return [v for v in reversed(versions) if v not in needed]


class FolderLock:
    """The lock of a folder of snapshots; see `SnapshotFolder.lock`."""

    def __init__(self, path: str):
        self._folder = path
        self._descriptor: int | None = None

    def acquire(self) -> None:
        """Raises as `SnapshotFolder.lock`; `release` is to follow anyway."""
        make_synced_folders(os.path.abspath(self._folder))
        path = os.path.join(self._folder, LOCK)
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC
        self._descriptor = _open_regular(path, flags)
        try:
            with errors_name(path):
                fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise SnapshotLockedError(
                f"{path}: is held by {_holder(self._descriptor)}; wanted one "
                "writer at a time"
            ) from None
        _note_holder(self._descriptor)

    def release(self) -> None:
        """Any number of times."""
        if self._descriptor is None:
            return
        # A process forked meanwhile holds the file open; it must not hold the
        # lock.
        fcntl.flock(self._descriptor, fcntl.LOCK_UN)
        descriptor, self._descriptor = self._descriptor, None
        os.close(descriptor)


def _open_regular(path: str, flags: int) -> int:
    """Opens a regular file: no link, and nothing that would be waited for.

    Raises:
        CorruptSnapshotError: It is no regular file.
        OSError: It cannot be opened (names it).
    """
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
    return CorruptSnapshotError(f"{path}: is no regular file, or a link")


def _read_regular(path: str) -> bytes:
    descriptor = _open_regular(path, os.O_RDONLY | os.O_CLOEXEC)
    with errors_name(path), os.fdopen(descriptor, "rb") as file:
        size = os.fstat(file.fileno()).st_size
        if size > _MAX_MANIFEST_BYTES:
            raise CorruptSnapshotError(
                f"{path}: has {size} bytes, wanted {_MAX_MANIFEST_BYTES} at "
                "most"
            )
        return file.read()


def _part_entries(
    chain: Sequence[Manifest], last: TableEntry
) -> list[tuple[Manifest, TableEntry]]:
    """The files of a table's part, of which `last` is that of the last version.

    The whole one first, and whose they are.
    """
    found: list[tuple[Manifest, TableEntry]] = []
    for manifest in reversed(chain):
        entry = _table(manifest, last.name).files[last.part]
        found.append((manifest, entry))
        if entry.whole:
            break
    return found[::-1]


def _table(manifest: Manifest, name: str) -> SavedTable:
    """One that is known to be there."""
    table = manifest.table(name)
    assert table is not None
    return table


def _kind(table: TableEntry) -> str:
    parts = "" if table.parts == 1 else f" in {table.parts} parts"
    return f"dim {table.dim} and dtype {table.dtype}{parts}"


def _exists(path: str) -> bool:
    """Whether there is such a file; OSError if that cannot be told.

    `os.path.exists` takes any error for a no, and a version whose manifest a
    network file system fails to show for a moment for a leftover.
    """
    try:
        os.lstat(path)
    except (FileNotFoundError, NotADirectoryError):
        return False
    return True


def _numbers(numbers: Sequence[int]) -> str:
    shown = [str(number) for number in numbers[-8:]]
    more = ["..."] if len(numbers) > len(shown) else []
    return ", ".join(more + shown) or "none"


def _note_holder(descriptor: int) -> None:
    holder = {"process": os.getpid(), "host": socket.gethostname()}
    note = json.dumps(holder).encode()
    # A full disk must not keep one from removing versions.
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
