"""Descriptions of versions, as the public functions return them."""

import dataclasses
from collections.abc import Mapping
from typing import Any

from lodestar._typing import StrPath
from lodestar.snapshot.errors import SnapshotError
from lodestar.snapshot.folder import SnapshotFolder
from lodestar.snapshot.manifest import Manifest, SavedTable, VersionId


@dataclasses.dataclass(frozen=True)
class SnapshotInfo:
    """A version in a snapshot folder.

    Attributes:
        path: Path to the version's folder.
        version: Number of the version.
        kind: `"full"` or `"delta"`, which also needs its parent.
        parent: Version that a delta builds on, else None.
        same_as: Version that `compact` made this one from, else None.
        step: Training step of the version.
        time: UTC time at which it was taken, in ISO 8601.
        tables: Table name -> its rows, removed, bytes, dim, dtype, optimizer,
            slot_names, and the `files` of its parts.
        rows: Number of rows in its files.
        removed: Number of removed ids in its files.
        bytes: Size of its files without the manifest.
        metadata: Metadata passed to `save`.
        seconds: Duration of the save; None if the version is listed.
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
    """Describes the version of a manifest."""
    same = ("version", "kind", "step", "time", "metadata")
    return SnapshotInfo(
        path=folder.version_path(manifest.version),
        tables={table.name: table for table in manifest.saved_tables()},
        rows=sum(table.rows for table in manifest.tables),
        removed=sum(table.removed for table in manifest.tables),
        bytes=sum(file.bytes for file in manifest.all_files()),
        parent=_number(manifest.parent),
        same_as=_number(manifest.same_as),
        seconds=seconds,
        **{name: getattr(manifest, name) for name in same},
    )


def _number(version: VersionId | None) -> int | None:
    return None if version is None else version.version


def versions(path: StrPath) -> list[SnapshotInfo]:
    """Lists the versions in a snapshot folder, oldest first.

    >>> [info.kind for info in lodestar.snapshot.versions("snapshots")]
    ['full']

    Args:
        path: Path to the snapshot folder. A missing folder has no versions.

    Returns:
        A `SnapshotInfo` per version: its number, step, time, tables and sizes.

    Raises:
        CorruptSnapshotError: A manifest is damaged (names it).
        SnapshotError: A manifest has a later format.
        ValueError: `path` is not on a local or mounted file system.
    """
    folder = SnapshotFolder(path)
    infos = []
    for version in folder.versions():
        try:
            infos.append(make_info(folder, folder.manifest(version)))
        except SnapshotError:
            if version in folder.versions():
                raise
            # Another process has removed the version.
    return infos
