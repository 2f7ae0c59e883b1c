"""Files and folders that appear whole or not at all.

`AtomicFile` writes to any `tf.io.gfile` file system, of which many know no
fsync. What a crash must not undo is written by `write_synced`, on local and
mounted ones.
"""

import contextlib
import ctypes
import errno
import gzip
import itertools
import os
import re
from collections.abc import Iterator
from typing import IO, Self, cast

import tensorflow as tf

from lodestar._errors import DataError
from lodestar._typing import StrPath

_COPY_BYTES = 4 << 20
_NUMBERS = itertools.count()
_AT_FDCWD, _RENAME_EXCHANGE = -100, 2
# Of kernels, file systems and sandboxes that do not exchange names.
_NO_EXCHANGE = {errno.ENOSYS, errno.EINVAL, errno.EOPNOTSUPP, errno.EPERM}


def as_path(path: str | bytes | os.PathLike[str]) -> str:
    """The path as a string.

    Raises:
        DataError: It holds a NUL, where the system would cut it.
        TypeError: It is no path.
    """
    text = os.fsdecode(path)
    if "\0" in text:
        shown = text.replace("\0", r"\0")
        raise DataError(f"{shown}: a path cannot hold a NUL")
    return text


def gzip_writer(file: IO[bytes]) -> IO[bytes]:
    """Writes to `file`, compressed; must be closed before it.

    Without a time stamp, so that equal content gives equal bytes.
    """
    return cast(
        IO[bytes],
        gzip.GzipFile(filename="", mode="wb", fileobj=file, mtime=0),
    )


class AtomicFile:
    """A binary file, of any `tf.io.gfile` scheme, that gets its name at the end.

    What is written goes to a temporary file beside `path`. A name that ends in
    `.gz` is compressed. As a context manager it gets its name when the block
    ends, or is dropped if the block raises.

    A header that counts what follows it is known last. Most file systems can
    not go back to it: there the bytes are copied behind the right header by
    `commit`, which takes their room twice for that moment.
    """

    def __init__(
        self,
        path: StrPath,
        *,
        header_size: int = 0,
    ):
        """Opens the temporary file; raises tf.errors.OpError if it cannot.

        Args:
            path: The name it will have; an older file is replaced.
            header_size: Bytes of the header that `commit` puts first.
        """
        self._path = as_path(path)
        self._compress = self._path.endswith(".gz")
        # Two files of one name may be written at a time; the later one stays.
        suffix = f"tmp-{os.getpid()}-{next(_NUMBERS)}"
        self._temporary = f"{self._path}.{suffix}"
        self._body = ""
        self.closed = False
        if header_size and ("://" in self._path or self._compress):
            self._body = f"{self._path}.body.{suffix}"
        self._header_size = header_size
        if self._body:
            self._file = self._out = _opened(self._body)
        else:
            self._begin()
            self._out.write(bytes(header_size))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, *exception: object) -> None:
        if kind is None:
            self.commit()
        else:
            self.discard()

    def write(self, data: bytes) -> None:
        """Appends `data`."""
        self._out.write(data)

    def commit(self, header: bytes = b"") -> None:
        """Gives the file its name; on an error nothing of it is left.

        Args:
            header: The first `header_size` bytes.
        """
        assert len(header) == self._header_size
        try:
            self._close()
            if self._body:
                self._put_together(header)
            elif header:
                with open(self._temporary, "r+b") as file:
                    file.write(header)
            tf.io.gfile.rename(self._temporary, self._path, overwrite=True)
        except BaseException:
            self.discard()
            raise
        self.closed = True

    def discard(self) -> None:
        """Drops what was written; `path` stays as it was."""
        self.closed = True
        # Left open, a compressed stream would write its end when collected.
        with contextlib.suppress(OSError, tf.errors.OpError):
            self._close()
        for path in (self._temporary, self._body):
            if path and tf.io.gfile.exists(path):
                tf.io.gfile.remove(path)

    def _close(self) -> None:
        try:
            if self._out is not self._file:
                self._out.close()
        finally:
            self._file.close()

    def _begin(self) -> None:
        self._file = self._out = _opened(self._temporary)
        if self._compress:
            self._out = gzip_writer(self._file)

    def _put_together(self, header: bytes) -> None:
        self._begin()
        self._out.write(header)
        with tf.io.gfile.GFile(self._body, "rb") as body:
            while data := body.read(_COPY_BYTES):
                self._out.write(data)
        self._close()
        tf.io.gfile.remove(self._body)


def remove_unfinished(path: str) -> None:
    """Removes what an `AtomicFile` of this process has left of a local path.

    Where Ctrl-C comes behind its making, but before its block has begun, nobody
    drops it.
    """
    begun = re.compile(rf"\.(body\.)?tmp-{os.getpid()}-\d+")
    folder, name = os.path.split(path)
    for other in os.listdir(folder or "."):
        if other.startswith(name) and begun.fullmatch(other[len(name) :]):
            os.remove(os.path.join(folder, other))


def _opened(path: str) -> tf.io.gfile.GFile:
    file = tf.io.gfile.GFile(path, "wb")
    file.write(b"")  # GFile opens on the first write
    return file


@contextlib.contextmanager
def errors_name(path: str) -> Iterator[None]:
    """Makes errors of an open file name it."""
    try:
        yield
    except OSError as error:
        if error.filename is not None:
            raise
        raise OSError(error.errno, error.strerror, path) from None


def sync(path: str) -> None:
    """Brings the bytes of a file, or the names in a folder, to the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        with errors_name(path):
            os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_synced(path: str, data: bytes, partial: str) -> None:
    """Writes a file, called `partial` until it is on the disk.

    The names of the files beside it are brought there before its own, so that
    who sees it sees them.
    """
    folder = os.path.dirname(path)
    with errors_name(partial), open(partial, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    sync(folder)
    os.rename(partial, path)
    sync(folder)


def make_synced_folders(path: str) -> None:
    """Makes a folder and those above it, and brings their names to the disk."""
    if os.path.isdir(path):
        return
    above = os.path.dirname(path)
    make_synced_folders(above)
    with contextlib.suppress(FileExistsError):
        os.mkdir(path)
    sync(above)


def exchange(one: str, other: str) -> bool:
    """Exchanges two names in one step; False: the system does not do that."""
    renameat2 = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
    if renameat2 is None:
        return False
    failed = renameat2(
        _AT_FDCWD,
        os.fsencode(one),
        _AT_FDCWD,
        os.fsencode(other),
        _RENAME_EXCHANGE,
    )
    if failed:
        code = ctypes.get_errno()
        if code in _NO_EXCHANGE:
            return False
        raise OSError(code, os.strerror(code), one, None, other)
    return True
