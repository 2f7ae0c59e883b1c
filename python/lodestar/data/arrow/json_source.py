"""Files of JSON lines as row sources."""

import contextlib
import functools
import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json
import tensorflow as tf

from lodestar._errors import DataError, reading
from lodestar._input_paths import as_input
from lodestar._library import gen_ops
from lodestar.data.arrow.file_blocks import FileBlocks
from lodestar.data.arrow.json_values import (
    ABSENT,
    as_array,
    as_sample,
    leaf_of,
    lists_of,
    lookup,
    parse_object,
)
from lodestar.data.arrow.row_source import (
    RowSource,
    columns_of,
    partitions_of,
)
from lodestar.data.binding import Binding
from lodestar.data.schema import Column
from lodestar.data.schema.domain import EXACT_BELOW

# Number of bytes to parse at a time.
_BLOCK_BYTES = 4 << 20
# Lines of a block that show the types of its columns.
_SHOWING_LINES = 50
# Lines that show the types of a file, if there is no schema.
_SAMPLE_LINES = 20_000
_MARK = b"\xef\xbb\xbf"


class JsonSource(RowSource):
    """A file with one JSON object per line.

    Integers are exact, and numbers with a fraction or an exponent are float64.
    Python's parser defines what a line holds. Arrow's parser is several times
    faster, and reads the blocks of which it is certain to give the same values.
    """

    def __init__(self, path: str):
        """Finds the blocks; raises DataError if the file has no lines."""
        self.path = path
        self.partitions = partitions_of(path)
        opened = tf.io.gfile.stat(as_input(path))
        self.num_bytes = opened.length
        with reading(path):
            index = gen_ops.lodestar_index_text(
                filename=path,
                block_bytes=_BLOCK_BYTES,
                delimiter=",",
                quote="",
                skip_lines=0,
                num_fields=0,
            )
        self.row_groups = tuple(index.records.numpy().tolist())
        if not self.num_rows:
            raise DataError(f"{path}: the file is empty")
        self._blocks = FileBlocks(path, index.offsets.numpy(), opened)
        self._lines: tuple[int, list[int]] = (-1, [])

    @functools.cached_property
    def schema(self) -> Any:
        """Types of the first lines, with a column for each dotted path."""
        return self._sample.schema

    def table(self, group: int, bindings: Sequence[Binding]) -> Any:
        """See RowSource."""
        data = self._block(group)
        columns = {binding.source: binding.column for binding in bindings}
        bad: dict[int, str] = {}
        table = self._by_arrow(data, self.row_groups[group], columns)
        if table is None:
            table, bad = self._by_python(data, columns)
        return table, bad

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

    def where(self, group: int, row: int) -> str:
        """See RowSource."""
        lines = self._lines  # another thread may replace it
        if lines[0] != group:
            first = self._blocks.first_line(group)
            found = enumerate(self._block(group).splitlines(), first)
            lines = self._lines = (group, [n for n, line in found if line])
        return f"line {lines[1][row]}"

    def _block(self, group: int) -> bytes:
        data = self._blocks.read(group)
        return data if group else data.removeprefix(_MARK)

    def _by_arrow(
        self, data: bytes, rows: int, columns: Mapping[str, Column]
    ) -> Any:
        """Returns a block's table, or None if it may not be exact."""
        stored = [name for name in columns if name not in self.partitions]
        # A key takes precedence over a dotted path or a partition.
        keys = {name for name in columns if name in self.partitions}
        for name in stored:
            parts = name.split(".")
            keys.update(".".join(parts[:i]) for i in range(2, len(parts) + 1))
        if any(quoted in data for key in keys for quoted in _quoted(key)):
            return None
        if not (_has_object_per_line(data, rows) and _is_unicode(data)):
            return None
        try:
            lines = data.split(b"\n", _SHOWING_LINES)[:_SHOWING_LINES]
            objects = [parse_object(line) for line in lines if line]
            types = {
                name: _type_of(columns[name], [_get(o, name) for o in objects])
                for name in stored
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
        return table if all(map(_is_exact, table.columns)) else None

    def _by_python(
        self, data: bytes, columns: Mapping[str, Column]
    ) -> tuple[Any, dict[int, str]]:
        """Returns a block's table, and the errors of bad rows."""
        bad = {}
        values: list[list[Any]] = [[] for _ in columns]
        for number, line in enumerate(filter(None, data.splitlines())):
            found: list[Any] = [None] * len(columns)
            try:
                row = parse_object(line)
                found = [_get(row, n, self.partitions.get(n)) for n in columns]
            except ValueError as error:
                bad[number] = str(error)
            for column_values, value in zip(values, found):
                column_values.append(value)
        arrays = []
        for (name, column), column_values in zip(columns.items(), values):
            array, wrong = as_array(column, column_values)
            arrays.append(array)
            for number, text in wrong.items():
                bad.setdefault(number, f"column {name!r}: {text}")
        return pa.table(arrays, names=list(columns)), bad

    @functools.cached_property
    def _sample(self) -> Any:
        objects: list[dict[str, Any]] = []
        for group in range(len(self.row_groups)):
            for line in filter(None, self._block(group).splitlines()):
                if len(objects) == _SAMPLE_LINES:
                    break
                try:
                    objects.append(parse_object(line))
                except ValueError:
                    continue  # an error when it is read
        columns = {}
        for name in dict.fromkeys(n for x in objects for n in _leaves(x)):
            values = []
            for found in objects:
                try:
                    values.append(_get(found, name))
                except ValueError:
                    values.append(None)  # an error when it is read
            kinds = {type(value) for value in values} - {type(None)}
            if kinds != {dict}:  # null where others have fields
                columns[name] = as_sample(name, values)
        return pa.table(columns)


def _get(found: Mapping[str, Any], name: str, absent: Any = None) -> Any:
    value = lookup(found, name)
    return absent if value is ABSENT else value


def _leaves(found: Mapping[str, Any], above: str = "") -> Iterator[str]:
    """Yields the keys of values, as dotted paths."""
    for key, value in found.items():
        if isinstance(value, dict):
            yield from _leaves(value, f"{above}{key}.")
        else:
            yield f"{above}{key}"


def _quoted(key: str) -> set[bytes]:
    """Returns the spellings of a key in JSON files."""
    texts = {json.dumps(key), json.dumps(key, ensure_ascii=False)}
    # pandas escapes slashes.
    texts |= {text.replace("/", "\\/") for text in texts}
    return {text.encode() for text in texts}


def _occurs(data: bytes, name: str) -> bool:
    """Returns whether a line has a key or a dotted path."""
    ends = {q for key in (name, name.split(".")[-1]) for q in _quoted(key)}
    if not any(end in data for end in ends):
        return False
    for line in data.splitlines():
        if any(end in line for end in ends):
            with contextlib.suppress(ValueError):
                if lookup(parse_object(line), name) is not ABSENT:
                    return True
    return False


def _has_object_per_line(data: bytes, rows: int) -> bool:
    """Returns whether `rows` objects, if no more, are on a line each."""
    # After an object in another one follows a comma or a bracket.
    ends = data.count(b"}\n{") or data.count(b"}\r\n{")
    is_whole = data.startswith(b"{") and data[-3:].rstrip().endswith(b"}")
    return is_whole and ends == rows - 1


def _is_unicode(data: bytes) -> bool:
    try:
        return data.isascii() or bool(data.decode())
    except UnicodeDecodeError:
        return False


def _type_of(column: Column, values: list[Any]) -> Any:
    """Returns the type for Arrow's parser; raises ValueError if there is none."""
    array, bad = as_array(column, values)
    leaf, depth = leaf_of(array.type)
    if bad or pa.types.is_union(leaf) or pa.types.is_decimal(leaf):
        raise ValueError("Arrow's parser has no type for all values.")
    is_float = column.dtype == "float"
    if pa.types.is_integer(leaf) and is_float:
        leaf = pa.float64()
    elif pa.types.is_null(leaf):
        is_text = column.encoding != "int" or column.positive or column.unit
        leaf = pa.string() if is_text else pa.int64()
        if is_float:
            leaf = pa.float64()
    return lists_of(leaf, depth)


def _nested(types: Mapping[str, Any]) -> Any:
    """Returns the schema of columns, those with dotted paths inside structs."""
    fields: dict[str, Any] = {}
    inside: dict[str, dict[str, Any]] = {}
    for name, arrow_type in types.items():
        top, dot, rest = name.partition(".")
        if dot:
            inside.setdefault(top, {})[rest] = arrow_type
        else:
            fields[name] = arrow_type
    if not fields.keys().isdisjoint(inside):
        raise ValueError("A column is both a value and an object.")
    fields.update((top, pa.struct(_nested(t))) for top, t in inside.items())
    return pa.schema(list(fields.items()))


def _is_exact(column: Any) -> bool:
    """Returns whether no float is NaN, or may be a rounded integer."""
    for chunk in column.chunks:
        while pa.types.is_list(chunk.type):
            chunk = chunk.flatten()
        if pa.types.is_floating(chunk.type):
            is_small = pc.less(pc.abs(chunk), EXACT_BELOW[64])  # NaN is not
            if pc.all(is_small).as_py() is False:
                return False
    return True
