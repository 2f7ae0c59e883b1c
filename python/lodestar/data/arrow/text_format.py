"""The layout of delimited text files: delimiter, header, columns."""

import csv
import dataclasses
import io
import re
from collections.abc import Collection, Sequence

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
_HEAD_BYTES = 1 << 20
_MAX_HEAD_BYTES = 64 << 20
_NUMBER = re.compile(r"[+-]?[0-9.]+(e[+-]?[0-9]+)?", re.ASCII | re.IGNORECASE)
# Encodings that do not extend ASCII.
_NOT_ASCII = ("utf-16", "utf-32", "utf16", "utf32", "utf-7", "cp037", "cp500")


@dataclasses.dataclass(frozen=True)
class TextFormat:
    """The layout of a delimited text file.

    Attributes:
        columns: Names of the columns, in order.
        delimiter: Field separator, one or several characters.
        has_header: Whether the first record is a header.
        encoding: Name of the encoding, which extends ASCII.
    """

    columns: tuple[str, ...]
    delimiter: str
    has_header: bool
    encoding: str = "utf-8"

    @property
    def quote(self) -> str:
        """The quote character; empty for multi-character delimiters."""
        return '"' if len(self.delimiter) == 1 else ""


def is_criteo_line(line: str) -> bool:
    """Returns whether a line is in Criteo's format, with or without label."""
    return _CRITEO_LINE.fullmatch(line) is not None


def find_text_format(
    path: str,
    *,
    columns: Sequence[str] | None = None,
    delimiter: str | None = None,
    encoding: str | None = None,
    wanted: Collection[str] = (),
) -> TextFormat:
    """Detects the layout of a file from its first record.

    `columns` are the names for a file without a header. `wanted` are names that the
    header must have, which help to detect the delimiter if it is None. Raises
    DataError if the file is empty or not text, or its first line is neither a
    header nor a record of `columns`.
    """
    encoding = _checked_encoding(encoding)
    if delimiter is not None and (
        not isinstance(delimiter, str)
        or not delimiter
        or any(c in '\r\n"' for c in delimiter)
    ):
        raise DataError(
            f"`delimiter` must be a string without quotes and newlines, got "
            f"{delimiter!r}"
        )
    head = _head(path, _HEAD_BYTES)
    line = _first_line(path, head, encoding)
    if columns is None and delimiter in (None, "\t") and is_criteo_line(line):
        label = ["label"] if line.count("\t") == 39 else []
        return TextFormat(
            (*label, *CRITEO_NUMBERS, *CRITEO_IDS), "\t", False, encoding
        )
    if delimiter is None:
        delimiter = _delimiter_of(line, columns, wanted)
    record = _first_record(path, head, encoding, delimiter)
    if columns is not None:
        names = _checked_names(path, columns)
        if list(names) == record:
            return TextFormat(names, delimiter, True, encoding)
        if len(record) != len(names):
            raise DataError(
                f"{path}: line 1: found {len(record)} fields separated by "
                f"{delimiter!r}, expected {len(names)} as in `columns`"
            )
        return TextFormat(names, delimiter, False, encoding)
    if all(not field or _NUMBER.fullmatch(field) for field in record):
        raise DataError(
            f"{path}: line 1: looks like data, not like a header: "
            f"{', '.join(record)[:200]}; name the columns with `columns=[...]`"
        )
    return TextFormat(
        _checked_names(path, record, " in the header"),
        delimiter,
        True,
        encoding,
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


def _checked_names(
    path: str, names: Sequence[str], where: str = ""
) -> tuple[str, ...]:
    seen: set[str] = set()
    for number, name in enumerate(names, 1):
        if not isinstance(name, str) or not name:
            raise DataError(
                f"{path}: column {number} has no name{where}; name the columns "
                "with `columns=[...]`"
            )
        if name in seen:
            raise DataError(
                f"{path}: column {name!r} occurs twice{where}; name the columns "
                "with `columns=[...]`"
            )
        seen.add(name)
    return tuple(names)


def _head(path: str, size: int) -> bytes:
    with reading(path), open_input(path) as file:
        return file.read(size).removeprefix(b"\xef\xbb\xbf")


def _first_line(path: str, head: bytes, encoding: str) -> str:
    head = head.lstrip(b"\r\n")
    if not head:
        raise DataError(f"{path}: the file is empty")
    line = re.split(rb"\r|\n", head, maxsplit=1)[0]
    if b"\0" in line:
        raise DataError(f"{path}: line 1: is not text: found a NUL byte")
    try:
        return line.decode(encoding)
    except UnicodeDecodeError as error:
        raise DataError(
            f"{path}: line 1: byte {error.start + 1} is not {encoding}; give "
            "`encoding`, e.g. 'latin-1'"
        ) from error


def _delimiter_of(
    line: str, columns: Sequence[str] | None, wanted: Collection[str]
) -> str:
    if wanted:
        for delimiter in DELIMITERS:
            if set(wanted) <= set(_fields(line, delimiter)):
                return delimiter
    if columns is not None:
        # Try "::" first, because its fields may contain the others.
        for delimiter in ("::", *DELIMITERS[:-1]):
            if len(_fields(line, delimiter)) == len(columns):
                return delimiter
    # In a tie, a comma wins.
    return max(DELIMITERS, key=lambda d: len(_fields(line, d)))


def _fields(line: str, delimiter: str) -> list[str]:
    if len(delimiter) > 1:
        return [field.strip() for field in line.split(delimiter)]
    try:
        found = next(csv.reader([line], delimiter=delimiter), [])
    except csv.Error:
        found = line.split(delimiter)
    return [field.strip() for field in found]


def _first_record(
    path: str, head: bytes, encoding: str, delimiter: str
) -> list[str]:
    """Returns the fields of the first record, which may span lines."""
    if len(delimiter) > 1:
        return _fields(_first_line(path, head, encoding), delimiter)
    size = _HEAD_BYTES
    while True:
        text = head.decode(encoding, "replace")
        rows = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter)
        csv.field_size_limit(max(csv.field_size_limit(), _MAX_HEAD_BYTES))
        try:
            record = next(row for row in rows if row)
        except (csv.Error, StopIteration) as error:
            raise DataError(
                f"{path}: line 1: is not delimited text: {error}"
            ) from error
        if len(head) < size or rows.line_num < text.count("\n"):
            return [field.strip() for field in record]
        if size >= _MAX_HEAD_BYTES:
            raise DataError(f"{path}: line 1: is longer than {size} bytes")
        size *= 8
        head = _head(path, size)
