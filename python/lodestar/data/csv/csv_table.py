"""CsvTable: CSV and TSV files as columns of slots."""

import itertools
import re
import warnings
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from lodestar._checks import is_integer
from lodestar._errors import DataError
from lodestar._formats import ID_FORMS
from lodestar.data.csv.csv_columns import CsvColumns, as_number
from lodestar.data.csv.csv_reader import DELIMITERS, CsvReader
from lodestar.data.csv.csv_writer import column_names
from lodestar.data.csv.hashing import hash_ids
from lodestar.data.input_bytes import open_input
from lodestar.data.sample_columns import lengths, num_rows, take
from lodestar.data.schema import Column, Schema
from lodestar.data.skipped_records import SkippedRecords
from lodestar.data.source import Source

MISSING = ("", "?")
# The columns of Criteo's click logs, which have no header.
CRITEO_NUMBERS = [f"I{i}" for i in range(1, 14)]
CRITEO_IDS = [f"C{i}" for i in range(1, 27)]
CRITEO_COLUMNS = ["label", *CRITEO_NUMBERS, *CRITEO_IDS]
_CRITEO_LINE = re.compile(
    r"[01](\t(-?[0-9]+)?){13}(\t([0-9a-fA-F]{8})?){26}[\r\n]*", re.ASCII
)
# Python converts no more than 4300 digits.
_INTEGER = re.compile("-?[0-9]{1,4000}", re.ASCII)
_HEX = re.compile("(0[xX])?[0-9a-fA-F]+", re.ASCII)
# Rows read at a time, fewer where they have many fields.
_CHUNK_ROWS = 2048
_CHUNK_CELLS = 1 << 20
# Distinct label texts kept to show and to compare.
_MAX_LABEL_TEXTS = 1000
# Numbers below round to a float32 that is finite.
_FLOAT_LIMIT = float(np.finfo(np.float32).max) * (1 + 2.0**-25)

Row = tuple[int, list[str]]  # line number, fields
Faults = dict[int, str]  # of a chunk: row -> its first column that is bad, why


def parse_label(text: str) -> tuple[str, str | None]:
    """Splits `COLUMN[=POSITIVE]` at the first `=`.

    >>> parse_label("Salary=>50K")
    ('Salary', '>50K')
    """
    if not isinstance(text, str):
        advice = f"; name the column {str(text)!r}" if is_integer(text) else ""
        raise DataError(
            "the label must be a string, COLUMN or COLUMN=POSITIVE, found "
            f"{text!r}{advice}"
        )
    column, found, positive = text.partition("=")
    if not column or (found and not positive):
        raise DataError(
            f"the label must be COLUMN or COLUMN=POSITIVE, found {text!r}"
        )
    return column, positive if found else None


def is_criteo_line(line: str) -> bool:
    """Whether a line is one of Criteo's logs: label, 13 integers, 26 hex ids."""
    return _CRITEO_LINE.fullmatch(line) is not None


