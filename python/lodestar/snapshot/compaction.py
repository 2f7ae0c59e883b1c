"""Compaction: a chain merged into one full version, old versions removed."""

import dataclasses
import shutil
import warnings
from collections.abc import Iterable

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
from lodestar.snapshot.wholeness import check_whole, damage, with_hint


@dataclasses.dataclass(frozen=True)
class CompactReport:
    """What compaction did.

    Attributes:
        version: The newest version, which is full.
        removed: The versions that are gone.
    """

    version: int
    removed: tuple[int, ...]


def compact(path: StrPath, keep: int = 1) -> CompactReport:
    """Merges the newest version and all that it builds on into a full one.

    The new version is the newest then; only after it is there, and every byte
    of it was read and is right, versions that nobody needs are removed. A
    trainer whose tables were saved or restored
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
    keep = check_count("keep", keep, 1)
    folder = SnapshotFolder(path)
    newest = folder.newest_version()
    with folder.lock():
        newest = folder.newest_version()
        try:
            chain = folder.chain(newest)
            if len(chain) > 1:
                newest = _compact_chain(folder, chain)
        except CorruptSnapshotError as error:
            raise with_hint(folder, newest, error) from None
        check_whole(folder, newest)
        removed = folder.remove_unneeded(keep)
    return CompactReport(newest, tuple(sorted(removed)))


def remove_old(
    folder: SnapshotFolder, keep: int, also: Iterable[int] = ()
) -> list[int]:
    """Removes versions as `compact` does, under the lock, and merges none.

    Versions of `also` stay, too.

    Of the versions that stay one is read first; broken ones newer than that are
    warned about.

    Returns:
        The versions removed.

    Raises:
        SnapshotError: None of those that stay is whole; all versions stay.
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
                f"{'; '.join(broken)}. No version was removed"
            )
    if broken:
        warnings.warn(
            f"A snapshot is not what was written: {'; '.join(broken)}",
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
            _compact_table(
                folder,
                [path for path, _ in files],
                table,
                version,
                mark,
            )
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
                same_as=last.version,
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
    files: list[str],
    table: TableEntry,
    version: int,
    mark: str,
) -> TableEntry:
    with corrupt_files():
        compacted = snapshot_ops.compact(
            files,
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
    """Copies a file that is what was written once; says what it is then."""
    source = folder.check_file(manifest, entry)
    target = folder.file_path(version, entry.file)
    found = snapshot_ops.file_crc(source)
    if (found.bytes, found.crc32c) != (entry.bytes, entry.crc32c):
        raise CorruptSnapshotError(
            f"{source}: has {found.bytes} bytes with checksum "
            f"{found.crc32c:08x}, wanted {entry.bytes} and "
            f"{entry.crc32c:08x} as the manifest has it"
        )
    if manifest.has_blocks(entry):
        label = make_label(mark, version, entry.file)
        return blobs.copy(source, target, label)
    shutil.copyfile(source, target)
    sync(target)
    return entry
