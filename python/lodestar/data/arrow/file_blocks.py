"""Blocks of the bytes of a file."""

import threading
from typing import Any

import numpy as np
import tensorflow as tf

from lodestar._errors import DataError, reading
from lodestar._input_bytes import check_unchanged, open_input
from lodestar._input_paths import as_input

_MAX_AHEAD = 8


class FileBlocks:
    """Reads blocks of a file, decompressed."""

    def __init__(self, path: str, offsets: np.ndarray, opened: Any):
        """Reads the blocks between `offsets`.

        `opened` is the result of `tf.io.gfile.stat` when the file was opened.
        """
        self._path = path
        self._offsets = offsets
        self._opened = opened
        self._is_packed = path.endswith(".gz")
        self._lock = threading.Lock()
        self._file: Any = None
        self._next = 0
        # Blocks of a compressed file that were skipped while seeking forward.
        self._passed: dict[int, bytes] = {}

    def read(self, number: int) -> bytes:
        """Returns a block; raises DataError if the file is damaged or has changed."""
        begin, end = self._offsets[number : number + 2].tolist()
        with reading(self._path):
            if not self._is_packed:
                check_unchanged(self._path, self._opened)
                with tf.io.gfile.GFile(as_input(self._path), "rb") as file:
                    file.seek(begin)
                    data: bytes = file.read(end - begin)
                check_unchanged(self._path, self._opened)
            else:
                with self._lock:
                    data = self._unpacked(number)
        if len(data) != end - begin:
            check_unchanged(self._path, self._opened)
            raise DataError(
                f"{self._path}: found {begin + len(data)} bytes, expected {end}"
            )
        return data

    def first_line(self, number: int) -> int:
        """Returns the number of a block's first line, from 1."""
        return 1 + sum(_num_lines(self.read(i)) for i in range(number))

    def _unpacked(self, number: int) -> bytes:
        if number in self._passed:
            return self._passed.pop(number)
        if self._file is None or number < self._next:
            if self._file is not None:
                self._file.close()
            check_unchanged(self._path, self._opened)
            self._file = open_input(self._path)
            self._file.read(self._offsets[0])
            self._next = 0
        data = b""
        while self._next <= number:
            begin, end = self._offsets[self._next : self._next + 2].tolist()
            data = self._file.read(end - begin)
            if self._next < number:
                self._passed[self._next] = data
                while len(self._passed) > _MAX_AHEAD:
                    del self._passed[min(self._passed)]
            self._next += 1
        return data


def _num_lines(data: bytes) -> int:
    """Returns the number of line ends: LF, CR LF or CR."""
    return data.count(b"\n") + data.count(b"\r") - data.count(b"\r\n")
