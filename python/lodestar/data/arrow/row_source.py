"""RowSource: random access to groups of rows."""

import functools
import urllib.parse
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lodestar._errors import DataError
from lodestar._input_bytes import ChangedFileError
from lodestar.data.arrow.decode import Rows, decode_rows
from lodestar.data.arrow.faults import Faults
from lodestar.data.binding import Binding
from lodestar.data.sample_columns import lengths
from lodestar.schema import Column
from lodestar.schema.arrow_types import is_text
from lodestar.schema.column import ERROR
from lodestar.schema.schema import NA_VALUES

# The part of the rows is exact in each run of so many.
_SPLIT_ROWS = 1 << 16
_HIVE_NULL = "__HIVE_DEFAULT_PARTITION__"


class RowSource:
    """A file or a table in memory, read by row group.

    Attributes:
        path: Name of the source in errors.
        num_bytes: Size of the file when it was opened; -1 for a table.
        row_groups: Number of rows of each group.
        schema: A `pyarrow.Schema`.
        partitions: Values of Hive partition columns, None for null. They are
            string columns, unless the file has a column of that name.
    """

    path: str
    num_bytes: int = -1
    row_groups: tuple[int, ...]
    schema: Any
    partitions: Mapping[str, str | None] = {}

    def table(
        self, group: int, bindings: Sequence[Binding]
    ) -> tuple[Any, dict[int, str]]:
        """Returns the bound columns of a group as a `pyarrow.Table`.

        Columns are named by the sources of the bindings. The second return value
        maps the indices of rows that cannot be parsed to error messages.

        Raises:
            DataError: The group cannot be read.
        """
        columns = {binding.source: binding.column for binding in bindings}
        stored = {
            name: column
            for name, column in columns.items()
            if name not in self.partitions or name in self._stored
        }
        table, bad = self._read(group, stored)
        if not stored:
            table = pa.table({"": pa.nulls(self.row_groups[group])})
        return columns_of(table, list(columns), self.partitions), bad

    def _read(
        self, group: int, columns: Mapping[str, Column]
    ) -> tuple[Any, dict[int, str]]:
        """Returns a table with these columns, and perhaps others; see `table`.

        Columns that only the path has are not among them. A dotted name may be a
        field of a column of the table. Sources implement this or `table`.
        """
        raise NotImplementedError

    def head(self, names: Sequence[str], rows: int) -> Any:
        """Returns columns of the first good rows to infer a schema, at most `rows`."""
        # Hashed columns keep the values of any source.
        bindings = [
            Binding(Column.sparse(name, encoding="hash"), name)
            for name in names
        ]
        tables: list[Any] = []
        for group, size in enumerate(self.row_groups):
            if size and rows > 0:
                table, bad = self.table(group, bindings)
                if bad:
                    table = table.take(np.setdiff1d(np.arange(size), list(bad)))
                tables.append(table.slice(0, rows))
                rows -= tables[-1].num_rows
        return pa.concat_tables(tables)

    def where(self, group: int, row: int) -> str:
        """Returns the name of a row in errors."""
        return f"row {sum(self.row_groups[:group]) + row}"

    @property
    def num_rows(self) -> int:
        """Number of rows in all groups."""
        return sum(self.row_groups)

    @functools.cached_property
    def types(self) -> dict[str, Any]:
        """Maps column names, and dotted paths of fields, to Arrow types."""
        partitions = dict.fromkeys(self.partitions, pa.string())
        return {**partitions, **self._stored}

    @property
    def leaves(self) -> list[str]:
        """The names of stored columns, with the fields of structs instead of them."""
        return [
            name
            for name, arrow_type in self._stored.items()
            if not pa.types.is_struct(arrow_type)
        ]

    @functools.cached_property
    def _stored(self) -> dict[str, Any]:
        """`types` without partitions."""
        found: dict[str, Any] = {}
        for field in self.schema:
            _add_types(found, field.name, field.type)
        # A column takes precedence over a field with the same dotted name.
        found.update(zip(self.schema.names, self.schema.types))
        return found

    def missing(self, names: Collection[str]) -> list[str]:
        """Returns the names that are neither columns nor fields."""
        return [name for name in names if name not in self.types]

    def check_names(self, names: Collection[str]) -> None:
        """Raises DataError unless the source has each column exactly once."""
        counts: dict[str, int] = {}
        for name in self.schema.names:
            counts[name] = counts.get(name, 0) + 1
        missing = self.missing(names)
        if missing:
            raise DataError(
                f"{self.path}: has no column {', '.join(map(repr, missing[:5]))}"
                f"{', ...' if len(missing) > 5 else ''}; its columns are "
                f"{_some([*self.schema.names, *self.partitions])}"
            )
        for name in names:
            if counts.get(name, 1) > 1:
                raise DataError(
                    f"{self.path}: has {counts[name]} columns named {name!r}"
                )


