"""Files of JSON lines as row sources."""

import contextlib
import functools
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json

from lodestar._errors import DataError
from lodestar.data.arrow.file_source import LineSource
from lodestar.data.arrow.row_source import columns_of
from lodestar.data.binding import Binding
from lodestar.schema import Column
from lodestar.schema.domain import EXACT_BELOW
from lodestar.schema.json_text import (
    JsonNumber,
    check_leaf,
    fault,
    leaf_text,
    map_leaves,
    parse_json,
)
from lodestar.schema.schema import NA_VALUES

# Lines of a block that show the types of its columns.
_SHOWING_LINES = 50
# Lines that show the types of a file, if there is no schema.
_SAMPLE_LINES = 20_000
_MARK = b"\xef\xbb\xbf"
_ABSENT: Any = object()
_ESCAPED_KEY = re.compile(rb'\\.[^"\\]*"\s*:', re.DOTALL)
# Arrow types that hold values of one kind exactly.
_TYPES: Mapping[frozenset[type], Sequence[Any]] = {
    frozenset(): [pa.null()],
    frozenset({bool}): [pa.bool_()],
    frozenset({int}): [pa.int64(), pa.uint64()],
    frozenset({str}): [pa.string()],
}


class JsonSource(LineSource):
    """A file with one JSON object per line.

    Values of several kinds, and numbers that no type holds exactly, are read as their
    text. Python's parser defines the values of a line. Arrow's parser is several times
    faster, and reads the blocks in which it certainly finds the same values.
    """

    def __init__(self, path: str, na_values: Collection[str] = NA_VALUES):
        """Finds the blocks; raises DataError if the file has no lines."""
        super().__init__(path)
        self._na_values = frozenset(na_values)
        if not self.num_rows:
            raise DataError(f"{path}: the file is empty")

    @functools.cached_property
    def schema(self) -> Any:
        """Types of the first lines, with a column for each dotted path."""
        return self._sample.schema

    def table(
        self, group: int, bindings: Sequence[Binding]
    ) -> tuple[Any, dict[int, str]]:
        """See RowSource. A key of a line takes precedence over a partition."""
        columns = {binding.source: binding.column for binding in bindings}
        data = self._block(group)
        table = self._by_arrow(data, self.row_groups[group], columns)
        return self._by_python(data, columns) if table is None else (table, {})

    def head(self, names: Sequence[str], rows: int) -> Any:
        """See RowSource."""
        return self._sample.select(names).slice(0, rows)

    def check_names(self, names: Collection[str]) -> None:
        """See RowSource."""
        if self.missing(names):
            super().check_names(names)  # raises an error with all columns

    def missing(self, names: Collection[str]) -> list[str]:
        """See RowSource."""
        left = [name for name in names if name not in self.partitions]
        for group in range(len(self.row_groups)):
            if not left:
                break
            data = self._block(group)
            left = [name for name in left if not _occurs(data, name)]
        return left

    def _record_lines(self, group: int) -> list[int]:
        first = self._first_line(group)
        found = enumerate(self._block(group).splitlines(), first)
        return [number for number, line in found if line]

    def _block(self, group: int) -> bytes:
        data = super()._block(group)
        return data if group else data.removeprefix(_MARK)

    def _by_arrow(
        self, data: bytes, rows: int, columns: Mapping[str, Column]
    ) -> Any:
        """Returns a block's table, or None if it may not be exact."""
        # A key takes precedence over a dotted path or a partition.
        keys = [
            key
            for name in columns
            for key in _prefixes(name)
            if "." in key or name in self.partitions
        ]
        if keys and _may_have(data, keys):
            return None
        # Within an object, a comma or a bracket would follow. Lines with as many
        # objects in all have one each.
        if data.count(b"}\n{") + data.count(b"}\r\n{") != rows - 1:
            return None
        try:
            data.isascii() or data.decode()
            lines = data.split(b"\n", _SHOWING_LINES)[:_SHOWING_LINES]
            objects = [_parse_object(line) for line in lines if line]
            types = {
                name: _Cells(column, _values(objects, name)[0]).parsed_type()
                for name, column in columns.items()
                if name not in self.partitions
            }
            table = pa.json.read_json(
                pa.BufferReader(data),
                pa.json.ReadOptions(
                    use_threads=False, block_size=max(len(data) + 1, 1 << 10)
                ),
                pa.json.ParseOptions(
                    explicit_schema=_nested(types),
                    unexpected_field_behavior="ignore",
                ),
            )
        except (ValueError, pa.ArrowException):
            return None
        if table.num_rows != rows:
            return None
        table = columns_of(table, list(columns), self.partitions)
        chunks = (chunk for column in table.columns for chunk in column.chunks)
        return table if all(map(_is_exact, chunks)) else None

    def _by_python(
        self, data: bytes, columns: Mapping[str, Column]
    ) -> tuple[Any, dict[int, str]]:
        """Returns a block's table, and the errors of bad rows."""
        bad = {}
        rows: list[dict[str, Any]] = []
        for number, line in enumerate(filter(None, data.splitlines())):
            try:
                rows.append(_parse_object(line))
            except ValueError as error:
                rows.append({})
                bad[number] = str(error)
        arrays = []
        for name, column in columns.items():
            values, wrong = _values(rows, name, self.partitions.get(name))
            cells = _Cells(column, values)
            arrays.append(cells.array(self._na_values))
            for number, text in {**cells.bad, **wrong}.items():
                bad.setdefault(number, f"column {name!r}: {text}")
        return pa.table(arrays, names=list(columns)), bad

    @functools.cached_property
    def _sample(self) -> Any:
        objects: list[dict[str, Any]] = []
        for group in range(len(self.row_groups)):
            for line in filter(None, self._block(group).splitlines()):
                if len(objects) == _SAMPLE_LINES:
                    break
                with contextlib.suppress(ValueError):  # raised when it is read
                    objects.append(_parse_object(line))
        columns = {}
        for name in dict.fromkeys(n for x in objects for n in _leaves(x)):
            values, _ = _values(objects, name)
            if {type(value) for value in values} - {type(None)} == {dict}:
                continue  # null where others have fields
            lists = [value for value in values if isinstance(value, list)]
            depth = 1 + any(isinstance(x, list) for of in lists for x in of)
            cells = _Cells(
                Column.sparse(name, dtype="float", depth=depth), values
            )
            columns[name] = cells.array()
            if any(isinstance(values[row], (dict, list)) for row in cells.bad):
                columns[name] = pa.nulls(len(values), pa.list_(pa.struct([])))
        return pa.table(columns)


