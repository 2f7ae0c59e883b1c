"""The layout of delimited text files: delimiter, quotes, header, columns.

Each property is declared by the caller, or certain from the first records. Where they
leave two layouts, an error names the option that decides.
"""

import codecs
import csv
import dataclasses
import io
import itertools
import re
from collections.abc import Collection, Iterator, Sequence

from lodestar._checks import is_integer
from lodestar._errors import DataError, reading
from lodestar._input_bytes import open_input

DELIMITERS = (",", "\t", ";", "|", "::")
# The columns of Criteo's click logs, which have no header.
CRITEO_NUMBERS = [f"I{i}" for i in range(1, 14)]
CRITEO_IDS = [f"C{i}" for i in range(1, 27)]
_CRITEO_LINE = re.compile(
    r"([01]\t)?(-?[0-9]+)?(\t(-?[0-9]+)?){12}(\t([0-9a-fA-F]{8})?){26}[\r\n]*",
    re.ASCII,
)
_HEAD_BYTES = 1 << 17
_MAX_HEAD_BYTES = 64 << 20
# Records to inspect, including the first.
_HEAD_RECORDS = 1000
_NUMBER = re.compile(r"[+-]?[0-9.]+(e[+-]?[0-9]+)?", re.ASCII | re.IGNORECASE)
_LINE_END = re.compile(rb"\r\n|\r|\n")
_EXCEL_LINE = re.compile(r'"?sep=(.)"?', re.IGNORECASE)
# Encodings that do not extend ASCII.
_NOT_ASCII = ("utf-16", "utf-32", "utf16", "utf32", "utf-7", "cp037", "cp500")


@dataclasses.dataclass(frozen=True)
class TextFormat:
    """The layout of a delimited text file.

    Attributes:
        columns: Names of the columns, in order. A column with an empty name is
            ignored; two columns have the same name only if nothing reads them.
        delimiter: Field separator, one or several characters.
        has_header: Whether the first record is a header.
        encoding: Name of the encoding, which extends ASCII.
        quote: The quote character; empty if no character quotes.
        spans_lines: Whether a quoted field may span lines even if each of the lines
            is a record when quotes are ordinary characters.
        skip_lines: Number of lines before the first record.
        first_line: Number of the first record's line, from 1.
    """

    columns: tuple[str, ...]
    delimiter: str
    has_header: bool
    encoding: str = "utf-8"
    quote: str = '"'
    spans_lines: bool = False
    skip_lines: int = 0
    first_line: int = 1

    def describe(self) -> str:
        """Returns the layout in one line."""
        parts = [
            f"delimiter {self.delimiter!r}",
            f"quote {self.quote!r}" if self.quote else "no quote",
            f"header in line {self.first_line}"
            if self.has_header
            else "no header",
        ]
        if self.encoding != "utf-8":
            parts.append(f"encoding {self.encoding}")
        return ", ".join(parts)


def is_criteo_line(line: str) -> bool:
    """Returns whether a line is in Criteo's format, with or without label."""
    return _CRITEO_LINE.fullmatch(line) is not None


