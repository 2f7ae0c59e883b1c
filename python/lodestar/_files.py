"""Files and folders that appear atomically.

`AtomicFile` writes to any `tf.io.gfile` file system, many of which lack fsync.
`write_synced` writes to local and mounted file systems and survives a crash.
"""

import contextlib
import ctypes
import errno
import fcntl
import gzip
import itertools
import os
import re
import shutil
import socket
import zlib
from collections.abc import Iterator, Sequence
from typing import IO, Self, cast

import tensorflow as tf

from lodestar._errors import DataError
from lodestar._typing import StrPath

_COPY_BYTES = 4 << 20
_NUMBERS = itertools.count()
# Locks of other hosts may not be visible, so names contain the host.
_HOST = f"{zlib.crc32(socket.gethostname().encode()):08x}"
# Further concurrent writers of one path use unique names.
_MAX_WRITERS = 64
_AT_FDCWD, _RENAME_EXCHANGE = -100, 2
# Errors of kernels, file systems and sandboxes that cannot exchange names.
_NO_EXCHANGE = {errno.ENOSYS, errno.EINVAL, errno.EOPNOTSUPP, errno.EPERM}


def as_path(path: str | bytes | os.PathLike[str]) -> str:
    """Returns the path as a string; DataError unless it is UTF-8 without a NUL."""
    text = os.fsdecode(path)
    if not text:
        raise DataError("a path must not be empty")
    try:
        text.encode()
    except UnicodeEncodeError:
        # Surrogates stand for bytes that are not UTF-8.
        shown = re.sub(
            "[\udc80-\udcff]", lambda m: f"\\x{ord(m[0]) - 0xDC00:02x}", text
        )
        shown = shown.encode(errors="backslashreplace").decode()
        raise DataError(
            f"{shown}: a path must be UTF-8; rename the file or folder"
        ) from None
    if "\0" in text:
        shown = text.replace("\0", r"\0")
        raise DataError(f"{shown}: a path cannot hold a NUL")
    return text


def list_folder(path: str) -> list[str]:
    """Returns the sorted names in a folder of any file system."""
    try:
        return sorted(tf.io.gfile.listdir(path))
    except UnicodeDecodeError as error:
        raise DataError(
            f"{path}: holds {error.object!r}, whose name is not UTF-8; rename it"
        ) from None


def gzip_writer(file: IO[bytes]) -> IO[bytes]:
    """Returns a file that compresses to `file` and must be closed before it.

    It has no time stamp, so equal content gives equal bytes.
    """
    return cast(
        IO[bytes],
        gzip.GzipFile(filename="", mode="wb", fileobj=file, mtime=0),
    )


class Temporary:
    """A temporary file or folder next to a path, owned by one writer.

    The writer locks it, and the system unlocks it when the process dies. The
    next writer of the path then reuses it, so nothing is left behind. On file
    systems without locks, such as remote ones of `tf.io.gfile`, its name is
    unique, and a killed process leaves it behind.
    """

    def __init__(self, path: str, *, is_folder: bool = False):
        """Chooses a name, and creates the folder if it is one.

        Raises:
            tf.errors.OpError: The folder cannot be created.
        """
        self.path = ""
        self._is_folder = is_folder
        self._descriptor: int | None = None
        _unfinished[self] = path
        try:
            self._choose(path)
        except BaseException:
            self.remove()
            raise

    def _choose(self, path: str) -> None:
        """Sets the path, and creates and locks it."""
        scheme = "file://" if path.startswith("file://") else ""
        local = path.removeprefix(scheme)
        if "://" not in local:
            names = _numbered(local)
            for number, name in enumerate(names):
                try:
                    self._descriptor = _lock(name, self._is_folder)
                except (BlockingIOError, PermissionError):
                    continue  # in use by another writer
                except OSError:
                    break
                self.path = scheme + name
                _remove_dead(names[number + 1 :], self._is_folder)
                break
        if not self.path:
            self.path = f"{path}.tmp-{_HOST}-{os.getpid()}-{next(_NUMBERS)}"
            if self._is_folder:
                tf.io.gfile.makedirs(self.path)

    def release(self) -> None:
        """Unlocks it, once it has its final name."""
        _unfinished.pop(self, None)
        if self._descriptor is not None:
            descriptor, self._descriptor = self._descriptor, None
            os.close(descriptor)

    def remove(self) -> None:
        """Removes it, if it exists, and unlocks it."""
        try:
            if not tf.io.gfile.exists(self.path):
                return
            if self._is_folder:
                tf.io.gfile.rmtree(self.path)
            else:
                tf.io.gfile.remove(self.path)
        finally:
            self.release()


# The temporaries of this process, and their paths.
_unfinished: dict[Temporary, str] = {}


def remove_unfinished(path: str) -> None:
    """Removes temporary files of this process, or of a dead one, for a path.

    Only this removes them if Ctrl-C comes before the `with` block of an `AtomicFile`
    begins.
    """
    paths = (path, _body_of(path))
    for temporary, of in list(_unfinished.items()):
        if of in paths:
            temporary.remove()
    for of in paths:
        # The file may exist without an entry in `_unfinished`.
        _remove_dead(_numbered(of.removeprefix("file://")), is_folder=False)


def _numbered(path: str) -> list[str]:
    """Returns the names of temporaries, which need no listing of the folder."""
    return [f"{path}.tmp-{_HOST}-{i}" for i in range(_MAX_WRITERS)]


