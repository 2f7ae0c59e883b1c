"""Copies of versions in other file systems, such as object stores.

Training writes snapshots to a local or mounted folder, which needs fsync and an atomic
rename. A copy needs neither: its manifest is written last, so a version exists in the
copy only when all of its files do.
"""

import contextlib
import dataclasses
import functools
import os
import shutil
from collections.abc import Callable, Iterator
from typing import Literal, overload

import tensorflow as tf

from lodestar._arguments import explained
from lodestar._checks import check_count, check_flag
from lodestar._files import list_folder, sync
from lodestar._typing import StrPath
from lodestar.snapshot import manifest as manifest_lib
from lodestar.snapshot.errors import CorruptSnapshotError, SnapshotError
from lodestar.snapshot.folder import PARTIAL, SnapshotFolder
from lodestar.snapshot.manifest import Manifest
from lodestar.snapshot.outcome import Pending, Work

_PIECE_BYTES = 16 << 20


@dataclasses.dataclass(frozen=True)
class CopyReport:
    """The result of `copy`.

    Attributes:
        version: The version that the target has now.
        copied: The versions that were copied, oldest first. Those that the target
            had before are not copied again.
        bytes: Size of the files that were copied.
    """

    version: int
    copied: tuple[int, ...]
    bytes: int


@overload
def copy(
    source: StrPath,
    target: StrPath,
    version: int | None = None,
    *,
    blocking: Literal[True] = True,
) -> CopyReport: ...


@overload
def copy(
    source: StrPath,
    target: StrPath,
    version: int | None = None,
    *,
    blocking: Literal[False],
) -> Pending[CopyReport]: ...


@overload
def copy(
    source: StrPath,
    target: StrPath,
    version: int | None = None,
    *,
    blocking: bool,
) -> CopyReport | Pending[CopyReport]: ...


@explained()
def copy(
    source: StrPath,
    target: StrPath,
    version: int | None = None,
    *,
    blocking: bool = True,
) -> CopyReport | Pending[CopyReport]:
    """Copies a version, and all versions that it needs, to another file system.

    One of the two folders is local, and the other one may be on any file system that
    `tf.io.gfile` knows, such as `gs://` or `hdfs://`. Versions keep their numbers. The
    manifest of a version is written after all of its files, so readers of the
    target see whole versions only, also if the process dies. Checksums are verified
    in the local folder.

    Training may write to a local source at the same time. Neither `keep` nor `compact`
    removes a version that is being uploaded; the next snapshot or `compact` does.

    >>> pending = lodestar.snapshot.copy("snapshots", "ram://a", blocking=False)
    >>> history = model.fit(dataset, verbose=0)
    >>> pending.wait().copied
    (1,)

    Args:
        source: Path to the snapshot folder.
        target: Path to the folder of the copy, which is created.
        version: Version to copy. Defaults to the newest.
        blocking: If False, returns at once and a thread copies, for which the process
            waits before it exits.

    Returns:
        A `CopyReport`. With `blocking=False` an object whose `done()` returns whether
        the copy has ended, and whose `wait(timeout=None)` returns the report or raises
        the error. An error that nobody waits for is a RuntimeWarning.

    Raises:
        ValueError: Neither folder is local, `version` is not an integer of at
            least 1, or `blocking` is not a bool.
        SnapshotError: The source does not have the version, a file is damaged
            (names it), another process or thread copies from a local source or
            writes to a local target, or the target has a version of that number and
            another history.
        OSError, tf.errors.OpError: A file cannot be read or written.
    """
    blocking = check_flag("blocking", blocking)
    if version is not None:
        version = check_count("version", version, 1)
    source, target = os.fspath(source), os.fspath(target)
    if not blocking:
        # The working directory may change before the files are copied.
        source, target = _absolute(source), _absolute(target)
    work: Callable[[Callable[[], None]], CopyReport]
    if "://" not in target:
        remote = _Remote(source) if "://" in source else SnapshotFolder(source)
        work = functools.partial(
            _download, remote, SnapshotFolder(target), version
        )
    else:
        work = functools.partial(
            _upload, SnapshotFolder(source), _Remote(target), version
        )
    if blocking:
        return work(lambda: None)
    return Pending[CopyReport](_Copying(work))


def _absolute(path: str) -> str:
    return path if "://" in path or not path else os.path.abspath(path)


class _Copying(Work[CopyReport]):
    """A copy, which has begun when its versions are chosen and locked."""

    def __init__(self, copy: Callable[[Callable[[], None]], CopyReport]):
        super().__init__("copied")
        self._copy = copy

    def _do(self) -> CopyReport:
        return self._copy(self._begin)