def find_text_format(
    path: str,
    *,
    columns: Sequence[str] | None = None,
    delimiter: str | None = None,
    quote: str | None = None,
    header: bool | None = None,
    skip_lines: int = 0,
    encoding: str | None = None,
    names: Collection[Collection[str]] = (),
    na_values: Collection[str] = ("",),
) -> TextFormat:
    """Returns the declared layout of a file, completed from its first records.

    `columns`, `delimiter`, `quote`, `header`, `skip_lines` and `encoding` are the
    options of `open_dataset`. `names` are the columns that the caller reads; each is a
    collection of names of which one is in the header. `na_values` are strings that
    mean missing.

    Raises:
        DataError: The file is empty or not text, contradicts an option, or leaves
            two layouts.
    """
    encoding = _checked_encoding(encoding)
    _check_options(delimiter, quote, header, skip_lines)
    head = _Head(path, encoding, skip_lines)
    if (
        columns is None
        and delimiter in (None, "\t")
        and not header
        and is_criteo_line(head.first_text)
    ):
        label = ["label"] if head.first_text.count("\t") == 39 else []
        return TextFormat(
            (*label, *CRITEO_NUMBERS, *CRITEO_IDS),
            "\t",
            False,
            encoding,
            quote=_quote_of("\t", quote),
            spans_lines=quote is not None,
            skip_lines=skip_lines,
            first_line=head.line,
        )
    excel = _EXCEL_LINE.fullmatch(head.first_text)
    if excel is not None:
        raise head.error(
            f"is {excel[0]!r}, which tells Excel the delimiter; pass "
            f"`skip_lines={head.line}, delimiter={excel[1]!r}`"
        )
    if columns is not None:
        columns = _checked_columns(columns)
        names = ()
    if delimiter is None:
        delimiter = _delimiter_of(head, quote, columns, names)
    records = head.records(delimiter, quote, 3)
    is_decided = header is not None or _are_in(names, records[0])
    if not is_decided:
        records = head.records(delimiter, quote)
    first = records[0]
    if columns is not None and len(first) != len(columns):
        raise head.error(
            _uneven_text(head, delimiter, records)
            or f"found {len(first)} fields separated by {delimiter!r}, expected "
            f"{len(columns)} as in `columns`"
        )
    find_text = _trailing_text if is_decided else _uneven_text
    uneven = find_text(head, delimiter, records)
    if uneven is not None:
        raise head.error(uneven)
    has_header = _has_header(head, records, header, columns, names, na_values)
    return TextFormat(
        tuple(first if columns is None else columns),
        delimiter,
        has_header,
        encoding,
        quote=_quote_of(delimiter, quote),
        spans_lines=quote is not None,
        skip_lines=skip_lines,
        first_line=head.line,
    )


def _check_options(
    delimiter: str | None,
    quote: str | None,
    header: bool | None,
    skip_lines: int,
) -> None:
    if delimiter is not None and (
        not isinstance(delimiter, str)
        or not delimiter
        or any(c in '\r\n"' for c in delimiter)
    ):
        raise DataError(
            f"`delimiter` must be a string without quotes and newlines, got "
            f"{delimiter!r}"
        )
    if quote is not None and (
        not isinstance(quote, str)
        or len(quote) > 1
        or not quote.isascii()
        or quote in ("\r", "\n", "\0", delimiter)
    ):
        raise DataError(
            "`quote` must be '\"' or another ASCII character that is not the "
            f"delimiter, or '' for no quotes, got {quote!r}"
        )
    if quote and delimiter is not None and len(delimiter) > 1:
        raise DataError(
            f"`quote` must be '' because `delimiter`={delimiter!r} has several "
            f"characters, got {quote!r}"
        )
    if not isinstance(header, bool | None):
        raise DataError(f"`header` must be True, False or None, got {header!r}")
    if not is_integer(skip_lines) or not 0 <= skip_lines < 2**31:
        raise DataError(
            f"`skip_lines` must be an integer in [0, 2**31), got {skip_lines!r}"
        )


def _checked_encoding(encoding: str | None) -> str:
    if encoding is None:
        return "utf-8"
    try:
        "".encode(encoding)
    except (LookupError, TypeError) as error:
        raise DataError(f"`encoding`={encoding!r} is unknown") from error
    if encoding.lower().replace("_", "-").startswith(_NOT_ASCII):
        raise DataError(
            f"`encoding`={encoding!r} does not extend ASCII; convert the file to "
            "UTF-8"
        )
    return encoding


def _checked_columns(columns: Sequence[str]) -> list[str]:
    names = list(columns)
    for number, name in enumerate(names, 1):
        if not isinstance(name, str) or not name:
            raise DataError(f"`columns`: column {number} has no name")
        if name in names[: number - 1]:
            raise DataError(f"`columns`: {name!r} occurs twice")
    return names


def _quote_of(delimiter: str, quote: str | None) -> str:
    if quote is None:
        return '"' if len(delimiter) == 1 else ""
    return quote


