"""Delimited text files (CSV, TSV and others) as row sources."""

import bisect
import csv
import io
import re
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv

from lodestar._errors import DataError, describe_error
from lodestar.data.arrow.elements import may_be_rounded
from lodestar.data.arrow.file_source import LineSource
from lodestar.data.arrow.text_format import TextFormat
from lodestar.schema import Column

# Minimum of a block per column, since each column has a fixed cost.
_COLUMN_BYTES = 4 << 10
_MAX_FIELD = 1 << 30
# Replaces a multi-character delimiter, which Arrow does not support.
_UNIT_SEPARATOR = b"\x1f"
_FAILED_COLUMN = re.compile(r"In CSV column #(\d+)")
_LINE_ENDS = re.compile(rb"(?<=\n)|(?<=\r)(?!\n)")


class TextSource(LineSource):
    """A delimited text file."""

    def __init__(
        self,
        path: str,
        text_format: TextFormat,
        na_values: Collection[str],
    ):
        """See LineSource."""
        names = text_format.columns
        super().__init__(
            path,
            _COLUMN_BYTES * len(names),
            text_format.delimiter[0],
            text_format.quote,
            text_format.skip_lines,
            0 if text_format.spans_lines else len(names),
        )
        self.format = text_format
        self._na_values = list(na_values)
        self._places = {name: i for i, name in enumerate(names) if name}
        self.schema = pa.schema([(name, pa.string()) for name in names if name])
        if text_format.has_header and self.row_groups:
            first, *rest = self.row_groups
            self.row_groups = (first - 1, *rest)
        # Number columns that Arrow's CSV reader failed to convert. Our decoder
        # accepts more forms, and reports bad values.
        self._as_text: set[str] = set()

    def _read(
        self, group: int, columns: Mapping[str, Column]
    ) -> tuple[Any, dict[int, str]]:
        data = self._block(group)
        wanted: dict[str, Any] = {}
        # A dense column of several values may be stored as `name_0`, `name_1`, ...
        pieces: dict[str, list[str]] = {}
        for name, column in columns.items():
            parts = [name]
            if name not in self._places:
                width = column.num_values or 1
                parts = pieces[name] = [f"{name}_{i}" for i in range(width)]
            for part in parts:
                if part not in self._places:
                    raise DataError(f"{self.path}: has no column {part!r}")
                wanted[part] = _type_of(column)
        found, bad = self._parse(group, data, wanted)
        for name, parts in pieces.items():
            found = found.append_column(name, _side_by_side(found, parts))
        return found, bad

    def check_names(self, names: Collection[str]) -> None:
        """See RowSource."""
        super().check_names(
            [
                name
                for name in names
                if name in self.types or f"{name}_0" not in self.types
            ]
        )

    def _parse(
        self, group: int, data: bytes, wanted: dict[str, Any]
    ) -> tuple[Any, dict[int, str]]:
        rows = self.row_groups[group]
        data, delimiter = self._with_short_delimiter(data)
        data, bad = self._without_bad_bytes(data, group)
        uneven: list[Any] = []

        def on_uneven(row: Any) -> str:
            uneven.append(row)
            return "skip"

        header = self.format.has_header and group == 0
        # Columns are named by their places, because names may be empty.
        places = {name: str(self._places[name]) for name in wanted}
        while True:
            uneven.clear()
            types = {
                places[name]: pa.string()
                if name in self._as_text
                else arrow_type
                for name, arrow_type in wanted.items()
            }
            try:
                table = pa.csv.read_csv(
                    pa.BufferReader(data),
                    pa.csv.ReadOptions(
                        use_threads=False,
                        block_size=max(len(data) + 1, 1 << 10),
                        column_names=[
                            str(i) for i in range(len(self.format.columns))
                        ],
                        skip_rows_after_names=int(header),
                        encoding=self.format.encoding,
                    ),
                    pa.csv.ParseOptions(
                        delimiter=delimiter,
                        quote_char=self.format.quote or False,
                        newlines_in_values=True,
                        invalid_row_handler=on_uneven,
                    ),
                    pa.csv.ConvertOptions(
                        include_columns=list(types) or ["0"],
                        column_types=types,
                        null_values=self._na_values,
                        strings_can_be_null=False,
                        check_utf8=False,
                    ),
                )
            except pa.ArrowInvalid as error:
                self._note_failure(error, types)
                continue
            table = table.rename_columns([*wanted] or ["0"])
            rounded = {name for name in wanted if _is_rounded(table[name])}
            if not rounded:
                break
            self._as_text = {*self._as_text, *rounded}
        parsed = np.arange(rows)
        if uneven:
            found = self._uneven_rows(data, delimiter, header)
            bad |= found
            parsed = np.setdiff1d(parsed, list(found), assume_unique=True)
        if bad and len(parsed) == table.num_rows:
            order = np.full(rows, -1)
            order[parsed] = np.arange(len(parsed))
            order[list(bad)] = -1
            table = table.take(pa.array(order, mask=order < 0))
        if table.num_rows != rows:
            raise DataError(
                f"{self.path}: found {table.num_rows} records in the bytes "
                f"{self._offsets[group]} to {self._offsets[group + 1]}, expected "
                f"{rows}"
            )
        return table, bad

    def _with_short_delimiter(self, data: bytes) -> tuple[bytes, str]:
        """Returns a block whose delimiter is one character, and the delimiter."""
        delimiter = self.format.delimiter
        if len(delimiter) == 1:
            return data, delimiter
        data = data.replace(delimiter.encode(), _UNIT_SEPARATOR)
        return data, _UNIT_SEPARATOR.decode()

    def _note_failure(self, error: Exception, types: dict[str, Any]) -> None:
        """Reads a column that cannot be converted as strings from now on."""
        text = describe_error(error)
        match = _FAILED_COLUMN.search(text)
        if match is not None:
            place = match[1]
            if types.get(place) != pa.string():
                name = self.format.columns[int(place)]
                self._as_text = {*self._as_text, name}
                return
        raise DataError(f"{self.path}: {text}") from error

    def _without_bad_bytes(
        self, data: bytes, group: int
    ) -> tuple[bytes, dict[int, str]]:
        """Returns errors of rows with bytes that are not text, and a block.

        The block is the same, except that those rows have other values.
        """
        if b"\0" not in data and self._is_encoded(data):
            return data, {}
        kept = {*b"\r\n", *self.format.quote.encode()}
        kept.update(self._with_short_delimiter(b"")[1].encode())
        blank = bytes(i if i in kept else ord("0") for i in range(256))
        lines = _LINE_ENDS.split(data)
        row_lines = self._record_lines(group)
        first = self._first_line(group)
        bad: dict[int, str] = {}
        for i, line in enumerate(lines):
            text = self._bad_byte(line)
            if text is None:
                continue
            row = bisect.bisect_right(row_lines, first + i) - 1
            if row < 0:
                raise DataError(f"{self.path}: line {first + i}: {text}")
            bad.setdefault(row, text)
            lines[i] = line.translate(blank)
        return b"".join(lines), bad

    def _is_encoded(self, data: bytes) -> bool:
        return data.isascii() or self._bad_byte(data) is None

    def _bad_byte(self, data: bytes) -> str | None:
        """Returns the error of the first byte that is not text."""
        if b"\0" in data:
            return "is not text: found a NUL byte"
        try:
            data.decode(self.format.encoding)
        except UnicodeDecodeError as error:
            return (
                f"found the byte 0x{data[error.start]:02x}, which is not "
                f"{self.format.encoding}; give `encoding`, e.g. 'latin-1'"
            )
        return None

    def _uneven_rows(
        self, data: bytes, delimiter: str, header: bool
    ) -> dict[int, str]:
        """Returns errors for the rows with a wrong number of fields."""
        bad = {}
        expected = len(self.format.columns)
        for row, fields in enumerate(self._records(data, delimiter)):
            if len(fields) != expected and not (header and row == 0):
                bad[row - header] = (
                    f"found {len(fields)} fields, expected {expected}"
                )
        return bad

    def _records(self, data: bytes, delimiter: str) -> Any:
        return (row for row in self._reader(data, delimiter) if row)

    def _reader(self, data: bytes, delimiter: str) -> Any:
        text = data.decode(self.format.encoding, "replace")
        csv.field_size_limit(_MAX_FIELD)
        return csv.reader(
            io.StringIO(text.removeprefix("\ufeff"), newline=""),
            delimiter=delimiter,
            quotechar=self.format.quote or None,
            quoting=csv.QUOTE_MINIMAL if self.format.quote else csv.QUOTE_NONE,
        )

    def _record_lines(self, group: int) -> list[int]:
        data, delimiter = self._with_short_delimiter(self._block(group))
        before = self._first_line(group) - 1
        lines = []
        ended = 0
        reader = self._reader(data, delimiter)
        for row in reader:
            if row:
                lines.append(before + ended + 1)
            ended = reader.line_num
        return lines[1:] if self.format.has_header and group == 0 else lines


def _type_of(column: Column) -> Any:
    """Returns the type to which Arrow's CSV reader converts a column."""
    if column.separator or column.positive or column.unit:
        return pa.string()
    if column.dtype == "float":
        return pa.float64()
    return pa.int64() if column.encoding == "int" else pa.string()


def _is_rounded(column: Any) -> bool:
    """Returns whether a column holds floats that may be rounded integers."""
    return pa.types.is_floating(column.type) and any(
        may_be_rounded(chunk.fill_null(0).to_numpy(zero_copy_only=False))
        for chunk in column.chunks
    )


def _side_by_side(table: Any, names: Sequence[str]) -> Any:
    """Combines columns into one column of fixed-size lists."""
    columns = [table.column(name).combine_chunks() for name in names]
    if len({str(column.type) for column in columns}) > 1:
        columns = [column.cast(pa.string()) for column in columns]
    rows = table.num_rows
    values = pa.concat_arrays(columns)
    order = np.arange(rows * len(names)).reshape(len(names), rows).T.reshape(-1)
    return pa.FixedSizeListArray.from_arrays(
        values.take(pa.array(order)), len(names)
    )