class CsvTable(Source):
    """CSV files whose columns are slots.

    Without `schema` the files are read once to see which columns are numbers,
    see `CsvColumns`: those become dense slots, the others id slots.
    """

    in_bytes = True

    def __init__(
        self,
        paths: Sequence[str],
        schema: Schema | None = None,
        skipped: SkippedRecords | None = None,
        on_progress: Callable[[int], None] | None = None,
        *,
        label: str | None = None,
        delimiter: str | None = None,
        categorical: Collection[str] = (),
        numeric: Collection[str] = (),
        missing: Collection[str] = MISSING,
        ids: str | None = None,
    ):
        """Finds the slots.

        Args:
            paths: The files, all of the same columns.
            schema: Their slots, if known.
            skipped: Where to note rows that are left out; None raises an
                error for the first.
            on_progress: Called with the number of bytes of each piece read.
            label: `COLUMN[=POSITIVE]`; None is the column "label", or with
                `schema` as they say.
            delimiter: None finds it in the header.
            categorical: Columns that are ids.
            numeric: Columns that are numbers.
            missing: Texts that stand for a missing value.
            ids: One of `ID_FORMS`; None is "int" with `schema`, "hash" without.

        Raises:
            DataError: As `convert_csv`.
        """
        # Without slots they are found below.
        spec: Any = schema
        super().__init__(paths, spec, skipped, on_progress)
        self._delimiter = delimiter
        self._missing = frozenset(missing)
        self._positive: str | None = None
        self._inferred = schema is None
        if delimiter is None and schema is not None:
            self._delimiter = _delimiter_of(paths[0], schema)
        if ids is None:
            ids = "hash" if schema is None else "int"
        self._ids = ids
        if self._ids not in ID_FORMS:
            raise DataError(f"`ids`={self._ids!r} is not in {ID_FORMS}")
        reader = self._reader(paths[0])
        self._columns = reader.columns
        if schema is not None and not (categorical or numeric):
            self._check_columns(reader, schema)
            if label is not None:
                self._label_column(reader, label)
            return
        if schema is not None:
            raise DataError(
                "`schema` says what each column is, and so would `categorical` "
                "and `numeric`"
            )
        name = self._label_column(reader, label)
        _check_kinds(reader, name, categorical, numeric)
        categorical, numeric = set(categorical), set(numeric)
        if self._columns == CRITEO_COLUMNS:
            categorical |= set(CRITEO_IDS) - numeric
            numeric |= set(CRITEO_NUMBERS) - categorical
        found, is_binary = self._find_numeric(paths, name, categorical, numeric)
        self.spec = Schema(
            [
                Column.label(name)
                if is_binary
                else Column.label(name, dtype="float", binary=False)
            ]
            + [
                Column.dense(column)
                if column in found
                else Column.sparse(column)
                for column in self._columns
                if column != name
            ]
        )

    def size(self, path: str) -> int | None:
        """A file's bytes, if they are known and are what is read."""
        if path.endswith(".gz"):
            return None
        return tf.io.gfile.stat(path).length

    def batches(self, path: str) -> Iterator[dict[str, Any]]:
        """The columns of a file as `SampleWriter.write_batch` takes them."""
        reader = self._reader(path)
        rows = reader.rows(self._skipped.add if self._skipped else None)
        for chunk in _chunks(rows, len(self._columns)):
            columns = self._parsed(reader, chunk)
            if num_rows(columns):
                yield columns
        if reader.ends_without_newline and not self._inferred:
            warnings.warn(_cut_text(reader), stacklevel=2)

    def _reader(self, path: str) -> CsvReader:
        names, delimiter = None, self._delimiter
        if delimiter in (None, "\t") and _is_criteo(path):
            names, delimiter = CRITEO_COLUMNS, "\t"
        reader = CsvReader(
            path,
            delimiter=delimiter,
            columns=names,
            on_progress=self._on_progress,
        )
        if self._delimiter is None:
            self._delimiter = reader.delimiter
        columns = getattr(self, "_columns", reader.columns)
        if reader.columns != columns:
            raise DataError(
                f"{path}:1: the columns are {', '.join(reader.columns)}, "
                f"wanted {', '.join(columns)} as in the first file"
            )
        return reader

    def _label_column(self, reader: CsvReader, label: str | None) -> str:
        if label is None:
            if "label" not in reader.columns:
                raise DataError(
                    f"{reader.path}: which column is the label? Name it in "
                    f"`label`; the columns are {', '.join(reader.columns)}"
                )
            label = "label"
        name = label
        if label not in reader.columns:  # where a name may hold "=" itself
            name, self._positive = parse_label(label)
        reader.column_index(name)
        return name

    def _check_columns(self, reader: CsvReader, schema: Schema) -> None:
        wanted = [name for slot in schema for name in column_names(slot)]
        for name in wanted:
            reader.column_index(name)
        known = set(wanted)
        for name in reader.columns:
            if name not in known:
                raise DataError(
                    f"{reader.path}: no slot has the column '{name}'; the "
                    f"slots are {', '.join(schema.names())}"
                )

    def _find_numeric(
        self,
        paths: Sequence[str],
        label: str,
        categorical: set[str],
        numeric: set[str],
    ) -> tuple[set[str], bool]:
        """Finds the columns of numbers, and whether all labels are 0 or 1.

        Checks all labels.
        """
        label_at = self._columns.index(label)
        given = {label, *categorical, *numeric}
        open_at = [i for i, c in enumerate(self._columns) if c not in given]
        names = [self._columns[i] for i in open_at]
        columns = CsvColumns(names, self._missing)
        texts = _LabelTexts()
        num_positive = 0
        is_binary = True
        for path in paths:
            reader = self._reader(path)
            good = self._good_rows(reader, label, numeric)
            for rows in _chunks(good, len(self._columns)):
                columns.add([fields[i] for _, fields in rows] for i in open_at)
                for _, fields in rows:
                    text = fields[label_at]
                    texts.add(text)
                    value = self._label(text)
                    num_positive += value == 1
                    is_binary = is_binary and value in (0, 1)
            if reader.ends_without_newline:
                # Valid CSV, but also what a file cut within its last field is.
                cut = _cut_text(reader)
                if self._positive is not None and texts.last_is_odd():
                    raise DataError(f"{cut}: its label occurs in no other line")
                warnings.warn(cut, stacklevel=4)
        if self._positive is not None and num_positive == 0:
            raise DataError(
                f"{paths[0]}: column '{label}': no label is "
                f"{self._positive!r}; found {texts.some()}"
            )
        for note in columns.notes():
            warnings.warn(f"{paths[0]}: {note}", stacklevel=4)
        found = zip(names, columns.numeric(), strict=True)
        numbers = {name for name, is_number in found if is_number}
        return numeric | numbers, is_binary

    def _good_rows(
        self, reader: CsvReader, label: str, numeric: set[str]
    ) -> Iterator[Row]:
        """The rows whose label, and what must be a number, is valid."""
        parsers = {label: self._label} | dict.fromkeys(numeric, self._number)
        checked = [
            (i, name, parsers[name])
            for i, name in enumerate(self._columns)
            if name in parsers
        ]
        # What is left out is told when it is read again.
        skipped = self.quiet()._skipped
        for line, fields in reader.rows(skipped.add if skipped else None):
            faults: Faults = {}
            for i, name, parse in checked:
                _parse_all(parse, [fields[i]], name, faults)
            if not faults:
                yield line, fields
            elif skipped is None:
                raise DataError(f"{reader.path}:{line}: {faults[0]}")

    def _parsed(self, reader: CsvReader, chunk: list[Row]) -> dict[str, Any]:
        """The columns of the good rows; the others are told or raised."""
        faults: Faults = {}
        cells = dict(zip(reader.columns, zip(*(fields for _, fields in chunk))))
        columns = {
            slot.name: self._column(
                slot, [cells[name] for name in column_names(slot)], faults
            )
            for slot in self.spec
        }
        for ids, weights in self.spec.weights.items():
            found, wanted = lengths(columns[weights]), lengths(columns[ids])
            for row in np.flatnonzero(found != wanted).tolist():
                _add(
                    faults,
                    row,
                    weights,
                    f"has {found[row]} values, wanted {wanted[row]}, one for "
                    f"each id of column '{ids}'",
                )
        if not faults:
            return columns
        for row in sorted(faults):
            text = f"{reader.path}:{chunk[row][0]}: {faults[row]}"
            if self._skipped is None:
                raise DataError(text)
            self._skipped.add(text)
        good = np.setdiff1d(np.arange(len(chunk)), list(faults))
        return take(columns, good)

    def _column(
        self, slot: Column, cells: list[Sequence[str]], faults: Faults
    ) -> Any:
        is_ids = slot.kind == "sparse" and slot.dtype != "float"
        if is_ids and self._ids == "hash":
            return self._hashed(slot, cells[0])
        parse = self._parser(slot)
        if slot.num_values is not None:
            values = [_parse_all(parse, c, slot.name, faults) for c in cells]
            return np.array(values, _dtype(slot)).T.reshape(-1, *slot.shape)
        column = self._lists(slot, parse, cells[0], faults)
        found = lengths(column)
        for row in np.flatnonzero(found % slot.multiple).tolist():
            _add(
                faults,
                row,
                slot.name,
                f"has {found[row]} values, wanted a multiple of {slot.multiple}",
            )
        return column

    def _hashed(
        self, slot: Column, texts: Sequence[str]
    ) -> tuple[np.ndarray, np.ndarray]:
        present = [text not in self._missing for text in texts]
        ids = hash_ids(slot.name, list(itertools.compress(texts, present)))
        return ids, np.concatenate([[0], np.cumsum(present)])

    def _lists(
        self,
        slot: Column,
        parse: Callable[[str], Any],
        texts: Sequence[str],
        faults: Faults,
    ) -> tuple[np.ndarray, np.ndarray]:
        """Cells of several numbers: values and row_splits."""
        cells = [
            () if text in self._missing else text.split() for text in texts
        ]

        def parse_cell(words: Sequence[str]) -> list[Any]:
            return [parse(word) for word in words]

        parsed = _parse_all(parse_cell, cells, slot.name, faults, bad=())
        values = list(itertools.chain.from_iterable(parsed))
        splits = np.concatenate([[0], np.cumsum([len(p) for p in parsed])])
        return np.array(values, _dtype(slot)), splits

    def _parser(self, slot: Column) -> Callable[[str], Any]:
        """What parses a value of a slot; ValueError says what is wrong."""
        is_float = slot.dtype == "float"
        parse = self._typed_float if is_float else _integer
        if slot.kind == "sparse" and self._ids == "hex" and not is_float:
            return _hex
        if slot.kind == "dense" and slot.num_values is not None:
            return self._float if is_float else self._dense_id
        if slot.kind == "one_hot":
            wanted = f"a whole number from 0 to {slot.size - 1}"
            return _within(_integer, lambda v: v < slot.size, wanted)
        if slot.kind == "label":
            if self._positive is not None or self._inferred:
                parse = self._label
            if slot.binary:
                return _within(parse, lambda v: v in (0, 1), "0 or 1")
        return parse

    def _label(self, text: str) -> float:
        if self._positive is not None:
            if not text:
                raise ValueError(f"the label is {text!r}, wanted a value")
            return float(text in (self._positive, self._positive + "."))
        value = as_number(text)
        if value is not None and abs(value) < _FLOAT_LIMIT:
            return value
        wanted = "a finite number"
        if value is None and text not in self._missing:
            wanted = "a number; `label`='COLUMN=POSITIVE' says which text is 1"
        raise ValueError(f"the label is {text!r}, wanted {wanted}")

    def _number(self, text: str) -> None:
        """Checks a cell of a column that is to be numbers."""
        if text not in self._missing and as_number(text) is None:
            raise ValueError(f"{text!r} is not a number")

    def _float(self, text: str) -> float:
        if text in self._missing:
            return 0.0
        if not self._inferred:
            return self._typed_float(text)
        value = as_number(text)
        if value is None or not abs(value) < _FLOAT_LIMIT:
            raise ValueError(f"{text!r} is not a finite float32")
        return value

    def _typed_float(self, text: str) -> float:
        value = as_number(text)
        if value is None or _FLOAT_LIMIT <= abs(value) < np.inf:
            raise ValueError(f"{text!r} is not a float32")
        return value

    def _dense_id(self, text: str) -> int:
        return 0 if text in self._missing else _integer(text)


