r"""Reads files in Python: exact bytes, from any file system.

A file whose name ends in `.gz` is decompressed, and a file that changes while it is
read is an error. A line of text ends in `\n` or `\r\n`; any other `\r` is part of the
line. Inside CSV quotes, neither `\r` nor `\n` ends a line.

Do not use `tf.io.gfile.GFile` for text: `readline`, and so its iterator, drops every
`\r`.
"""

import gzip
import io
import zlib
from collections.abc import Callable
from typing import IO, Any

import tensorflow as tf

from lodestar._errors import DataError, describe_error, reading
from lodestar._input_paths import as_input
from lodestar._typing import StrPath

_BUFFER_BYTES = 1 << 18


def open_input(path: StrPath) -> io.BufferedReader:
    """Opens a file to read its bytes, decompressed if its name ends in `.gz`.

    Raises a FileError if the file cannot be opened. Reading raises
    `tf.errors.OpError` if the file cannot be read, a DataError that names the
    file if it is compressed and truncated or damaged, and, at its end, a
    ChangedFileError if it has changed since it was opened.
    """
    path = as_input(path)
    found: io.RawIOBase = _FileBytes(path)
    if path.endswith(".gz"):
        found = _GzipBytes(path, io.BufferedReader(found, _BUFFER_BYTES))
    return io.BufferedReader(found, _BUFFER_BYTES)


class ChangedFileError(DataError):
    """A file was written to while it was read."""


def check_unchanged(
    path: str, opened: Any, num_read: int | None = None
) -> None:
    """Raises ChangedFileError if a file has changed, by the rule of byte_stream.cc.

    `opened` is the result of `tf.io.gfile.stat` when the file was opened, and
    `num_read` the number of bytes read, if the whole file was read.
    """
    try:
        now = tf.io.gfile.stat(path)
    except tf.errors.OpError:  # A removed file can be read to its end.
        now = opened
    # Files such as those in /proc have no size.
    if opened.length == now.length == 0:
        return
    if opened.length != now.length or num_read not in (None, now.length):
        read = "" if num_read is None else f", and {num_read} bytes were read"
        raise ChangedFileError(
            f"{path}: changed while it was read: it had {opened.length} bytes "
            f"when it was opened, {now.length} bytes at the end{read}"
        )
    if opened.mtime_nsec != now.mtime_nsec:
        raise ChangedFileError(
            f"{path}: changed while it was read: it was written to, and has "
            f"{now.length} bytes as before"
        )


class _Bytes(io.RawIOBase):
    """A raw stream over `_read(size)`, which returns no bytes at the end."""

    _read: Callable[[int], bytes]

    def readable(self) -> bool:
        return True

    def readinto(self, to: Any) -> int:
        data = self._read(len(to))
        to[: len(data)] = data
        return len(data)


class _FileBytes(_Bytes):
    """The bytes of a file."""

    def __init__(self, path: str):
        self._path = path
        self._file = tf.io.gfile.GFile(path, "rb")
        with reading(path):
            self._opened = tf.io.gfile.stat(path)
        self._num_read = 0

    def _read(self, size: int) -> bytes:
        data = self._file.read(size)
        self._num_read += len(data)
        if size and not data:
            check_unchanged(self._path, self._opened, self._num_read)
        return data

    def close(self) -> None:
        if not self.closed:
            self._file.close()
        super().close()


class _GzipBytes(_Bytes):
    """The decompressed bytes of a file."""

    def __init__(self, path: str, file: IO[bytes]):
        self._path = path
        self._file = file
        self._unpacked = gzip.GzipFile(fileobj=file)

    def _read(self, size: int) -> bytes:
        try:
            # Unlike `read`, returns the data before damage, and then raises.
            return self._unpacked.read1(size)
        except (EOFError, OSError, zlib.error) as error:
            raise DataError(f"{self._path}: {describe_error(error)}") from error

    def close(self) -> None:
        if not self.closed:
            self._unpacked.close()
            self._file.close()
        super().close()
