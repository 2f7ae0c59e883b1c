"""Arrow IPC files (Feather 2) and streams as row sources."""

import threading
from collections.abc import Callable, Mapping
from typing import Any

import pyarrow as pa

from lodestar._errors import DataError, describe_error
from lodestar.data.arrow.file_source import FileSource
from lodestar.data.arrow.parquet_file import open_random_access
from lodestar.data.arrow.table_source import TableSource
from lodestar.schema import Column

MAGIC = b"ARROW1"
STREAM = b"\xff\xff\xff\xff"


class IpcSource(FileSource):
    """An Arrow IPC file, whose record batches are the row groups, or a stream.

    A stream, such as the `.arrow` files of Hugging Face datasets, has no footer,
    so its table is loaded. The file is not memory-mapped, because truncating a
    mapped file would crash the process.
    """

    def __init__(self, path: str):
        """Opens a file; raises DataError if it is truncated or not an IPC file."""
        super().__init__(path)
        self._part: Callable[[int], Any]
        try:
            file = open_random_access(path)
            is_file = file.read(len(MAGIC)) == MAGIC
            file.seek(0)
            if is_file:
                self._open_batches(file)
            else:
                table = TableSource(path, pa.ipc.open_stream(file).read_all())
                self.schema = table.schema
                self.row_groups = table.row_groups
                self._part = table.part
            _ = self.types  # pyarrow decodes names lazily
        except (pa.ArrowException, OSError, ValueError) as error:
            raise DataError(
                f"{path}: not a whole Arrow IPC file: {describe_error(error)}"
            ) from error

    def _open_batches(self, file: Any) -> None:
        reader = pa.ipc.open_file(file)
        self.schema = reader.schema
        # The reader shares one file position.
        lock = threading.Lock()

        def part(group: int) -> Any:
            with lock:
                batch = reader.get_batch(group)
            return pa.Table.from_batches([batch])

        self._part = part
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
        self._check_unchanged()
        try:
            part = self._part(group)
            part.validate(full=True)
        except (pa.ArrowException, OSError) as error:
            first = sum(self.row_groups[:group])
            last = first + self.row_groups[group] - 1
            raise DataError(
                f"{self.path}: rows {first} to {last}: cannot be read: "
                f"{describe_error(error)}"
            ) from error
        return part, {}