class _Cells:
    """The values of a column in some lines, None for those in `bad`.

    Attributes:
        bad: Maps the indices of values that the column cannot have to errors.
    """

    def __init__(self, column: Column, values: Iterable[Any]):
        self.bad: dict[int, str] = {}
        self._column = column
        self._kinds: set[type] = set()
        depth = 0 if column.kind == "one_hot" else column.depth
        is_list = depth > 1 or column.kind == "dense" and column.num_values != 1
        is_list |= any(isinstance(value, list) for value in values)
        self._depth = depth if is_list else 0
        if self._depth == 1:
            values = [
                x if x is None or isinstance(x, list) else [x] for x in values
            ]
        self._values = self._converted(values, self._checked)

    def array(self, na_values: Collection[str] = ()) -> Any:
        """Returns the values as an Arrow array of a type that holds them exactly."""
        for leaf in _TYPES.get(frozenset(self._kinds), ()):
            with contextlib.suppress(OverflowError, pa.ArrowInvalid):
                return pa.array(self._values, self._type(leaf))
        if self._are_numbers():
            floats = self._converted(self._values, float)
            array = pa.array(floats, self._type(pa.float64()))
            if _is_exact(array):
                return array

        split = self._column.separator

        def text_of(value: Any) -> str:
            if type(value) is str:
                return value
            if isinstance(value, bool) and self._column.encoding == "hash":
                value = int(value)  # as in a column of booleans
            text = leaf_text(value)
            if text in na_values or split is not None and split in text:
                raise ValueError(
                    f"found {text} among other kinds of values, as text of which "
                    "`na_values` or `separator` would change its meaning"
                )
            return text

        texts = self._converted(self._values, text_of)
        return pa.array(texts, self._type(pa.string()))

    def parsed_type(self) -> Any:
        """Returns the type for Arrow's parser, which refuses values of others."""
        column = self._column
        if column.dtype == "float" and self._are_numbers():
            return self._type(pa.float64())
        if self._kinds:
            return self.array().type
        is_text = column.encoding != "int" or column.positive or column.unit
        return self._type(pa.string() if is_text else pa.int64())

    def _are_numbers(self) -> bool:
        is_text = self._column.encoding != "int" or self._column.positive
        return not is_text and self._kinds <= {int, JsonNumber}

    def _type(self, leaf: Any) -> Any:
        for _ in range(self._depth):
            leaf = pa.list_(leaf)
        return leaf

    def _checked(self, value: Any) -> Any:
        self._kinds.add(type(check_leaf(value, self._column)))
        return value

    def _converted(self, values: Iterable[Any], convert: Any) -> list[Any]:
        found = []
        for row, value in enumerate(values):
            try:
                value = map_leaves(value, self._depth, convert)
            except ValueError as error:
                value, self.bad[row] = None, str(error)
            found.append(value)
        return found


