"""CsvReader: the rows of a CSV or TSV file, strictly."""

import csv
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import tensorflow as tf

from lodestar._errors import DataError, reading
from lodestar._files import as_path
from lodestar._typing import StrPath
from lodestar.data.input_bytes import open_input

DELIMITERS = (",", "\t", ";", "|")
_MAX_LINE_BYTES = 16 << 20
# A small file may decompress to nothing but newlines, for hours.
_MAX_BLANK_LINES = 10_000_000


class CsvReader:
    r"""Iterates over the rows of a CSV file, several times if wanted.

    A line ends in `\n` or `\r\n`. Blanks around fields are stripped, quoted
    fields may hold delimiters, `\n` and `\r`, and blank lines are skipped. The
    text must be UTF-8; a name that ends in `.gz` is decompressed.

    Attributes:
        path: The file.
        columns: Their names.
        delimiter: Given or found.
        line_number: The line that was read last, from 1.
        ends_without_newline: Whether the last line, once read, had no newline:
            perhaps cut.
    """

    def __init__(
        self,
        path: StrPath,
        *,
        delimiter: str | None = None,
        columns: Sequence[str] | None = None,
        on_progress: Callable[[int], None] | None = None,
    ):
        """Opens the file and reads its header.

        Args:
            path: The file, of any scheme that `tf.io.gfile` knows.
            delimiter: One character; None takes the one of comma, tab,
                semicolon and bar that is most frequent in the header.
            columns: The names of the columns of a file without a header.
            on_progress: Called with the number of bytes of each piece read.

        Raises:
            DataError: The file is missing, a folder, empty or not text, or its
                header has an empty or repeated name.
        """
        self.path = as_path(path)
        self._on_progress = on_progress
        self.delimiter = delimiter
        self.ends_without_newline = False
        if delimiter is not None and (
            not isinstance(delimiter, str) or len(delimiter) != 1
        ):
            raise DataError(
                f"the delimiter must be one character, found {delimiter!r}"
            )
        if tf.io.gfile.isdir(self.path):
            raise DataError(f"{self.path}: is a folder")
        self._has_header = columns is None
        self.columns = self._read_header() if columns is None else list(columns)
        self._index = {name: i for i, name in enumerate(self.columns)}

    def column_index(self, name: str) -> int:
        """The position of a column, or DataError naming the columns there are."""
        if name not in self._index:
            raise DataError(
                f"{self.path}: unknown column '{name}'; the columns are "
                + ", ".join(self.columns)
            )
        return self._index[name]

    def rows(
        self, skip: Callable[[str], Any] | None = None
    ) -> Iterator[tuple[int, list[str]]]:
        """Yields (line number from 1, stripped fields) of each data row.

        Args:
            skip: Called with what is wrong with a row of another number of
                fields, which is then left out; None raises it.

        Raises:
            DataError: A row has not as many fields as the header, the file is
                not text, or has no row; names path and line. Or the file was
                written to meanwhile.
        """
        wanted = len(self.columns)
        rows = self._records()
        if self._has_header:
            next(rows)
        found_any = False
        for line, fields in rows:
            found_any = True
            if len(fields) != wanted:
                text = (
                    f"{self.path}:{line}: found {len(fields)} fields, wanted "
                    f"{wanted}" + " as in the header" * self._has_header
                )
                if skip is None:
                    raise DataError(text)
                skip(text)
                continue
            yield line, [field.strip() for field in fields]
        if not found_any:
            found = "has a header but no rows"
            raise DataError(
                f"{self.path}: {found if self._has_header else 'is empty'}"
            )

    def _read_header(self) -> list[str]:
        for _, fields in self._records():
            names = [field.strip() for field in fields]
            seen: set[str] = set()
            for number, name in enumerate(names, 1):
                if not name:
                    raise DataError(
                        f"{self.path}:1: column {number} of the header has no "
                        "name"
                    )
                if name in seen:
                    raise DataError(
                        f"{self.path}:1: column '{name}' occurs twice in the "
                        "header"
                    )
                seen.add(name)
            return names
        raise DataError(f"{self.path}: the file is empty")

    def _records(self) -> Iterator[tuple[int, list[str]]]:
        """(line number, fields) of the header and each row, blank lines left out."""
        lines = self._lines()
        first = next((line for line in lines if line.strip()), None)
        if first is None:
            return
        if self.delimiter is None:
            self.delimiter = max(DELIMITERS, key=first.count)

        def all_lines() -> Iterator[str]:
            yield first
            yield from lines

        # The csv module's own limit, one for all its readers, is less than the
        # ids that a cell may hold.
        csv.field_size_limit(max(csv.field_size_limit(), _MAX_LINE_BYTES))
        reader = csv.reader(
            all_lines(),
            delimiter=self.delimiter,
            skipinitialspace=True,
            strict=True,
        )
        skipped = self.line_number - 1
        try:
            for fields in reader:
                if fields and (len(fields) > 1 or fields[0].strip()):
                    yield skipped + reader.line_num, fields
        except csv.Error as error:
            line = skipped + reader.line_num
            text = str(error)
            if "new-line character" in text:
                text = (
                    r"found \r outside quotes, wanted \n or \r\n at the end of "
                    r"a line, or quotes around a value that holds a \r"
                )
            raise DataError(f"{self.path}:{line}: {text}") from error

    def _lines(self) -> Iterator[str]:
        self.line_number = 0
        blank = 0
        with reading(self.path), open_input(self.path) as file:
            for raw in file:
                self.line_number += 1
                self.ends_without_newline = not raw.endswith(b"\n")
                blank = 0 if raw.strip() else blank + 1
                if blank > _MAX_BLANK_LINES:
                    raise DataError(
                        f"{self.path}:{self.line_number}: more than "
                        f"{_MAX_BLANK_LINES} blank lines in a row"
                    )
                yield self._decode(raw)
                if self._on_progress is not None:
                    self._on_progress(len(raw))

    def _decode(self, raw: bytes) -> str:
        where = f"{self.path}:{self.line_number}: not text: "
        if len(raw) > _MAX_LINE_BYTES:
            raise DataError(f"{where}a line of {len(raw)} bytes")
        if b"\0" in raw:
            raise DataError(f"{where}a NUL byte at byte {raw.index(0) + 1}")
        try:
            text = raw.decode("utf-8")
        except UnicodeDecodeError as error:
            raise DataError(
                f"{where}byte {error.start + 1} is not UTF-8"
            ) from error
        # A byte order mark, as spreadsheets write it.
        return text.removeprefix("\ufeff") if self.line_number == 1 else text
