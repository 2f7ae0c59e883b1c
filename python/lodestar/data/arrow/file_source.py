"""Files as row sources, and those that are read in blocks of bytes."""

import threading
from typing import Any

import numpy as np
import tensorflow as tf

from lodestar._errors import DataError, reading
from lodestar._input_bytes import check_unchanged, open_input
from lodestar._input_paths import as_input
from lodestar._library import gen_ops
from lodestar.data.arrow.row_source import RowSource, partitions_of

_MAX_AHEAD = 8


class FileSource(RowSource):
    """A file, which must not change while it is read."""

    def __init__(self, path: str):
        """Notes the state of the file."""
        self.path = path
        with reading(path):
            self._opened = tf.io.gfile.stat(as_input(path))
        self.num_bytes = self._opened.length
        self.partitions = partitions_of(path)

    def _check_unchanged(self) -> None:
        check_unchanged(self.path, self._opened)


class BlockSource(FileSource):
    """A file in blocks of whole records, the row groups.

    An initial scan, without parsing, finds the blocks and sets `row_groups` and
    `_offsets`, the ends of the blocks when decompressed, from 0. So blocks can be
    read in any order.
    """

    _offsets: np.ndarray
    # Number of bytes to parse at a time.
    _block_bytes = 4 << 20

    def __init__(self, path: str):
        """See FileSource."""
        super().__init__(path)
        self._lock = threading.Lock()
        self._file: Any = None
        self._next = 0
        # Blocks of a compressed file that were skipped while seeking forward.
        self._passed: dict[int, bytes] = {}

    def _block(self, group: int) -> bytes:
        """Returns a block; raises DataError if the file is damaged or has changed."""
        begin, end = self._offsets[group : group + 2].tolist()
        with reading(self.path):
            if not self.path.endswith(".gz"):
                self._check_unchanged()
                with tf.io.gfile.GFile(as_input(self.path), "rb") as file:
                    file.seek(begin)
                    data: bytes = file.read(end - begin)
                self._check_unchanged()
            else:
                with self._lock:
                    data = self._unpacked(group)
        if len(data) != end - begin:
            self._check_unchanged()
            raise DataError(
                f"{self.path}: found {begin + len(data)} bytes, expected {end}"
            )
        return data

    def _unpacked(self, group: int) -> bytes:
        if group in self._passed:
            return self._passed.pop(group)
        if self._file is None or group < self._next:
            if self._file is not None:
                self._file.close()
            self._check_unchanged()
            self._file = open_input(self.path)
            self._file.read(self._offsets[0])
            self._next = 0
        data = b""
        while self._next <= group:
            begin, end = self._offsets[self._next : self._next + 2].tolist()
            data = self._file.read(end - begin)
            if self._next < group:
                self._passed[self._next] = data
                while len(self._passed) > _MAX_AHEAD:
                    del self._passed[min(self._passed)]
            self._next += 1
        return data


class LineSource(BlockSource):
    """A file of lines.

    Attributes:
        ends_with_newline: Whether the last line does.
    """

    def __init__(
        self,
        path: str,
        least_bytes: int = 0,
        delimiter: str = ",",
        quote: str = "",
        skip_lines: int = 0,
        num_fields: int = 0,
    ):
        """Finds the blocks, of at least so many bytes.

        Raises DataError if quotes are wrong or unclear.
        """
        super().__init__(path)
        with reading(path):
            index = gen_ops.lodestar_index_text(
                filename=path,
                block_bytes=max(self._block_bytes, least_bytes),
                delimiter=delimiter,
                quote=quote,
                skip_lines=skip_lines,
                num_fields=num_fields,
            )
        self._offsets = index.offsets.numpy()
        self.row_groups = tuple(index.records.numpy().tolist())
        self.ends_with_newline = bool(index.ends_with_newline)
        self._skip_lines = skip_lines
        self._lines: tuple[int, list[int]] = (-1, [])

    def where(self, group: int, row: int) -> str:
        """See RowSource."""
        lines = self._lines  # another thread may replace it
        if lines[0] != group:
            self._lines = lines = (group, self._record_lines(group))
        return f"line {lines[1][row]}"

    def _first_line(self, group: int) -> int:
        """Returns the number of a block's first line, from 1."""
        before = sum(_num_lines(self._block(i)) for i in range(group))
        return 1 + self._skip_lines + before

    def _record_lines(self, group: int) -> list[int]:
        """Returns the line number of each row of a block."""
        raise NotImplementedError


def _num_lines(data: bytes) -> int:
    """Returns the number of line ends: LF, CR LF or CR."""
    return data.count(b"\n") + data.count(b"\r") - data.count(b"\r\n")