def _parse_object(line: bytes) -> dict[str, Any]:
    """Parses a line; raises ValueError, with the reason, unless it is an object."""
    try:
        found = parse_json(line.decode())
    except UnicodeDecodeError as error:
        raise ValueError(
            f"found the byte 0x{line[error.start]:02x}, which is not utf-8"
        ) from error
    if not isinstance(found, dict):
        raise fault(found, "a JSON object")
    return found


def _prefixes(name: str) -> list[str]:
    """Returns a dotted path and its parts from the first on, the longest first."""
    parts = name.split(".")
    return [".".join(parts[:end]) for end in range(len(parts), 0, -1)]


def _lookup(row: Mapping[str, Any], name: str, absent: Any) -> Any:
    """Returns the value of a key, else of a dotted path, else `absent`.

    Raises ValueError if the path leads through another value than an object.
    """
    top = next((key for key in _prefixes(name) if key in row), None)
    if top is None:
        return absent
    value = row[top]
    for key in name[len(top) + 1 :].split(".") if top != name else ():
        if value is None:
            return absent
        if not isinstance(value, dict):
            raise fault(value, f"an object with the key {key!r}")
        if key not in value:
            return absent
        value = value[key]
    return value


def _values(
    rows: Sequence[Mapping[str, Any]], name: str, absent: Any = None
) -> tuple[list[Any], dict[int, str]]:
    """Returns the values of a column, and the errors of bad rows."""
    values, bad = [], {}
    for number, row in enumerate(rows):
        value = None
        try:
            value = _lookup(row, name, absent)
        except ValueError as error:
            bad[number] = str(error)
        values.append(value)
    return values, bad


def _leaves(found: Mapping[str, Any], above: str = "") -> Iterator[str]:
    """Yields the keys of values, as dotted paths."""
    for key, value in found.items():
        if isinstance(value, dict):
            yield from _leaves(value, f"{above}{key}.")
        else:
            yield f"{above}{key}"


def _may_have(data: bytes, keys: Iterable[str]) -> bool:
    """Returns whether one of the keys, or any with an escape, may be in data."""
    if any(f'"{key}"'.encode() in data for key in keys):
        return True
    return _ESCAPED_KEY.search(data) is not None


def _occurs(data: bytes, name: str) -> bool:
    """Returns whether a line has a key or a dotted path."""
    keys = (name, name.rpartition(".")[2])
    for line in data.splitlines() if _may_have(data, keys) else ():
        if _may_have(line, keys):
            with contextlib.suppress(ValueError):
                found = _parse_object(line)
                if _lookup(found, name, _ABSENT) is not _ABSENT:
                    return True
    return False


def _nested(types: Mapping[str, Any]) -> Any:
    """Returns the schema of columns, those with dotted paths inside structs."""
    inside: dict[str, dict[str, Any]] = {}
    for name in types:
        top, dot, rest = name.partition(".")
        if dot:
            inside.setdefault(top, {})[rest] = types[name]
    if inside.keys() & types.keys():
        raise ValueError("A column is both a value and an object.")
    fields = [(name, t) for name, t in types.items() if "." not in name]
    return pa.schema(
        fields + [(top, pa.struct(_nested(t))) for top, t in inside.items()]
    )


def _is_exact(array: Any) -> bool:
    """Returns whether no float is NaN, or may be a rounded integer."""
    while pa.types.is_list(array.type):
        array = array.flatten()
    if not pa.types.is_floating(array.type):
        return True
    is_small = pc.less(pc.abs(array), EXACT_BELOW[64])  # NaN is not
    return pc.all(is_small).as_py() is not False
