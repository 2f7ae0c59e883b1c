"""Verifying: every byte of a version against its checksums."""

from __future__ import annotations

import dataclasses
import os

import tensorflow as tf

from lodestar.data.errors import describe_error
from lodestar.ops import snapshot_ops
from lodestar.snapshot import blobs
from lodestar.snapshot.errors import (
    CorruptSnapshotError,
    SnapshotError,
    corrupt_files,
)
from lodestar.snapshot.folder import SnapshotFolder
from lodestar.snapshot.manifest import FileEntry, TableEntry
from lodestar.snapshot.restoring import choose


@dataclasses.dataclass(frozen=True)
class VerifyReport:
    """What was read, all of it as it was written.

    Attributes:
        version: The version.
        versions: It and those that it needs, the oldest first.
        files: How many files, manifests not among them.
        bytes: Of those files.
    """

    version: int
    versions: tuple[int, ...]
    files: int
    bytes: int


def verify(path: str | os.PathLike, version: int | None = None) -> VerifyReport:
    """Reads all files that a version needs, and checks every byte.

    Args:
        path: A folder that `save` wrote to.
        version: Default: the newest.

    Raises:
        CorruptSnapshotError: Files are not what was written; names each, and
            the offset where bytes are wrong.
        SnapshotError: There is no such version, or one that it needs is
            missing.
    """
    folder = SnapshotFolder(path)
    chain = folder.chain(choose(folder, None, version))
    files = folder.needed_files(chain)
    wrong = []
    for file_path, entry in files:
        try:
            _verify_file(folder, file_path, entry)
        except SnapshotError as error:
            wrong.append(str(error))
        except tf.errors.OpError as error:
            wrong.append(describe_error(error))
    if wrong:
        raise CorruptSnapshotError("; ".join(wrong))
    return VerifyReport(
        version=chain[-1].version,
        versions=tuple(manifest.version for manifest in chain),
        files=len(files),
        bytes=sum(entry.bytes for _, entry in files),
    )


def _verify_file(folder: SnapshotFolder, path: str, entry: FileEntry) -> None:
    folder.check_size(path, entry)
    with corrupt_files():
        if isinstance(entry, TableEntry) or entry.file == blobs.FILE:
            found = snapshot_ops.verify_file(path)
        else:
            found = snapshot_ops.file_crc(path)
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