class _LabelTexts:
    """The distinct texts of the labels, up to a number of them."""

    def __init__(self) -> None:
        self._texts: set[str] = set()
        self._last_is_new = False

    def add(self, text: str) -> None:
        self._last_is_new = text not in self._texts
        if self._last_is_new and len(self._texts) < _MAX_LABEL_TEXTS:
            self._texts.add(text)

    def last_is_odd(self) -> bool:
        """Whether the last one was no other's, and one too many."""
        return self._last_is_new and len(self._texts) > 2

    def some(self) -> str:
        return ", ".join(map(repr, sorted(self._texts)[:5]))


def _is_criteo(path: str) -> bool:
    if tf.io.gfile.isdir(path):
        return False
    try:
        with open_input(path) as file:
            return is_criteo_line(file.readline(1000).decode())
    except (UnicodeDecodeError, DataError, tf.errors.OpError):
        return False  # reading it will say what is wrong


def _delimiter_of(path: str, schema: Schema) -> str | None:
    """The delimiter with which the header has the slots' columns, if any."""
    wanted = {name for slot in schema for name in column_names(slot)}
    for delimiter in DELIMITERS:
        try:
            columns = CsvReader(path, delimiter=delimiter).columns
        except DataError:
            continue
        if wanted <= set(columns):
            return delimiter
    return None


