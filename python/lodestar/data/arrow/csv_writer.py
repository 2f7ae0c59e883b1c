"""CsvWriter: writes examples to CSV with a header."""

import csv
import io

import numpy as np

from lodestar._typing import StrPath
from lodestar.data.sample_columns import ColumnValues
from lodestar.data.sample_writer import SampleWriter
from lodestar.paddle.multislot_writer import number_texts
from lodestar.schema import Column, SchemaLike


def column_names(slot: Column) -> list[str]:
    """Returns the CSV columns of a schema column: one, or `name_0`, `name_1`, ..."""
    if slot.kind == "dense" and slot.num_values not in (None, 1):
        return [f"{slot.name}_{i}" for i in range(slot.num_values)]
    return [slot.name]


class CsvWriter(SampleWriter):
    """Writes CSV with a header (docs/internals/formats.md); a context manager.

    A cell holds one value, or the space-separated values of a sparse column.
    Numbers are exact: a float32 is written with the fewest digits that round-trip.

    >>> spec = Schema([Column.label("click"), Column.sparse("C1")])
    >>> with CsvWriter("clicks.csv", spec) as writer:
    ...     writer.write({"click": 1, "C1": [7, 8]})
    """

    def __init__(
        self,
        path: StrPath,
        schema: SchemaLike,
        *,
        delimiter: str = ",",
    ):
        """Opens the temporary file; raises ValueError for repeated column names.

        The delimiter is `","`, a tab, `";"` or `"|"`.
        """
        self._delimiter = delimiter
        super().__init__(path, schema)
        try:
            self._file.write(self._header())
        except BaseException:
            self.discard()
            raise

    def _header(self) -> bytes:
        names: dict[str, None] = {}
        for slot in self._spec:
            for name in column_names(slot):
                if name in names:
                    raise ValueError(
                        f"{self._path}: slot {slot.name!r}: two columns would "
                        f"be called {name!r}"
                    )
                if (
                    name != name.strip()
                    or "\0" in name
                    or name.startswith("\ufeff")
                ):
                    raise ValueError(
                        f"{self._path}: slot {slot.name!r}: no column can have "
                        "a name with a NUL or with blanks around it"
                    )
                names[name] = None
        self._num_columns = len(names)
        text = io.StringIO()
        csv.writer(
            text,
            delimiter=self._delimiter,
            lineterminator="\n",
            # The csv module quotes names with "\n", but not those with "\r".
            quoting=csv.QUOTE_ALL
            if "\r" in "".join(names)
            else csv.QUOTE_MINIMAL,
        ).writerow(names)
        return text.getvalue().encode()

    def _check_column(self, slot: Column, column: ColumnValues) -> ColumnValues:
        empty = np.diff(column.splits) == 0
        if self._num_columns == 1 and empty.any():
            raise ValueError(
                self._where(slot, int(np.argmax(empty)))
                + "is empty, which a file of one column cannot say"
            )
        return column

    def _put(self, columns: list[ColumnValues], begin: int, end: int) -> None:
        cells: list[list[str]] = []
        for slot, column in zip(self._spec, columns):
            cells += _cells(slot, column, begin, end)
        lines = map(self._delimiter.join, zip(*cells))
        self._file.write(("\n".join(lines) + "\n").encode())


def _cells(
    slot: Column, column: ColumnValues, begin: int, end: int
) -> list[list[str]]:
    """Returns the cells of the rows [begin, end), column by column."""
    splits = column.splits[begin : end + 1]
    texts = number_texts(slot, column.values[splits[0] : splits[-1]])
    width = len(column_names(slot))
    if slot.num_values is not None:
        return [texts[i::width] for i in range(width)]
    ends = (splits - splits[0]).tolist()
    return [[" ".join(texts[a:b]) for a, b in zip(ends, ends[1:])]]
