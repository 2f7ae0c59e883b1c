"""Verification of a version's checksums."""

import dataclasses

from lodestar._arguments import explained
from lodestar._typing import StrPath
from lodestar.snapshot.errors import CorruptSnapshotError, SnapshotError
from lodestar.snapshot.folder import SnapshotFolder
from lodestar.snapshot.restoring import ATTEMPTS, choose, versions_vanished
from lodestar.snapshot.wholeness import damage


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

    If another process compacts the newest version away, the version that
    replaced it is verified.

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
    for _ in range(ATTEMPTS):
        chosen = choose(folder, None, version)
        try:
            chain = folder.chain(chosen)
            wrong = damage(folder, chain)
            if wrong:
                raise CorruptSnapshotError("; ".join(wrong))
            break
        except SnapshotError:
            if version is not None or chosen in folder.versions():
                raise
    else:
        raise versions_vanished(folder)
    files = folder.needed_files(chain)
    return VerifyReport(
        version=chosen,
        versions=tuple(manifest.version for manifest in chain),
        files=len(files),
        bytes=sum(entry.bytes for _, entry in files),
    )