def _check_kinds(
    reader: CsvReader,
    label: str,
    categorical: Collection[str],
    numeric: Collection[str],
) -> None:
    for name in (*categorical, *numeric):
        reader.column_index(name)
        if name == label:
            raise DataError(f"column '{name}' is the label")
    for name in categorical:
        if name in numeric:
            raise DataError(f"column '{name}' is both categorical and numeric")


def _cut_text(reader: CsvReader) -> str:
    return (
        f"{reader.path}:{reader.line_number}: the last line has no newline at "
        "its end, so the file may be cut short"
    )


def _chunks(rows: Iterator[Row], num_columns: int) -> Iterator[list[Row]]:
    most = max(1, min(_CHUNK_ROWS, _CHUNK_CELLS // num_columns))
    while chunk := list(itertools.islice(rows, most)):
        yield chunk


def _dtype(slot: Column) -> type:
    return np.float64 if slot.dtype == "float" else np.uint64


def _integer(text: str) -> int:
    """An integer of 64 bits, with or without sign, as its bits without."""
    if _INTEGER.fullmatch(text) and -(2**63) <= int(text) < 2**64:
        return int(text) % 2**64
    raise ValueError(f"{text!r} is not an integer of 64 bits")


def _hex(text: str) -> int:
    if _HEX.fullmatch(text) and int(text, 16) < 2**64:
        return int(text, 16)
    raise ValueError(f"{text!r} is not a hexadecimal number of 64 bits")


def _add(faults: Faults, row: int, column: str, text: str) -> None:
    faults.setdefault(row, f"column '{column}': {text}")


def _parse_all(
    parse: Callable[[Any], Any],
    cells: Iterable[Any],
    column: str,
    faults: Faults,
    bad: Any = 0,
) -> list[Any]:
    """The values of cells, `bad` where one is."""
    values = []
    for cell in cells:
        try:
            values.append(parse(cell))
        except ValueError as error:
            _add(faults, len(values), column, str(error))
            values.append(bad)
    return values


def _within(
    parse: Callable[[str], Any], good: Callable[[Any], bool], wanted: str
) -> Callable[[str], Any]:
    def checked(text: str) -> Any:
        value = parse(text)
        if not good(value):
            raise ValueError(f"is {text!r}, wanted {wanted}")
        return value

    return checked
