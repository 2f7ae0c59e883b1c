"""Checks that versions are intact, by the checksums of all files they need."""

import dataclasses
import os
import time
from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from lodestar._arguments import explained
from lodestar._checks import check_count
from lodestar._errors import describe_error
from lodestar._typing import StrPath
from lodestar.ops import snapshot_ops
from lodestar.snapshot.errors import (
    CorruptSnapshotError,
    SnapshotError,
    corrupt_files,
)
from lodestar.snapshot.folder import SnapshotFolder, check_crc
from lodestar.snapshot.manifest import FileEntry, Manifest, TableEntry

# Files that were read since they were last written: (path, inode, time).
_read: set[tuple[str, int, int]] = set()
# File systems have clocks of up to 2 seconds per tick, so a second write in that
# time may leave the modification time unchanged.
_STEP_NS = 2 * 10**9


@dataclasses.dataclass(frozen=True)
class VerifyReport:
    """What `verify` read and found intact.

    Attributes:
        version: Number of the version.
        versions: The version and all that it needs, oldest first.
        files: Number of files without manifests.
        bytes: Size of these files.
    """

    version: int
    versions: tuple[int, ...]
    files: int
    bytes: int


@explained()
def verify(path: StrPath, version: int | None = None) -> VerifyReport:
    """Reads all files that a version needs and checks every byte.

    Other processes do not remove the version meanwhile.

    Args:
        path: Path to the snapshot folder.
        version: Version to verify. Defaults to the newest.

    Returns:
        A `VerifyReport` of the files read.

    Raises:
        CorruptSnapshotError: Files are damaged; names each, and the offset
            where bytes are wrong.
        SnapshotError: The version, or one that it needs, does not exist.
        OSError, tf.errors.OpError: A file could not be read. It may be intact.
    """
    folder = SnapshotFolder(path)
    if version is not None:
        version = check_count("version", version, 1)
    with folder.kept(version) as chain:
        wrong = damage(folder, chain)
        if wrong:
            raise CorruptSnapshotError("; ".join(wrong))
        files = folder.needed_files(chain)
    return VerifyReport(
        version=chain[-1].version,
        versions=tuple(manifest.version for manifest in chain),
        files=len(files),
        bytes=sum(entry.bytes for _, entry in files),
    )


def damage(folder: SnapshotFolder, chain: Sequence[Manifest]) -> list[str]:
    """Reads all files of a chain's last version and returns the faults found.

    Raises OSError or tf.errors.OpError if a file could not be read, which may be
    intact.
    """
    wrong = []
    for manifest, entry in folder.needed_files(chain):
        try:
            _read_file(folder, manifest, entry)
        except (SnapshotError, tf.errors.NotFoundError) as error:
            wrong.append(describe_error(error))
    return wrong


def with_hint(
    folder: SnapshotFolder, version: int, error: CorruptSnapshotError
) -> CorruptSnapshotError:
    """Adds the newest older version that is intact to the error of a version.

    Reads the files of older versions until one of them is intact.
    """
    before = [v for v in folder.versions() if v < version]
    for other in reversed(before):
        try:
            whole = not damage(folder, folder.chain(other))
        except (SnapshotError, OSError, tf.errors.OpError):
            whole = False
        if whole:
            return CorruptSnapshotError(
                f"{error}. The newest intact version before it is "
                f"version={other}."
            )
    if before:
        return CorruptSnapshotError(f"{error}. No version before it is intact.")
    return error


def check_parent(folder: SnapshotFolder, chain: Sequence[Manifest]) -> None:
    """Raises SnapshotError unless a delta can build on a chain's last version.

    Checks the sizes and labels of all files that it needs, and reads the files
    that were modified after their manifest.
    """
    for manifest, entry in folder.needed_files(chain):
        path = folder.check_file(manifest, entry)
        known = os.stat(folder.manifest_path(manifest.version)).st_mtime_ns
        found = os.stat(path)
        state = (os.path.abspath(path), found.st_ino, found.st_mtime_ns)
        if found.st_mtime_ns >= known and state not in _read:
            began = time.time_ns()
            _read_file(folder, manifest, entry)
            if began - found.st_mtime_ns > _STEP_NS:
                _read.add(state)


def _read_file(
    folder: SnapshotFolder, manifest: Manifest, entry: FileEntry
) -> None:
    path = folder.check_file(manifest, entry)
    with corrupt_files():
        found: Any = (
            snapshot_ops.verify_file(path)
            if manifest.has_blocks(entry)
            else snapshot_ops.file_crc(path)
        )
    check_crc(path, entry, found.crc32c)
    if isinstance(entry, TableEntry) and (found.rows, found.removed) != (
        entry.rows,
        entry.removed,
    ):
        raise CorruptSnapshotError(
            f"{path}: has {found.rows} rows and {found.removed} removed ids, "
            f"but {entry.rows} and {entry.removed} in the manifest"
        )