class _Head:
    """The first lines of a file, after the lines to skip.

    Attributes:
        path: Path of the file.
        line: Number of the first line that is not empty, from 1.
        first_text: That line.
    """

    def __init__(self, path: str, encoding: str, skip_lines: int):
        self.path = path
        self._encoding = encoding
        self._skip_lines = skip_lines
        self._read(_HEAD_BYTES)

    def _read(self, size: int) -> None:
        self._size = size
        with reading(self.path), open_input(self.path) as file:
            data = file.read(size).removeprefix(b"\xef\xbb\xbf")
            self._is_whole = not file.read(1)
        ends = [0]
        ends += [
            end.end()
            for end in itertools.islice(
                _LINE_END.finditer(data), self._skip_lines
            )
        ]
        data = data[ends[-1] :] if len(ends) > self._skip_lines else b""
        text = data.lstrip(b"\r\n")
        if not text and not self._is_whole:
            self._grow()
            return
        if not text:
            skipped = self._skip_lines
            raise DataError(
                f"{self.path}: the file is empty"
                f"{f' after {skipped} skipped lines' if skipped else ''}"
            )
        empty = _LINE_END.findall(data[: len(data) - len(text)])
        self.line = 1 + self._skip_lines + len(empty)
        line, *more = _LINE_END.split(text, maxsplit=1)
        self.first_text = self._decoded(line, bool(more) or self._is_whole)
        self._text = text.decode(self._encoding, "replace")

    def _grow(self) -> None:
        if self._size >= _MAX_HEAD_BYTES:
            raise DataError(
                f"{self.path}: line {1 + self._skip_lines}: is longer than "
                f"{self._size} bytes"
            )
        self._read(self._size * 8)

    def _decoded(self, line: bytes, is_whole: bool) -> str:
        if b"\0" in line:
            raise self.error("is not text: found a NUL byte")
        decoder = codecs.getincrementaldecoder(self._encoding)()
        try:
            return decoder.decode(line, is_whole)
        except UnicodeDecodeError as error:
            raise self.error(
                f"byte {error.start + 1} is not {self._encoding}; give "
                "`encoding`, e.g. 'latin-1'"
            ) from error

    def error(self, text: str) -> DataError:
        """Returns an error in the first line."""
        return DataError(f"{self.path}: line {self.line}: {text}")

    def records(
        self,
        delimiter: str,
        quote: str | None,
        most: int = _HEAD_RECORDS,
        *,
        is_strict: bool = False,
    ) -> list[list[str]]:
        """Returns the fields of the first `most` records, without whitespace.

        If quotes are malformed, returns no record if `is_strict`. Otherwise, they
        are ordinary characters here, and scanning the whole file reports the error.
        """
        while True:
            found, is_good = self._parsed(
                delimiter, _quote_of(delimiter, quote), most
            )
            if not is_good and is_strict:
                return []
            if not is_good:
                found, _ = self._parsed(delimiter, "", most)
            if found and (
                len(found) >= min(most, 2)
                or self._is_whole
                or self._size >= _MAX_HEAD_BYTES
            ):
                return found
            self._grow()

    def _parsed(
        self, delimiter: str, quote: str, most: int
    ) -> tuple[list[list[str]], bool]:
        """Returns complete records, and whether their quotes are well-formed."""
        lines: Iterator[str] = io.StringIO(self._text, newline="")
        rows: Iterator[list[str]]
        if len(delimiter) > 1:
            lines = (line.rstrip("\r\n") for line in lines)
            rows = (line.split(delimiter) for line in lines if line)
        else:
            csv.field_size_limit(max(csv.field_size_limit(), _MAX_HEAD_BYTES))
            rows = csv.reader(
                lines,
                delimiter=delimiter,
                quotechar=quote or None,
                quoting=csv.QUOTE_MINIMAL if quote else csv.QUOTE_NONE,
                strict=True,
            )
        records: list[list[str]] = []
        try:
            for row in rows:
                if row:
                    records.append([field.strip() for field in row])
                if len(records) == most:
                    return records, True
        except csv.Error as error:
            # The end of the head may be inside a quoted field.
            is_cut = not self._is_whole and "end of data" in str(error)
            return records, is_cut
        if not self._is_whole and not self._text.endswith(("\r", "\n")):
            del records[-1:]
        return records, True


