"""AtomicFile: a file that appears whole or not at all."""

from __future__ import annotations

import contextlib
import itertools
import os
from typing import Self

import tensorflow as tf

from lodestar.data import gzip_files
from lodestar.data.paths import as_path

_COPY_BYTES = 4 << 20
_NUMBERS = itertools.count()


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
        path: str | os.PathLike,
        *,
        header_size: int = 0,
        compress: bool = True,
    ):
        """Opens the temporary file; raises tf.errors.OpError if it cannot.

        Args:
            path: The name it will have; an older file is replaced.
            header_size: Bytes of the header that `commit` puts first.
            compress: False if `.gz` does not mean compressed.
        """
        self._path = as_path(path)
        self._compress = compress and self._path.endswith(".gz")
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

    def __exit__(self, exc_type, exc_value, traceback) -> None:
        if exc_type is None:
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
            self._out = gzip_files.writer(self._file)

    def _put_together(self, header: bytes) -> None:
        self._begin()
        self._out.write(header)
        with tf.io.gfile.GFile(self._body, "rb") as body:
            while data := body.read(_COPY_BYTES):
                self._out.write(data)
        self._close()
        tf.io.gfile.remove(self._body)


def _opened(path: str) -> tf.io.gfile.GFile:
    file = tf.io.gfile.GFile(path, "wb")
    file.write(b"")  # GFile opens on the first write
    return file
