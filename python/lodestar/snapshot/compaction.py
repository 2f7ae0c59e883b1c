"""Merges a chain of versions into one and removes old versions."""

import dataclasses
import shutil
import warnings
from collections.abc import Iterable, Sequence

from lodestar._arguments import explained
from lodestar._checks import check_count
from lodestar._files import sync
from lodestar._typing import StrPath
from lodestar.ops import snapshot_ops
from lodestar.snapshot import blobs
from lodestar.snapshot.errors import CorruptSnapshotError, corrupt_files
from lodestar.snapshot.folder import SnapshotFolder
from lodestar.snapshot.manifest import (
    FileEntry,
    Manifest,
    TableEntry,
    make_label,
    new_mark,
)
from lodestar.snapshot.verifying import damage, with_hint


@dataclasses.dataclass(frozen=True)
class CompactReport:
    """The result of `compact`.

    Attributes:
        version: The newest version, which is full.
        removed: Versions that were removed.
    """

    version: int
    removed: tuple[int, ...]


@explained()
def compact(path: StrPath, keep: int = 1) -> CompactReport:
    """Merges the newest version and all that it builds on into a full version.

    The result becomes the newest version. Once every byte of it has been read
    back and verified, versions that are no longer needed are removed, except
    those that are being read, which the next call removes. Training can
    continue to save deltas. If the process dies, all versions are as they were,
    or the new one exists and some old ones are not removed yet.

    Args:
        path: Path to the snapshot folder.
        keep: Number of newest versions to keep, including the new one, with
            all that they need.

    Returns:
        A `CompactReport` with the new and the removed versions.

    Raises:
        ValueError: `keep` is less than 1.
        SnapshotError: The folder has no version, another process writes to it,
            or a version cannot be read (names the file). No version is removed.
        OSError, tf.errors.OpError: A file cannot be read or written (names it).
    """
    keep = check_count("keep", keep, 1)
    folder = SnapshotFolder(path)
    newest = folder.newest_version()
    with folder.lock():
        newest = folder.newest_version()
        try:
            chain = folder.chain(newest)
            if len(chain) > 1:
                newest = _compact_chain(folder, chain)
            if wrong := damage(folder, folder.chain(newest)):
                raise CorruptSnapshotError("; ".join(wrong))
        except CorruptSnapshotError as error:
            raise with_hint(folder, newest, error) from None
        removed = folder.remove_unneeded(keep)
    return CompactReport(newest, tuple(sorted(removed)))


def remove_old(
    folder: SnapshotFolder, keep: int, also: Iterable[int] = ()
) -> list[int]:
    """Removes versions except the `keep` newest and `also`; returns the removed.

    Requires the lock. Before, reads the newest versions until one is intact, and
    warns of damaged ones. If none is intact, raises SnapshotError and removes
    nothing.
    """
    broken: list[str] = []
    also = list(also)
    if folder.unneeded(keep, also):
        for version in reversed(folder.versions()[-keep:]):
            wrong = damage(folder, folder.chain(version))
            if not wrong:
                break
            broken += wrong
        else:
            raise CorruptSnapshotError(
                f"{'; '.join(broken)}. No version was removed."
            )
    if broken:
        warnings.warn(
            f"A snapshot is damaged: {'; '.join(broken)}",
            RuntimeWarning,
            stacklevel=2,
        )
    return folder.remove_unneeded(keep, also)


def _compact_chain(folder: SnapshotFolder, chain: list[Manifest]) -> int:
    last = chain[-1]
    version = folder.begin_version()
    mark = new_mark()
    try:
        tables = tuple(
            _compact_table(folder, files, table, version, mark)
            for saved in last.saved_tables()
            for table, files in zip(
                saved.files, folder.table_files(chain, saved.name), strict=True
            )
        )
        files = tuple(
            _copy(folder, last, file, version, mark) for file in last.files
        )
        folder.commit(
            dataclasses.replace(
                last,
                version=version,
                parent=None,
                same_as=last.id,
                kind="full",
                tables=tables,
                files=files,
                mark=mark,
            )
        )
    except BaseException:
        folder.discard(version)
        raise
    return version


def _compact_table(
    folder: SnapshotFolder,
    files: Sequence[tuple[str, TableEntry]],
    table: TableEntry,
    version: int,
    mark: str,
) -> TableEntry:
    with corrupt_files():
        compacted = snapshot_ops.compact(
            [entry.at(path) for path, entry in files],
            folder.file_path(version, table.file),
            make_label(mark, version, table.name, table.part, table.parts),
        )
    return dataclasses.replace(table, whole=True, **compacted._asdict())


def _copy(
    folder: SnapshotFolder,
    manifest: Manifest,
    entry: FileEntry,
    version: int,
    mark: str,
) -> FileEntry:
    """Copies an intact file to a new version and returns its entry there."""
    target = folder.file_path(version, entry.file)
    if manifest.has_blocks(entry):
        data = blobs.read_file(folder, manifest, entry)
        label = make_label(mark, version, entry.file)
        return FileEntry(
            entry.file, *snapshot_ops.write_blobs(target, [data], label)
        )
    source = folder.intact_file(manifest, entry)
    shutil.copyfile(source, target)
    sync(target)
    return entry
