"""ParquetWriter: writes examples to Parquet files that HugeCTR reads."""

import os
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import tensorflow as tf

from lodestar._checks import check_count
from lodestar._errors import DataError
from lodestar._files import as_path, list_folder
from lodestar._typing import StrPath
from lodestar.data.arrow.parquet_file import SUFFIX
from lodestar.data.sample_columns import ColumnValues, concat, cut
from lodestar.data.sample_writer import SampleWriter, as_int64
from lodestar.hugectr.parquet_metadata import (
    merged,
    metadata_of,
    write_metadata,
)
from lodestar.schema import Column, SchemaLike, as_schema


class ParquetWriter(SampleWriter):
    """Writes a Parquet file and updates `_metadata.json`; a context manager.

    Columns are in schema order. Labels are float32. Dense columns are float32, or
    int64 if declared uint64, and lists if they have several values. One-hot columns
    are int64, and sparse columns lists of int64 or float32. uint64 ids keep their
    bits. Pages have a CRC, which `open_dataset` checks.

    `close` adds the file to the `_metadata.json` of its directory, which lists
    labels, dense floats and ids. HugeCTR does not support the other columns (dense
    integers, -1 dims, sparse floats), so they are not listed. Writers that share a
    directory must not be closed concurrently.

    >>> spec = Schema([Column.label("click"), Column.sparse("C1")])
    >>> with ParquetWriter("day1/0.parquet", spec) as writer:
    ...     writer.write({"click": 1, "C1": [7, 8]})
    """

    def __init__(
        self,
        path: StrPath,
        schema: SchemaLike,
        *,
        row_group_size: int = 65536,
        compression: str = "snappy",
    ):
        """Opens the temporary file.

        Args:
            path: A path that ends in `.parquet`, or a directory, which is created if
                necessary, for the first unused of `part-00000.parquet`, ...
            schema: A `Schema`, a list of `Column`s or the path of a schema file.
            row_group_size: Number of rows per row group, which are held in memory.
            compression: `"none"`, `"snappy"`, `"zstd"` or another codec of pyarrow.

        Raises:
            ValueError: An existing `_metadata.json` describes other columns, or an
                option is invalid.
            tf.errors.OpError: The file cannot be opened.
        """
        check_count("row_group_size", row_group_size, 1)
        _check_compression(compression)
        path = as_path(path)
        if not path.endswith(SUFFIX):
            tf.io.gfile.makedirs(path)
            path = _first_free(path)
        self._metadata = metadata_of(path, as_schema(schema))
        merged(self._metadata, path, 0)
        self._compression = compression
        self._row_group_size = self._block_rows = row_group_size
        self._held: list[dict[int, ColumnValues]] = []
        self._held_rows = 0
        self._parquet: Any = None
        super().__init__(path, schema)
        self._schema = pa.schema([_field(slot) for slot in self._spec])

    def close(self) -> None:
        """Publishes the file and adds it to `_metadata.json`.

        Further calls have no effect.

        Raises:
            ValueError: No row was written, or `_metadata.json` now describes other
                columns. The file is discarded.
        """
        if self._file.closed:
            return
        try:
            merged(self._metadata, self._path, 0)
        except BaseException:
            self.discard()
            raise
        super().close()
        write_metadata(merged(self._metadata, self._path, self._num_samples))

    def discard(self) -> None:
        """Discards the written rows; `path` is unchanged."""
        self._held = []
        super().discard()

    def _check_column(self, slot: Column, column: ColumnValues) -> ColumnValues:
        if slot.kind == "label" or slot.dtype == "float":
            return self._narrow(slot, column)
        return column._replace(values=as_int64(column.values))

    def _put(self, columns: list[ColumnValues], begin: int, end: int) -> None:
        while begin < end:
            until = min(end, begin + self._row_group_size - self._held_rows)
            part = cut(dict(enumerate(columns)), begin, until)
            self._held.append(
                # Copy, because the caller may reuse the memory.
                {
                    i: ColumnValues(c.values.copy(), c.splits)
                    for i, c in part.items()
                }
            )
            self._held_rows += until - begin
            begin = until
            if self._held_rows == self._row_group_size:
                self._write_row_group()

    def _finish(self) -> bytes:
        if self._held_rows:
            self._write_row_group()
        self._parquet.close()
        return b""

    def _write_row_group(self) -> None:
        if self._parquet is None:
            self._parquet = pq.ParquetWriter(
                pa.PythonFile(_Sink(self._file), mode="w"),
                self._schema,
                compression=self._compression,
                write_page_checksum=True,
            )
        held = concat(self._held)
        arrays = [
            _array(field, slot, column)
            for field, slot, column in zip(
                self._schema, self._spec, held.values()
            )
        ]
        self._held, self._held_rows = [], 0
        table = pa.Table.from_arrays(arrays, schema=self._schema)
        self._parquet.write_table(table, row_group_size=table.num_rows)


def _check_compression(name: str) -> None:
    if name == "none":
        return
    try:
        pa.Codec(name)
        # Parquet supports only some of pyarrow's codecs.
        pq.ParquetWriter(
            pa.BufferOutputStream(), pa.schema([]), compression=name
        ).close()
    except (TypeError, ValueError, pa.ArrowException) as error:
        raise ValueError(
            f"`compression`={name!r} is not supported by pyarrow: {error}"
        ) from error


class _Sink:
    """Adapts an AtomicFile to the file interface that pyarrow expects."""

    closed = False

    def __init__(self, file: Any):
        self._file = file
        self._size = 0

    def write(self, data: bytes) -> int:
        # pyarrow still writes the footer of a discarded file.
        if not self._file.closed:
            self._file.write(bytes(data))
        self._size += len(data)
        return len(data)

    def tell(self) -> int:
        return self._size

    def flush(self) -> None:
        pass

    def close(self) -> None:
        pass


def _first_free(directory: str) -> str:
    """Returns the first name that no finished or unfinished file uses."""
    taken = [name.partition(SUFFIX)[0] for name in list_folder(directory)]
    number = 0
    while (stem := f"part-{number:05d}") in taken:
        number += 1
    return os.path.join(directory, stem + SUFFIX)


def _field(slot: Column) -> Any:
    is_float = slot.dtype == "float" or slot.kind == "label"
    element = pa.float32() if is_float else pa.int64()
    if slot.num_values == 1:
        return pa.field(slot.name, element, nullable=False)
    inner = pa.field("element", element, nullable=False)
    size = -1 if slot.num_values is None else slot.num_values
    return pa.field(slot.name, pa.list_(inner, size), nullable=False)


def _array(field: Any, slot: Column, column: ColumnValues) -> Any:
    if slot.num_values == 1:
        return pa.array(column.values, field.type)
    values = pa.array(column.values, field.type.value_type)
    if slot.num_values is not None:
        return pa.FixedSizeListArray.from_arrays(values, type=field.type)
    if len(column.values) > np.iinfo(np.int32).max:
        raise DataError(
            f"slot {slot.name!r}: {len(column.values)} values in a row group are "
            "too many for a list column. Use a smaller `row_group_size`."
        )
    offsets = pa.array(column.splits.astype(np.int32), pa.int32())
    return pa.ListArray.from_arrays(offsets, values, type=field.type)