def _lock(name: str, is_folder: bool) -> int:
    """Creates and locks an empty file or folder; returns its descriptor."""
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW
    if is_folder:
        flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW
    while True:
        if is_folder:
            os.makedirs(name, exist_ok=True)
        try:
            descriptor = os.open(name, flags, 0o666)
        except FileNotFoundError:
            if is_folder:
                continue  # a writer has just removed it
            raise
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # Its writer may have renamed or removed it before unlocking it.
            if os.path.samestat(os.fstat(descriptor), os.lstat(name)):
                _empty(descriptor, name, is_folder)
                return descriptor
        except FileNotFoundError:
            pass
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)


def _empty(descriptor: int, name: str, is_folder: bool) -> None:
    if not is_folder:
        os.ftruncate(descriptor, 0)
        return
    for entry in os.scandir(name):
        if entry.is_dir(follow_symlinks=False):
            shutil.rmtree(entry.path)
        else:
            os.remove(entry.path)


def _remove_dead(names: Sequence[str], is_folder: bool) -> None:
    """Removes the first existing temporaries that no writer owns."""
    for name in itertools.takewhile(os.path.lexists, names):
        with contextlib.suppress(OSError):
            descriptor = _lock(name, is_folder)
            try:
                if is_folder:
                    os.rmdir(name)
                else:
                    os.remove(name)
            finally:
                os.close(descriptor)


def _body_of(path: str) -> str:
    return f"{path}.body"


class AtomicFile:
    """A binary file, on any `tf.io.gfile` file system, that gets its name at the end.

    Writes to a temporary file next to `path`, compressed if the name ends in `.gz`. As
    a context manager, it gets its name when the block ends, or is deleted if the block
    raises.

    A header that counts the content is only known at the end. Most file systems cannot
    seek back to it, so `commit` copies the content behind the header, which temporarily
    doubles the disk usage.
    """

    def __init__(self, path: StrPath, *, header_size: int = 0):
        """Opens the temporary file; raises tf.errors.OpError if it cannot.

        Args:
            path: The final name; an older file is replaced.
            header_size: Size in bytes of the header that `commit` writes first.
        """
        self._path = as_path(path)
        self._compress = self._path.endswith(".gz")
        # If two files of one name are written, the later one remains.
        self._temporary = Temporary(self._path)
        self._body: Temporary | None = None
        self._header_size = header_size
        self.closed = False
        try:
            if header_size and ("://" in self._path or self._compress):
                self._body = Temporary(_body_of(self._path))
                self._file = self._out = _opened(self._body.path)
            else:
                self._begin()
                self._out.write(bytes(header_size))
        except BaseException:
            self._remove()
            raise

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
        """Gives the file its name; after an error nothing is left of it.

        Args:
            header: The first `header_size` bytes.
        """
        assert len(header) == self._header_size
        try:
            self._close()
            if self._body is not None:
                self._put_together(self._body, header)
            elif header:
                with open(self._temporary.path, "r+b") as file:
                    file.write(header)
            tf.io.gfile.rename(self._temporary.path, self._path, overwrite=True)
        except BaseException:
            self.discard()
            raise
        self._temporary.release()
        self.closed = True

    def discard(self) -> None:
        """Deletes the written data; `path` is unchanged."""
        self.closed = True
        # If left open, a compressed stream writes its end when it is collected.
        with contextlib.suppress(OSError, tf.errors.OpError):
            self._close()
        self._remove()

    def _remove(self) -> None:
        self._temporary.remove()
        if self._body is not None:
            self._body.remove()

    def _close(self) -> None:
        try:
            if self._out is not self._file:
                self._out.close()
        finally:
            self._file.close()

    def _begin(self) -> None:
        self._file = self._out = _opened(self._temporary.path)
        if self._compress:
            self._out = gzip_writer(self._file)

    def _put_together(self, body: Temporary, header: bytes) -> None:
        self._begin()
        self._out.write(header)
        with tf.io.gfile.GFile(body.path, "rb") as file:
            while data := file.read(_COPY_BYTES):
                self._out.write(data)
        self._close()
        body.remove()


def _opened(path: str) -> tf.io.gfile.GFile:
    file = tf.io.gfile.GFile(path, "wb")
    file.write(b"")  # GFile opens on the first write
    return file


@contextlib.contextmanager
def errors_name(path: str) -> Iterator[None]:
    """Adds the path to errors of an open file."""
    try:
        yield
    except OSError as error:
        if error.filename is not None:
            raise
        raise OSError(error.errno, error.strerror, path) from None


def sync(path: str) -> None:
    """Flushes the content of a file, or the names in a folder, to disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        with errors_name(path):
            os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_synced(path: str, data: bytes, partial: str) -> None:
    """Writes a file, named `partial` until it is on disk.

    Names of other files in the folder are flushed before its own, so that a reader who
    sees this file also sees them.
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
    """Creates a folder and its parents, and flushes their names to disk."""
    if os.path.isdir(path):
        return
    above = os.path.dirname(path)
    make_synced_folders(above)
    with contextlib.suppress(FileExistsError):
        os.mkdir(path)
    sync(above)


def exchange(one: str, other: str) -> bool:
    """Exchanges two names atomically; returns False if the system cannot."""
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