def read_rows(
    source: RowSource,
    group: int,
    bindings: Sequence[Binding],
    na_values: Collection[str],
) -> Rows:
    """Reads and checks the bound columns of a row group."""
    table, unparsed = source.table(group, bindings)
    faults = Faults(lambda row: source.where(group, row))
    for row, text in unparsed.items():
        faults.add_row(row, text)
    try:
        return decode_rows(bindings, table, na_values, faults)
    except DataError as error:
        raise DataError(f"{source.path}: {error}") from error


def good_rows(
    source: RowSource,
    group: int,
    bindings: Sequence[Binding],
    na_values: Collection[str],
    skip: Callable[[str, int], None] | None,
) -> Rows:
    """Returns the valid rows of a row group.

    `skip` is called with a message and a row count for each bad row or row group;
    None raises DataError.
    """
    try:
        rows = read_rows(source, group, bindings, na_values)
    except DataError as error:
        if skip is None or isinstance(error, ChangedFileError):
            raise
        skip(str(error), source.row_groups[group])
        return Rows(0, dict.fromkeys(range(len(bindings)), np.zeros((0, 1))))
    report_bad(source.path, rows, 0, rows.num_rows, skip)
    return rows.good(0, rows.num_rows)


def report_bad(
    path: str,
    rows: Rows,
    begin: int,
    end: int,
    skip: Callable[[str, int], None] | None,
) -> None:
    """Reports the bad rows in [begin, end); raises DataError if `skip` is None."""
    for row in sorted(rows.bad):
        if begin <= row < end:
            text, advice = rows.bad[row]
            if skip is None:
                told = "; ".join(filter(None, (text, advice)))
                raise DataError(f"{path}: {told}")
            skip(f"{path}: {text}", 1)


def columns_of(
    table: Any, names: Collection[str], partitions: Mapping[str, str | None]
) -> Any:
    """Returns a table of columns, struct fields (dotted) and partition values."""
    places = {name: i for i, name in enumerate(table.schema.names)}
    columns = []
    for name in names:
        if name in places:
            columns.append(table.column(places[name]))
        elif name in partitions:
            value = partitions[name]
            repeated = pa.nulls(table.num_rows, pa.string())
            if value is not None:
                repeated = pa.repeat(pa.scalar(value), table.num_rows)
            columns.append(pa.chunked_array([repeated]))
        else:
            columns.append(_field(table, places, name))
    return pa.table(columns, names=list(names))


def partitions_of(path: str) -> dict[str, str | None]:
    """Returns the Hive partition values in the folder names of a path.

    >>> partitions_of("clicks/day=2026-01-31/country=/part-0.parquet")
    {'day': '2026-01-31', 'country': ''}
    """
    found: dict[str, str | None] = {}
    for folder in path.split("/")[:-1]:
        name, equals, value = folder.partition("=")
        if name and equals:
            text = urllib.parse.unquote(value)
            found[urllib.parse.unquote(name)] = (
                None if text == _HIVE_NULL else text
            )
    return found


def _add_types(found: dict[str, Any], name: str, arrow_type: Any) -> None:
    found[name] = arrow_type
    if pa.types.is_struct(arrow_type):
        for i in range(arrow_type.num_fields):
            field = arrow_type.field(i)
            _add_types(found, f"{name}.{field.name}", field.type)


def _field(table: Any, places: Mapping[str, int], name: str) -> Any:
    """Returns a struct field; null where the struct is null."""
    parts = name.split(".")
    for end in range(len(parts) - 1, 0, -1):
        top = ".".join(parts[:end])
        if top not in places:
            continue
        column = table.column(places[top])
        for part in parts[end:]:
            column = pc.struct_field(column, part)
        return column
    raise DataError(f"has no column {name!r}")


