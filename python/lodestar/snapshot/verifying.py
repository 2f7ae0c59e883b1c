"""Verifying: every byte of a version against its checksums."""

import dataclasses

from lodestar._typing import StrPath
from lodestar.snapshot.errors import CorruptSnapshotError, SnapshotError
from lodestar.snapshot.folder import SnapshotFolder
from lodestar.snapshot.restoring import ATTEMPTS, choose
from lodestar.snapshot.wholeness import damage


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


def verify(path: StrPath, version: int | None = None) -> VerifyReport:
    """Reads all files that a version needs, and checks every byte.

    If the newest version goes away meanwhile, as it does when another process
    compacts, the next newest one takes its place.

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
    for _ in range(ATTEMPTS):
        chosen = choose(folder, None, version)
        try:
            return _verify(folder, chosen)
        except SnapshotError:
            if version is not None or chosen in folder.versions():
                raise
    raise SnapshotError(
        f"{folder.path}: {ATTEMPTS} versions went away while they were read"
    )


def _verify(folder: SnapshotFolder, version: int) -> VerifyReport:
    chain = folder.chain(version)
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
