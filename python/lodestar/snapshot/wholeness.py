"""Whether versions are whole: each byte that they need, against checksums."""

import os
import time
from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from lodestar._errors import describe_error
from lodestar.ops import snapshot_ops
from lodestar.snapshot.errors import (
    CorruptSnapshotError,
    SnapshotError,
    corrupt_files,
)
from lodestar.snapshot.folder import SnapshotFolder
from lodestar.snapshot.manifest import FileEntry, Manifest, TableEntry

# Files that were read since they were last written to: (path, inode, time).
_read: set[tuple[str, int, int]] = set()
# Who writes again so soon may leave the time as it is: clocks of file systems
# have steps, of up to 2 seconds.
_STEP_NS = 2 * 10**9


def damage(folder: SnapshotFolder, chain: Sequence[Manifest]) -> list[str]:
    """Reads all files that the last of a chain needs; says what is wrong."""
    wrong = []
    for manifest, entry in folder.needed_files(chain):
        try:
            _read_file(folder, manifest, entry)
        except (SnapshotError, OSError, tf.errors.OpError) as error:
            wrong.append(describe_error(error))
    return wrong


def check_whole(folder: SnapshotFolder, version: int) -> None:
    """Raises CorruptSnapshotError, with a hint, unless a version is whole."""
    wrong = damage(folder, folder.chain(version))
    if wrong:
        raise with_hint(folder, version, CorruptSnapshotError("; ".join(wrong)))


def with_hint(
    folder: SnapshotFolder, version: int, error: CorruptSnapshotError
) -> CorruptSnapshotError:
    """The error of a version; says which one is to be had instead.

    Reads the files of older versions until one of them is whole.
    """
    before = [v for v in folder.versions() if v < version]
    for other in reversed(before):
        try:
            whole = not damage(folder, folder.chain(other))
        except (SnapshotError, OSError):
            whole = False
        if whole:
            return CorruptSnapshotError(
                f"{error}. version={other} is the snapshot before it that is "
                "whole"
            )
    if before:
        return CorruptSnapshotError(f"{error}. No version before it is whole")
    return error


def check_parent(folder: SnapshotFolder, chain: Sequence[Manifest]) -> None:
    """Checks that a delta can build on the last of a chain, and soon.

    Sizes and labels of all files that it needs, and the bytes of those that
    were written to since their manifest was.

    Raises:
        SnapshotError: It cannot (names the file).
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
    if found.crc32c != entry.crc32c:
        raise CorruptSnapshotError(
            f"{path}: bytes 0 to {entry.bytes}: the checksum is "
            f"{found.crc32c:08x}, wanted {entry.crc32c:08x} as the manifest "
            "has it"
        )
    if isinstance(entry, TableEntry) and (found.rows, found.removed) != (
        entry.rows,
        entry.removed,
    ):
        raise CorruptSnapshotError(
            f"{path}: has {found.rows} rows and {found.removed} removed ids, "
            f"wanted {entry.rows} and {entry.removed} as the manifest has it"
        )