def _delimiter_of(
    head: _Head,
    quote: str | None,
    columns: Sequence[str] | None,
    names: Collection[Collection[str]],
) -> str:
    """Returns the only delimiter that fits the names and the first records."""
    fitting = [d for d in DELIMITERS if len(d) == 1 or not quote]
    by_names = []
    for delimiter in fitting if columns or names else ():
        (first,) = head.records(delimiter, quote, 1)
        if len(first) == len(columns or first) and all(
            _are_in([name], first) for name in names
        ):
            by_names.append(delimiter)
    if len(by_names) == 1:
        return by_names[0]
    for is_strict in (True, False):
        records = {
            d: head.records(d, quote, is_strict=is_strict)
            for d in by_names or fitting
        }
        even = [
            d
            for d, rows in records.items()
            if rows
            and len(rows[0]) > 1
            and len({len(row) for row in rows}) == 1
        ]
        if even:
            break
    if len(even) == 1:
        return even[0]
    if even:
        raise head.error(
            f"the delimiter may be {' or '.join(map(repr, even))}: each splits the "
            "first lines into equally many fields; pass `delimiter=`"
        )
    if all(len(row) == 1 for rows in records.values() for row in rows):
        return fitting[0]  # There is one column.
    uneven = {d: _uneven_text(head, d, rows) for d, rows in records.items()}
    found = [text for text in uneven.values() if text is not None]
    if len(found) == 1:
        raise head.error(found[0])
    delimiter, rows = max(records.items(), key=lambda item: len(item[1][0]))
    other = next(row for row in rows if len(row) != len(rows[0]))
    raise head.error(
        "no delimiter splits the first lines into equally many fields: "
        f"{delimiter!r} splits this line into {len(rows[0])}, and record "
        f"{rows.index(other) + 1} into {len(other)}; pass `delimiter=`"
    )


def _uneven_text(
    head: _Head, delimiter: str, records: list[list[str]]
) -> str | None:
    """Returns an error if all records but the first have the same other size."""
    sizes = {len(record) for record in records[1:]}
    if len(sizes) != 1 or len(records[0]) in sizes or max(sizes) == 1:
        return None
    return _trailing_text(head, delimiter, records) or (
        f"found {len(records[0])} fields separated by {delimiter!r}, but "
        f"{max(sizes)} in all lines after it; if it is not part of the table, "
        f"pass `skip_lines={head.line}`"
    )


def _trailing_text(
    head: _Head, delimiter: str, records: list[list[str]]
) -> str | None:
    """Returns an error if a delimiter ends each record except the first."""
    size = len(records[0])
    if len(records) == 1 or any(
        len(record) != size + 1 or record[-1] for record in records[1:]
    ):
        return None
    return (
        f"found {size} fields, but {delimiter!r} ends every line after it, which "
        f"makes {size + 1} fields, the last empty; remove these delimiters, or "
        f"pass `skip_lines={head.line}, header=False` and `columns` with "
        f"{size + 1} names"
    )


def _are_in(names: Collection[Collection[str]], record: list[str]) -> bool:
    """Returns whether a record has any of the names."""
    return any(name in record for spellings in names for name in spellings)


def _has_header(
    head: _Head,
    records: list[list[str]],
    header: bool | None,
    columns: Sequence[str] | None,
    names: Collection[Collection[str]],
    na_values: Collection[str],
) -> bool:
    """Returns whether the first record is a header; raises if that is not certain."""
    first = records[0]
    shown = ", ".join(first)[:200]
    if header is False and columns is None:
        raise head.error(
            "`header=False` needs names for the columns in `columns`"
        )
    if header is False and first == columns:
        raise head.error(
            f"is the header {shown}, but `header` is False; do not pass `header`"
        )
    if header is not None:
        return header
    is_data = all(not field or _NUMBER.fullmatch(field) for field in first)
    if columns is not None:
        if first == columns or is_data:
            return first == columns
        raise head.error(
            f"is not `columns`, so it may be a header or data: {shown}; pass "
            "`header=False` if it is data, or `header=True` if `columns` "
            "replaces it"
        )
    # If only some names are there, the others are reported as missing.
    if _are_in(names, first):
        return True
    if is_data:
        raise head.error(
            f"looks like data, not like a header: {shown}; name the columns with "
            "`columns=[...]`"
        )
    has_names = len(set(first)) == len(first) and not any(
        _NUMBER.fullmatch(field) or (field in na_values if field else i)
        for i, field in enumerate(first)
    )
    if not (has_names and _has_numbers(records, na_values)):
        raise head.error(
            f"may be a header or data: {shown}; pass `header=True`, or "
            "`header=False` and `columns=[...]`"
        )
    return True


def _has_numbers(records: list[list[str]], na_values: Collection[str]) -> bool:
    """Returns whether a column has only numbers below the first record."""
    size = len(records[0])
    rows = [record for record in records[1:] if len(record) == size]
    for column in zip(*rows):
        values = [value for value in column if value and value not in na_values]
        if values and all(map(_NUMBER.fullmatch, values)):
            return True
    return False
