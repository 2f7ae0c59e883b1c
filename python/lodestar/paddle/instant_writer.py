"""Writer of the binary files of Paddle's FileInstantDataset."""

import struct
from typing import Any

import numpy as np

from lodestar._checks import check_count
from lodestar._typing import StrPath
from lodestar.data.sample_columns import ColumnValues
from lodestar.data.sample_writer import SampleWriter, as_int64
from lodestar.paddle.data_feed_desc import (
    DEFAULT_BATCH_SIZE,
    check_expressible,
)
from lodestar.schema import Column, Schema, SchemaLike, as_schema

_COUNT = struct.Struct("<H")
_BATCH_SIZE = struct.Struct("<Q")
_MOST = 2**16 - 1
_DTYPES: dict[str, np.dtype[Any]] = {
    "uint64": np.dtype("<i8"),
    "float": np.dtype("<f4"),
}


class InstantWriter(SampleWriter):
    """Context manager that writes a binary file for Paddle's FileInstantDataset.

    The format is described in docs/internals/formats.md. Paddle must read the file
    with the same `batch_size`, which the file contains, and the slots of
    `DataFeedDesc(schema)`. A sample has 1 to 65,535 values per slot, including the
    batch size: pad an empty list with a 0.

    >>> spec = Schema([Column.label("click"), Column.sparse("item")])
    >>> with InstantWriter("clicks.instant", spec, batch_size=2) as writer:
    ...     writer.write({"click": 1, "item": [7, 8]})
    """

    def __init__(
        self,
        path: StrPath,
        schema: SchemaLike,
        *,
        batch_size: int = DEFAULT_BATCH_SIZE,
    ):
        """Opens the temporary file, compressed if the path ends in `.gz`.

        Raises ValueError if `batch_size` is below 1, or a DataFeedDesc cannot express
        a column.
        """
        self._batch_size = check_count("batch_size", batch_size, 1)
        super().__init__(path, instant_schema(schema))
        # The samples of the last batch, each cut where the batch size belongs.
        self._batch: list[list[bytes]] = []

    def _check_column(self, slot: Column, column: ColumnValues) -> ColumnValues:
        counts = np.diff(column.splits)
        most = _MOST - has_batch_size(slot)
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
                sized = has_batch_size(slot)
                pieces[-1] += _COUNT.pack(len(own) + sized)
                if sized:
                    pieces.append(b"")
                pieces[-1] += own.astype(_DTYPES[slot.dtype]).tobytes()
            self._batch.append(pieces)
            if len(self._batch) == self._batch_size:
                self._flush()

    def _flush(self) -> None:
        size = _BATCH_SIZE.pack(len(self._batch))
        self._file.write(b"".join(size.join(p) for p in self._batch))
        self._batch.clear()

    def _finish(self) -> bytes:
        self._flush()
        return b""


def instant_schema(schema: SchemaLike) -> Schema:
    """Returns the schema; ValueError if a DataFeedDesc cannot express a column."""
    spec = as_schema(schema)
    for column in spec:
        check_expressible(column)
    return spec


def has_batch_size(column: Column) -> bool:
    """Returns whether the batch size precedes the values of a column."""
    return column.used and column.kind != "sparse"
