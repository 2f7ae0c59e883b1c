"""Compaction: a chain of deltas made one full version; old versions removed."""

from __future__ import annotations

import dataclasses
import os
import shutil
from typing import Any

from lodestar.ops import snapshot_ops
from lodestar.snapshot.errors import CorruptSnapshotError, corrupt_files
from lodestar.snapshot.folder import SnapshotFolder, sync_file
from lodestar.snapshot.manifest import FileEntry, Manifest, TableEntry


@dataclasses.dataclass(frozen=True)
class CompactReport:
    """What compaction did.

    Attributes:
        version: The newest version, which is full.
        removed: The versions that are gone.
    """

    version: int
    removed: tuple[int, ...]


def compact(path: str | os.PathLike, keep: int = 1) -> CompactReport:
    """Makes one full version of the newest and all that it builds on.

    The new version is the newest then; only after it is there, versions that
    nobody needs are removed. A trainer whose tables were saved or restored
    before goes on with deltas. One that dies in the middle leaves all versions
    as they were, or the new one and some that are to go.

    Args:
        path: A folder that `save` wrote to.
        keep: The newest versions to keep, the new one among them, with all
            that they need.

    Raises:
        ValueError: `keep` is not 1 or more.
        SnapshotError: There is no version, another process writes to the
            folder, or a version cannot be read (names what is wrong); no
            version is removed.
        OSError, tf.errors.OpError: A file cannot be written (names it).
    """
    keep = check_keep(keep)
    folder = SnapshotFolder(path)
    newest = folder.newest_version()
    with folder.lock():
        newest = folder.newest_version()
        chain = folder.chain(newest)
        if len(chain) > 1:
            newest = _merge(folder, chain)
        removed = folder.remove_unneeded(keep)
    return CompactReport(newest, tuple(sorted(removed)))


def check_keep(keep: Any) -> int:
    """Returns `keep`; ValueError unless it is an integer, at least 1."""
    if type(keep) is not int or keep < 1:
        raise ValueError(f"`keep` is {keep!r}, wanted 1 or more.")
    return keep


def _merge(folder: SnapshotFolder, chain: list[Manifest]) -> int:
    last = chain[-1]
    version = folder.begin_version()
    try:
        tables = tuple(
            _merge_table(folder, chain, table, version) for table in last.tables
        )
        for file in last.files:
            _copy(
                file,
                folder.file_path(last.version, file.file),
                folder.file_path(version, file.file),
            )
        folder.commit(
            dataclasses.replace(
                last,
                version=version,
                parent=None,
                same_as=last.version,
                kind="full",
                tables=tables,
            )
        )
    except BaseException:
        folder.discard(version)
        raise
    return version


def _merge_table(
    folder: SnapshotFolder,
    chain: list[Manifest],
    table: TableEntry,
    version: int,
) -> TableEntry:
    files = folder.table_files(chain, table.name)
    for path, entry in files:
        folder.check_size(path, entry)
    out = folder.file_path(version, table.file)
    if len(files) == 1:
        _copy(table, files[0][0], out)
        return table
    with corrupt_files():
        merged = snapshot_ops.merge([path for path, _ in files], out)
    return dataclasses.replace(
        table,
        whole=True,
        rows=merged.rows,
        removed=0,
        bytes=merged.bytes,
        crc32c=merged.crc32c,
    )


def _copy(entry: FileEntry, source: str, target: str) -> None:
    """Copies a file, and checks that it is what was written once."""
    shutil.copyfile(source, target)
    sync_file(target)
    found = snapshot_ops.file_crc(target)
    if (found.bytes, found.crc32c) != (entry.bytes, entry.crc32c):
        raise CorruptSnapshotError(
            f"{source}: has {found.bytes} bytes with checksum "
            f"{found.crc32c:08x}, wanted {entry.bytes} and "
            f"{entry.crc32c:08x} as the manifest has it"
        )
