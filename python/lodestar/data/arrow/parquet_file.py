"""Opens Parquet files and reads their footers."""

import os
from collections.abc import Mapping
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import tensorflow as tf

from lodestar._errors import DataError, describe_error
from lodestar._input_bytes import ChangedFileError
from lodestar._input_paths import as_input
from lodestar.data.arrow.file_source import FileSource
from lodestar.schema import Column

SUFFIX = ".parquet"


class ParquetFile(FileSource):
    """A Parquet file."""

    def __init__(self, path: str):
        """Reads the footer; raises DataError if it is damaged."""
        super().__init__(path)
        try:
            with open_parquet(path) as file:
                self.footer = file.metadata
                self.row_groups = tuple(
                    self.footer.row_group(i).num_rows
                    for i in range(self.footer.num_row_groups)
                )
                self.schema = file.schema_arrow
                _ = self.schema.names  # pyarrow decodes names lazily
        except tf.errors.OpError:
            raise
        except Exception as error:
            # pyarrow's decoders raise many types, including OverflowError.
            raise DataError(
                f"{path}: not a whole Parquet file: {one_line(error)}"
            ) from error
        rows = self.footer.num_rows
        if min(self.row_groups, default=0) < 0 or self.num_rows != rows:
            raise DataError(
                f"{path}: the footer counts {rows} rows, its row groups "
                f"{list(self.row_groups)}"
            )

    def where(self, group: int, row: int) -> str:
        """See RowSource."""
        return f"{super().where(group, row)} (row group {group}, its row {row})"

    def _read(
        self, group: int, columns: Mapping[str, Column]
    ) -> tuple[Any, dict[int, str]]:
        table = self._row_group(group, list(columns))
        rows = self.row_groups[group]
        for name, column in zip(table.schema.names, table.columns):
            if len(column) != rows:
                raise DataError(
                    f"{self.path}: row group {group}: column {name!r}: found "
                    f"{len(column)} rows, expected {rows} as in the footer"
                )
        return table, {}

    def _row_group(self, group: int, names: list[str]) -> Any:
        """Raises ChangedFileError if the file has changed."""
        try:
            with open_parquet(self.path, self.footer) as parquet:
                # Row groups are already read in parallel.
                table = parquet.read_row_group(group, names, use_threads=False)
            self._check_unchanged()
            return table
        except ChangedFileError:
            raise
        except (Exception, MemoryError) as error:
            self._check_unchanged()
            # pyarrow's decoders raise many types, including OverflowError.
            raise DataError(
                f"{self.path}: row group {group}: "
                f"{self._broken_column(group, names)}cannot be read: "
                f"{one_line(error)}"
            ) from error

    def _broken_column(self, group: int, names: list[str]) -> str:
        for name in names:
            try:
                with open_parquet(self.path, self.footer) as parquet:
                    parquet.read_row_group(group, [name], use_threads=False)
            except (Exception, MemoryError):
                return f"column {name!r}: "
        return ""


class _GFileReader(tf.io.gfile.GFile):
    """Adapts a GFile to the file interface that pyarrow expects."""

    closed = False

    def __init__(self, path: str):
        super().__init__(path, "rb")
        self._end = self.size()

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> None:
        if whence == os.SEEK_SET:
            # Some file systems refuse to seek beyond the end.
            offset = min(offset, self._end)
        super().seek(offset, whence)


def open_parquet(path: str, footer: Any = None) -> Any:
    """Opens a `pyarrow.parquet.ParquetFile` that checks page CRCs.

    pyarrow reads local files itself, and others through `tf.io.gfile`.
    """
    return pq.ParquetFile(
        open_random_access(path),
        metadata=footer,
        page_checksum_verification=True,
    )


def open_random_access(path: str) -> Any:
    """Opens a file on any file system as a `pyarrow.NativeFile`."""
    local = as_input(path).removeprefix("file://")
    if "://" in local:
        return pa.PythonFile(_GFileReader(path), mode="r")
    return pa.OSFile(local)


def one_line(error: BaseException) -> str:
    """Returns the message of a pyarrow error as one nonempty line."""
    return describe_error(error).rstrip(".")