def _some(names: Sequence[str]) -> str:
    shown = ", ".join(names[:20]) or "none"
    return shown + (", ..." if len(names) > 20 else "")


class SplitSource(RowSource):
    """Some of the rows of another source."""

    def __init__(self, source: RowSource, groups: Sequence[np.ndarray]):
        """Wraps a source, of which `groups` has the rows of each group to keep."""
        self._source = source
        self._groups = groups
        self.path = source.path
        self.num_bytes = source.num_bytes
        self.partitions = source.partitions
        self.row_groups = tuple(map(len, groups))

    @functools.cached_property
    def schema(self) -> Any:
        """See RowSource."""
        return self._source.schema

    def table(
        self, group: int, bindings: Sequence[Binding]
    ) -> tuple[Any, dict[int, str]]:
        """See RowSource."""
        table, bad = self._source.table(group, bindings)
        rows = self._groups[group]
        places = {row: i for i, row in enumerate(rows.tolist())}
        return table.take(rows), {
            places[row]: text for row, text in bad.items() if row in places
        }

    def where(self, group: int, row: int) -> str:
        """See RowSource."""
        return self._source.where(group, int(self._groups[group][row]))


def split_sources(
    sources: Sequence[RowSource], held: float, seed: int
) -> tuple[list[RowSource], list[RowSource]]:
    """Splits the rows of all sources in two, the second with the fraction `held`.

    A row's position in the data and `seed` determine its part, whatever the format
    and the number of files.
    """
    total = sum(source.num_rows for source in sources)
    is_held = np.zeros(total, bool)
    for begin in range(0, total, _SPLIT_ROWS):
        end = min(begin + _SPLIT_ROWS, total)
        key = np.array([seed % 2**64, begin], np.uint64)
        order = np.random.Philox(key=key).random_raw(end - begin)
        # Carry the rounding error over to the next rows.
        taken = int(end * held) - int(begin * held)
        chosen = np.argsort(order, kind="stable")[:taken]
        is_held[begin + chosen] = True
    return _parts(sources, is_held)


def split_sources_by(
    sources: Sequence[RowSource],
    name: str,
    held: float,
    seed: int,
    skip: Callable[[str, int], None] | None,
) -> tuple[list[RowSource], list[RowSource]]:
    """Splits rows by the values of a column; each value is in one part.

    The second part has the fraction `held` of the possible values. Rows without a
    value raise DataError, or with `skip` are in the first part, where they are read.
    """
    found = []
    for source in sources:
        source.check_names([name])
        column = Column.sparse(
            name,
            encoding="hash",
            hash_as=f"split {seed}",
            strings_only=is_text(source.types[name]),
            fill_value=ERROR,
        )
        for group, size in enumerate(source.row_groups):
            rows = read_rows(source, group, [Binding(column, name)], NA_VALUES)
            if skip is None:
                report_bad(source.path, rows, 0, size, None)
            hashes = rows.columns[0]
            if isinstance(hashes, tuple):
                if skip is None or lengths(hashes).max(initial=0) > 1:
                    raise DataError(
                        f"{source.path}: column {name!r}: `split_by` needs one "
                        "value per row"
                    )
                first = np.zeros(size, np.int64)
                first[lengths(hashes) == 1] = hashes[0]
                hashes = first
            is_held = hashes.reshape(-1).view(np.uint64) < held * 2.0**64
            is_held[list(rows.bad)] = False
            found.append(is_held)
    return _parts(sources, np.concatenate([np.zeros(0, bool), *found]))


def _parts(
    sources: Sequence[RowSource], is_held: np.ndarray
) -> tuple[list[RowSource], list[RowSource]]:
    rest: list[RowSource] = []
    part: list[RowSource] = []
    at = 0
    for source in sources:
        masks = []
        for rows in source.row_groups:
            masks.append(is_held[at : at + rows])
            at += rows
        rest.append(SplitSource(source, [np.flatnonzero(~m) for m in masks]))
        part.append(SplitSource(source, [np.flatnonzero(m) for m in masks]))
    return rest, part