class _Remote(SnapshotFolder):
    """A copy of a snapshot folder on any file system, which has no locks."""

    def __init__(self, path: str):
        self.path = path.rstrip("/")
        self._known = {}

    def _names(self) -> list[str]:
        if not tf.io.gfile.isdir(self.path):
            return []
        # Some file systems return names of folders with a slash.
        return [name.rstrip("/") for name in list_folder(self.path)]

    def _exists(self, path: str) -> bool:
        return bool(tf.io.gfile.exists(path))

    def _read(self, path: str, tail: int | None = None) -> bytes:
        try:
            with tf.io.gfile.GFile(path, "rb") as file:
                if tail is not None:
                    file.seek(max(0, file.size() - tail))
                data: bytes = file.read()
        except tf.errors.NotFoundError as error:
            raise FileNotFoundError(error.message) from None
        return data

    @contextlib.contextmanager
    def kept(self, version: int | None) -> Iterator[list[Manifest]]:
        """Returns the manifests; nothing is removed but by users."""
        yield self.chain(self.newest_version() if version is None else version)


def _upload(
    source: SnapshotFolder,
    target: _Remote,
    version: int | None,
    begin: Callable[[], None],
) -> CopyReport:
    copied, size = [], 0
    with source.kept(version) as chain, source.copied():
        begin()
        for manifest in chain:
            number = manifest.version
            with open(source.manifest_path(number), "rb") as file:
                data = file.read()
            if target.has(number):
                _check_same(manifest, target.manifest(number), target.path)
                continue
            tf.io.gfile.makedirs(target.version_path(number))
            for entry in manifest.all_files():
                path = source.intact_file(manifest, entry)
                _write(target.file_path(number, entry.file), _pieces(path))
                size += entry.bytes
            # It gets its name when it is whole.
            partial = target.file_path(number, PARTIAL)
            _write(partial, [data])
            final = target.file_path(number, manifest_lib.NAME)
            tf.io.gfile.rename(partial, final, overwrite=True)
            copied.append(number)
    return CopyReport(chain[-1].version, tuple(copied), size)


def _download(
    source: SnapshotFolder,
    target: SnapshotFolder,
    version: int | None,
    begin: Callable[[], None],
) -> CopyReport:
    copied, size = [], 0
    with source.kept(version) as chain, target.lock():
        begin()
        for manifest in chain:
            number = manifest.version
            if target.has(number):
                _check_same(manifest, target.manifest(number), target.path)
                continue
            size += _download_version(source, target, manifest)
            copied.append(number)
    return CopyReport(chain[-1].version, tuple(copied), size)


def _download_version(
    source: SnapshotFolder, target: SnapshotFolder, manifest: Manifest
) -> int:
    number = manifest.version
    # Left by a copy that did not finish.
    shutil.rmtree(target.version_path(number), ignore_errors=True)
    os.mkdir(target.version_path(number))
    size = 0
    try:
        for entry in manifest.all_files():
            path = target.file_path(number, entry.file)
            original = source.file_path(number, entry.file)
            try:
                _write(path, _pieces(original))
            except tf.errors.NotFoundError:
                if tf.io.gfile.exists(original):
                    raise
                raise CorruptSnapshotError(f"{original}: is missing") from None
            sync(path)
            try:
                target.intact_file(manifest, entry)
            except CorruptSnapshotError as error:
                raise CorruptSnapshotError(
                    f"{original}: is damaged, or was not copied whole: {error}"
                ) from None
            size += entry.bytes
        target.commit(manifest)
    except BaseException:
        target.discard(number)
        raise
    return size


def _check_same(given: Manifest, there: Manifest, target: str) -> None:
    if given != there:
        raise SnapshotError(
            f"{target}: already has another version {given.version}, with mark "
            f"{there.mark} instead of {given.mark}: the two folders have different "
            f"histories. Remove the versions from {given.version} on there, or copy "
            "to a folder of its own."
        )


def _pieces(path: str) -> Iterator[bytes]:
    with tf.io.gfile.GFile(path, "rb") as file:
        while piece := file.read(_PIECE_BYTES):
            yield piece


def _write(path: str, pieces: Iterator[bytes] | list[bytes]) -> None:
    if tf.io.gfile.exists(path):
        # Left by a copy that did not finish. Not all file systems truncate it.
        tf.io.gfile.remove(path)
    with tf.io.gfile.GFile(path, "wb") as file:
        for piece in pieces:
            file.write(piece)
