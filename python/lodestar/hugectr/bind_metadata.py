"""Binds columns of Parquet files by HugeCTR's `_metadata.json`."""

from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from lodestar._errors import DataError
from lodestar.data.binding import Binding
from lodestar.hugectr.parquet_metadata import ParquetMetadata
from lodestar.schema import Column
from lodestar.schema.arrow_types import is_list

types = pa.types


def bind_metadata(metadata: ParquetMetadata, file: Any) -> list[Binding]:
    """Returns bindings of the columns in `_metadata.json`.

    Labels are first, then dense and sparse columns, each by ascending index. A
    label column of several values becomes labels `name_0`, `name_1`, ... Raises
    DataError if an index is too large or a column has another type.
    """
    bindings: list[Binding] = []
    for group, columns in metadata.columns.items():
        for index, name in columns:
            if index >= len(file.schema):
                raise DataError(
                    f"{metadata.path}: {group}: the index of {name!r} must be less "
                    f"than {len(file.schema)}, the number of columns of "
                    f"{file.path}, got {index}."
                )
            bindings += _bound(file, index, group)
    if not bindings:
        raise DataError(
            f"{metadata.path}: labels, conts and cats are all empty."
        )
    return bindings


def check_same_places(metadata: ParquetMetadata, file: Any, first: Any) -> None:
    """Raises DataError unless the listed columns have equal names in both files."""
    names = file.schema.names
    for columns in metadata.columns.values():
        for index, _ in columns:
            expected = first.schema.names[index]
            found = names[index] if index < len(names) else None
            if found != expected:
                raise DataError(
                    f"{file.path}: column {index} must be {expected!r}, as in "
                    f"{first.path}, got {found!r}."
                )


def _bound(file: Any, index: int, group: str) -> Iterator[Binding]:
    field = file.schema.field(index)
    name = field.name
    element = field.type.value_type if is_list(field.type) else field.type
    why = f"`{group}` of _metadata.json"
    if group == "cats":
        if not types.is_integer(element):
            raise _wrong_type(file, name, field.type, "integers")
        yield Binding(Column.sparse(name, why=why), name)
        return
    if not types.is_floating(element):
        raise _wrong_type(file, name, field.type, "floats")
    width = _width(file, name, field.type)
    if group == "conts":
        yield Binding(Column.dense(name, (width,), why=why), name)
        return
    for part in range(width):
        label = Column.label(
            name if width == 1 else f"{name}_{part}",
            dtype="float",
            binary=False,
            why=why,
        )
        if width == 1:
            yield Binding(label, name)
        else:
            yield Binding(label, name, part, width)


def _wrong_type(file: Any, name: str, found: Any, expected: str) -> DataError:
    return DataError(
        f"{file.path}: column {name!r} must have {expected} or lists of them, got "
        f"{found}."
    )


def _width(file: Any, name: str, found: Any) -> int:
    """Returns the number of values per row, from the type or the footer."""
    width: int = 1
    if types.is_fixed_size_list(found):
        width = found.list_size
    elif is_list(found):
        values = sum(_num_values(file, name))
        width, rest = divmod(values, max(file.num_rows, 1))
        if rest or (width == 0 and file.num_rows):
            raise DataError(
                f"{file.path}: column {name!r} must have equally many values in all "
                f"{file.num_rows} rows, got {values} values."
            )
        width = max(width, 1)
    if width < 1:
        raise DataError(
            f"{file.path}: column {name!r} must have at least one value per row, "
            f"got {found}."
        )
    return width


def _num_values(file: Any, name: str) -> Iterator[int]:
    """Yields the number of values per row group; an empty list counts as one."""
    leaf = sum(
        _leaves(field.type)
        for field in list(file.schema)[: file.schema.get_field_index(name)]
    )
    for group in range(file.footer.num_row_groups):
        yield file.footer.row_group(group).column(leaf).num_values


def _leaves(arrow_type: Any) -> int:
    """Returns the number of columns of a Parquet file for a type."""
    # Dictionaries and similar types are stored as their values.
    count = getattr(arrow_type, "num_fields", 0)
    if not count:
        return 1
    return sum(_leaves(arrow_type.field(i).type) for i in range(count))
