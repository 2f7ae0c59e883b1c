"""What is known of a version, as calls return it."""

import dataclasses
from collections.abc import Mapping
from typing import Any

from lodestar._typing import StrPath
from lodestar.snapshot.errors import SnapshotError
from lodestar.snapshot.folder import SnapshotFolder
from lodestar.snapshot.manifest import Manifest, SavedTable


@dataclasses.dataclass(frozen=True)
class SnapshotInfo:
    """A version of a folder of snapshots.

    Attributes:
        path: Its own folder.
        version: Its number.
        kind: `"full"`, or `"delta"`: restoring it needs its parent, too.
        parent: The version that a delta builds on, else None.
        same_as: The version whose content it has, else None; `compact` makes
            such.
        step: The step that it was taken at.
        time: When, UTC, ISO 8601.
        tables: Name -> what is known of it, as rows, removed, bytes, dim,
            dtype, optimizer, slot_names, and the `files` of its parts.
        rows: Rows in its files.
        removed: Removed ids in its files.
        bytes: Of its files, without the manifest.
        metadata: What the user gave.
        seconds: Saving took; None where it is listed.
    """

    path: str
    version: int
    kind: str
    parent: int | None
    same_as: int | None
    step: int
    time: str
    tables: Mapping[str, SavedTable]
    rows: int
    removed: int
    bytes: int
    metadata: Mapping[str, Any]
    seconds: float | None = None


def make_info(
    folder: SnapshotFolder, manifest: Manifest, seconds: float | None = None
) -> SnapshotInfo:
    """What a manifest says."""
    return SnapshotInfo(
        path=folder.version_path(manifest.version),
        version=manifest.version,
        kind=manifest.kind,
        parent=manifest.parent,
        same_as=manifest.same_as,
        step=manifest.step,
        time=manifest.time,
        tables={table.name: table for table in manifest.saved_tables()},
        rows=sum(table.rows for table in manifest.tables),
        removed=sum(table.removed for table in manifest.tables),
        bytes=sum(file.bytes for file in manifest.all_files()),
        metadata=manifest.metadata,
        seconds=seconds,
    )


def versions(path: StrPath) -> list[SnapshotInfo]:
    """Lists the versions in a folder of snapshots, oldest first.

    >>> [info.kind for info in lodestar.snapshot.versions("snapshots")]
    ['full']

    Args:
        path: The folder. One that does not exist has no versions.

    Returns:
        A `SnapshotInfo` per version: its number, step, time, tables and sizes.

    Raises:
        CorruptSnapshotError: A manifest is not what was written (names it).
        SnapshotError: One is of a later format.
        ValueError: `path` is of no local file system.
    """
    folder = SnapshotFolder(path)
    infos = []
    for version in folder.versions():
        try:
            manifest = folder.manifest(version)
        except SnapshotError:
            if version in folder.versions():
                raise
            continue  # Another process has removed it meanwhile.
        infos.append(make_info(folder, manifest))
    return infos
