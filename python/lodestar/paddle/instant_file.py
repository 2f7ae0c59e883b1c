"""Binary files of Paddle's FileInstantDataset (docs/internals/formats.md)."""

import struct
from collections.abc import Iterator
from typing import Any

import numpy as np

from lodestar._checks import check_count
from lodestar._errors import DataError, reading
from lodestar._files import as_path
from lodestar._input_bytes import open_input
from lodestar._typing import StrPath
from lodestar.data.sample_columns import ColumnValues
from lodestar.data.sample_writer import SampleWriter, as_int64
from lodestar.data.schema import Column, Schema, SchemaLike, as_schema
from lodestar.paddle.data_feed_desc import check_expressible

_COUNT = struct.Struct("<H")
_DIM = struct.Struct("<Q")
_MOST = 2**16 - 1
_DTYPES: dict[str, np.dtype[Any]] = {
    "uint64": np.dtype("<i8"),
    "float": np.dtype("<f4"),
}


def _spec(schema: SchemaLike) -> Schema:
    spec = as_schema(schema)
    for column in spec:
        check_expressible(column)
    return spec


def _num_dims(column: Column) -> int:
    """Returns the number of dims before the values: that of the batch, or none."""
    return int(column.used and column.kind != "sparse")


class InstantWriter(SampleWriter):
    """Context manager that writes a binary file for Paddle's FileInstantDataset.

    >>> slots = lodestar.data.Schema([
    ...     lodestar.data.Column.label("click"),
    ...     lodestar.data.Column.sparse("item")])
    >>> with InstantWriter("part-0", slots, batch_size=2) as writer:
    ...     writer.write({"click": 1, "item": [7, 8]})

    `write` and `write_batch` take samples as the writers of `open_writer` do. Paddle
    must read the file with the same `batch_size`, which the file contains, and the
    slots of `DataFeedDesc(schema)`. A sample has 1 to 65,535 values per slot,
    including the batch size: pad an empty list with a 0.

    Args:
        path: Path of the file.
        schema: The columns, in their order in a sample.
        batch_size: Samples per batch.

    Raises:
        ValueError: `batch_size` is below 1, or a DataFeedDesc cannot express a column.
    """

    def __init__(self, path: StrPath, schema: SchemaLike, batch_size: int):
        self._batch_size = check_count("batch_size", batch_size)
        super().__init__(path, _spec(schema))
        # The samples of the last batch, each cut where the batch size belongs.
        self._batch: list[list[bytes]] = []

    def _check_column(self, slot: Column, column: ColumnValues) -> ColumnValues:
        counts = np.diff(column.splits)
        most = _MOST - _num_dims(slot)
        bad = np.flatnonzero((counts < 1) | (counts > most))
        if len(bad):
            raise ValueError(
                self._where(slot, int(bad[0]))
                + f"must have 1 to {most} values, got {counts[bad[0]]}"
            )
        if slot.dtype == "uint64":
            return column._replace(values=as_int64(column.values))
        return column._replace(values=column.values.astype(np.float32))

    def _put(self, columns: list[ColumnValues], begin: int, end: int) -> None:
        for row in range(begin, end):
            pieces = [b""]
            for slot, (values, splits) in zip(self._spec, columns):
                own = values[splits[row] : splits[row + 1]]
                dims = _num_dims(slot)
                pieces[-1] += _COUNT.pack(len(own) + dims)
                if dims:
                    pieces.append(b"")
                pieces[-1] += own.astype(_DTYPES[slot.dtype]).tobytes()
            self._batch.append(pieces)
            if len(self._batch) == self._batch_size:
                self._flush()

    def _flush(self) -> None:
        size = _DIM.pack(len(self._batch))
        self._file.write(b"".join(size.join(p) for p in self._batch))
        self._batch.clear()

    def _finish(self) -> bytes:
        self._flush()
        return b""


def read_instant(
    path: StrPath, schema: SchemaLike
) -> Iterator[dict[str, np.ndarray]]:
    """Yields the samples of a binary file of Paddle's FileInstantDataset.

    A sample maps each column, also with `used=False`, to its values, in the form that
    `write` of a writer accepts:

    >>> slots = lodestar.data.Schema([lodestar.data.Column.sparse("item")])
    >>> with InstantWriter("part-1", slots, batch_size=2) as writer:
    ...     writer.write({"item": [7, 8]})
    >>> [sample["item"].tolist() for sample in read_instant("part-1", slots)]
    [[7, 8]]

    The whole file is read into memory. The batch sizes in the file are ignored.

    Args:
        path: Path of the file, decompressed if it ends in `.gz`.
        schema: The columns, in their order in a sample.

    Raises:
        ValueError: A DataFeedDesc cannot express a column.
        lodestar.data.DataError: The file cannot be read, is truncated, or does not
            fit the schema (names the file, the sample and the column).
    """
    spec = _spec(schema)
    name = as_path(path)
    with reading(name), open_input(path) as file:
        data = file.read()
    at, number = 0, 0
    while at < len(data):
        number += 1
        sample = {}
        for column in spec:
            where = f"{name}: sample {number}: slot {column.name!r} "
            sample[column.name], at = _read(where, column, data, at)
        yield sample


def _read(
    where: str, column: Column, data: bytes, at: int
) -> tuple[np.ndarray, int]:
    """Returns the values of a slot at an offset, and the offset after them."""
    dtype = _DTYPES[column.dtype]
    dims = _num_dims(column)
    left = len(data) - at
    count = _COUNT.unpack_from(data, at)[0] if left >= _COUNT.size else 0
    if left >= _COUNT.size and count <= dims:
        raise DataError(
            f"{where}at byte {at}: has no values, but must have at least one"
        )
    size = _COUNT.size + dims * _DIM.size + (count - dims) * dtype.itemsize
    if left < max(size, _COUNT.size):
        raise DataError(
            f"{where}at byte {at}: the file ends after {left} bytes, expected "
            f"{max(size, _COUNT.size)}"
        )
    at += _COUNT.size + dims * _DIM.size
    values: Any = np.frombuffer(data, dtype, count - dims, at)
    wanted = column.num_values
    if column.kind != "sparse":
        if wanted is not None and len(values) != wanted:
            raise DataError(
                f"{where}must have {wanted} values, got {len(values)}"
            )
        values = values.reshape(column.shape or (1,))
    return values, at + (count - dims) * dtype.itemsize
