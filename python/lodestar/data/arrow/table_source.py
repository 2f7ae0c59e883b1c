"""Tables in memory as row sources."""

from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from lodestar._errors import DataError, describe_error
from lodestar.data.arrow.row_source import RowSource
from lodestar.schema import Column

# Number of rows to decode at a time.
_GROUP_ROWS = 1 << 16


class TableSource(RowSource):
    """A `pyarrow.Table` as a row source."""

    def __init__(self, path: str, table: Any):
        """Wraps a table, which must not change; `path` is its name in errors."""
        self.path = path
        self.schema = table.schema
        self._table = table
        groups, rest = divmod(table.num_rows, _GROUP_ROWS)
        self.row_groups = (_GROUP_ROWS,) * groups + (rest,) * (rest > 0)

    def _read(
        self, group: int, columns: Mapping[str, Column]
    ) -> tuple[Any, dict[int, str]]:
        return self.part(group), {}

    def part(self, group: int) -> Any:
        """Returns the rows of a group."""
        return self._table.slice(group * _GROUP_ROWS, _GROUP_ROWS)


def is_table(data: Any) -> bool:
    """Returns whether data is a table, or resembles one rather than paths."""
    return (
        hasattr(data, "__arrow_c_stream__")
        or hasattr(data, "__arrow_c_array__")
        or _is_of(data, "pandas", "DataFrame")
        or _is_of(data, "polars", "LazyFrame")
        or _is_of(data, "datasets", "Dataset")
    )


def as_arrow(table: Any) -> Any:
    """Returns a table in memory as a `pyarrow.Table`.

    Raises TypeError if it is not a table, and DataError if Arrow cannot represent a
    column.
    """
    if _is_of(table, "polars", "LazyFrame"):
        raise TypeError("`data` is a polars LazyFrame; collect() it first.")
    if not is_table(table):
        raise TypeError(
            "`data` must be paths, a pandas or polars DataFrame, a pyarrow "
            f"Table or a datasets.Dataset, got {type(table).__name__}."
        )
    if _is_of(table, "pandas", "Series") or _is_of(table, "polars", "Series"):
        raise TypeError(
            f"`data` is a {name_of(table)}, one column; call `to_frame()`."
        )
    try:
        if _is_of(table, "pandas", "DataFrame"):
            return _of_pandas(table)
        if _is_of(table, "polars", "DataFrame"):
            return table.to_arrow()
        if _is_of(table, "datasets", "Dataset"):
            # A slice or shuffle of a Dataset only has a list of indices.
            return table.with_format("arrow")[:]
        return pa.table(table)
    except (pa.ArrowException, TypeError, ValueError) as error:
        if isinstance(error, DataError):
            raise
        raise DataError(
            f"{name_of(table)}: cannot be an Arrow table: "
            f"{describe_error(error)}"
        ) from error


def name_of(table: Any) -> str:
    """Returns the name of a table in errors, e.g. `"pandas.DataFrame"`."""
    kind = type(table)
    return f"{kind.__module__.partition('.')[0]}.{kind.__name__}"


def _of_pandas(frame: Any) -> Any:
    # As CSV readers leave them of a header such as "age, city".
    names = [str(name).strip() for name in frame.columns]
    columns = []
    for i, name in enumerate(names):
        series = frame.iloc[:, i]
        try:
            columns.append(_of_series(series))
        except (
            pa.ArrowException,
            TypeError,
            ValueError,
            OverflowError,
        ) as error:
            raise DataError(
                f"{name_of(frame)}: column {name!r}: cannot be an Arrow array: "
                f"{describe_error(error)}"
            ) from error
    if not columns:
        return pa.Table.from_pandas(frame, preserve_index=False)
    return pa.table(columns, names=names)


def _of_series(series: Any) -> Any:
    try:
        return pa.Array.from_pandas(series)
    except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError):
        # Arrow infers no type for strings mixed with numbers, or for integers beyond
        # int64. In a CSV, they are text.
        if not all(
            isinstance(value, (str, int, float)) or value is None
            for value in series
        ):
            raise
        texts = [
            None if value is None or value != value else str(value)
            for value in series
        ]
        return pa.array(texts, pa.large_string())


def _is_of(data: Any, package: str, name: str) -> bool:
    """Returns whether data is an instance of a class or a subclass."""
    return any(
        base.__name__ == name and base.__module__.partition(".")[0] == package
        for base in type(data).__mro__
    )
