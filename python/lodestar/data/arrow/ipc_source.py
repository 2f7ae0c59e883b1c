"""Arrow IPC files (Feather 2) and streams as row sources."""

import threading
from collections.abc import Mapping
from typing import Any

import pyarrow as pa
import tensorflow as tf

from lodestar._errors import DataError, describe_error
from lodestar._input_bytes import check_unchanged
from lodestar.data.arrow.parquet_file import open_random_access
from lodestar.data.arrow.row_source import RowSource, partitions_of
from lodestar.data.arrow.table_source import TableSource
from lodestar.data.schema import Column

MAGIC = b"ARROW1"
STREAM = b"\xff\xff\xff\xff"


def open_ipc(path: str) -> RowSource:
    """Opens an Arrow IPC file or stream.

    A stream, such as the `.arrow` files of Hugging Face datasets, has no footer,
    so its table is loaded. The file is not memory-mapped, because truncating a
    mapped file would crash the process.

    Raises:
        DataError: The file is truncated or not an IPC file.
        tf.errors.OpError: The file cannot be read.
    """
    opened = tf.io.gfile.stat(path)
    file = open_random_access(path)
    try:
        is_file = file.read(len(MAGIC)) == MAGIC
        file.seek(0)
        source: RowSource
        if is_file:
            source = _IpcFile(path, file, opened)
        else:
            table = pa.ipc.open_stream(file).read_all()
            source = _IpcStream(path, table, opened)
        _ = source.types  # pyarrow decodes names lazily
        return source
    except (pa.ArrowException, OSError, ValueError) as error:
        raise DataError(
            f"{path}: not a whole Arrow IPC file: {describe_error(error)}"
        ) from error


class _IpcStream(TableSource):
    """An IPC stream, loaded as a table. Rows are validated when they are read."""

    def __init__(self, path: str, table: Any, opened: Any):
        super().__init__(path, table, partitions_of(path), opened.length)
        self._opened = opened

    def _read(
        self, group: int, columns: Mapping[str, Column]
    ) -> tuple[Any, dict[int, str]]:
        check_unchanged(self.path, self._opened)
        try:
            self.part(group).validate(full=True)
        except pa.ArrowException as error:
            first = sum(self.row_groups[:group])
            raise DataError(
                f"{self.path}: rows {first} to "
                f"{first + self.row_groups[group] - 1}: cannot be read: "
                f"{describe_error(error)}"
            ) from error
        return super()._read(group, columns)


class _IpcFile(RowSource):
    """An IPC file, whose record batches are the row groups."""

    def __init__(self, path: str, file: Any, opened: Any):
        self.path = path
        self.num_bytes = opened.length
        self._reader = pa.ipc.open_file(file)
        self.schema = self._reader.schema
        self.partitions = partitions_of(path)
        self._opened = opened
        # The reader shares one file position.
        self._lock = threading.Lock()
        # Reading one column is enough to count the rows of a batch.
        options = pa.ipc.IpcReadOptions(
            included_fields=[0] if self.schema.names else None
        )
        counter = pa.ipc.open_file(file, options=options)
        self.row_groups = tuple(
            counter.get_batch(i).num_rows
            for i in range(counter.num_record_batches)
        )

    def _read(
        self, group: int, columns: Mapping[str, Column]
    ) -> tuple[Any, dict[int, str]]:
        check_unchanged(self.path, self._opened)
        try:
            with self._lock:
                batch = self._reader.get_batch(group)
            batch.validate(full=True)
        except (pa.ArrowException, OSError) as error:
            raise DataError(
                f"{self.path}: record batch {group}: cannot be read: "
                f"{describe_error(error)}"
            ) from error
        return pa.Table.from_batches([batch]), {}
