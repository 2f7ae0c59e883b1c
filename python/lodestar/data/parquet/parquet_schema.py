"""Which column of a Parquet file fills which slot, and of what type it is."""

import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any, Protocol

from lodestar._errors import DataError
from lodestar.data.parquet.parquet_files import ParquetFile
from lodestar.data.parquet.parquet_metadata import ParquetMetadata
from lodestar.data.schema import Column, Schema
from lodestar.hugectr.slot_sizes import slot_offsets

FLOAT = "float"
INTEGERS = ("int32", "uint32", "int64", "uint64")
_LABEL = "label"
_FLOATS_WANTED = "float (32 bits) or a list of it"
_KEYS_WANTED = f"{', '.join(INTEGERS)} or a list of one of them"


@dataclasses.dataclass(frozen=True)
class ColumnType:
    """A type that columns may have.

    Attributes:
        element: `FLOAT` or one of `INTEGERS`.
        is_list: Whether a row holds a list.
        width: Values of every row if the type says so: 1 without a list.
    """

    element: str
    is_list: bool
    width: int | None

    def __str__(self) -> str:
        if not self.is_list:
            return self.element
        size = "" if self.width is None else f"[{self.width}]"
        return f"list<{self.element}>{size}"


@dataclasses.dataclass(frozen=True)
class Binding:
    """How a column fills a slot.

    Attributes:
        slot: The slot.
        column: The column's name.
        type: Its type.
        width: Values that a row must have; None if any number.
        part: Of a column with several labels: which one the slot is.
        offset: Added to each key.
        limit: Keys are below it; 0 means no limit.
    """

    slot: Column
    column: str
    type: ColumnType
    width: int | None
    part: int | None = None
    offset: int = 0
    limit: int = 0


def column_type(arrow_type: Any) -> ColumnType | None:
    """The type, or None if no slot can have it."""
    import pyarrow.types as types

    width: int | None = 1
    is_list = True
    if types.is_fixed_size_list(arrow_type):
        width, element = arrow_type.list_size, arrow_type.value_type
    elif types.is_list(arrow_type) or types.is_large_list(arrow_type):
        width, element = None, arrow_type.value_type
    else:
        is_list, element = False, arrow_type
    name = FLOAT if types.is_float32(element) else str(element)
    if name not in (FLOAT, *INTEGERS):
        return None
    return ColumnType(name, is_list, width)


class RowGroups(Protocol):
    """What has columns and row groups: a ParquetFile, or a table in memory."""

    @property
    def path(self) -> str:
        """What errors call it."""

    @property
    def schema(self) -> Any:
        """A `pyarrow.Schema`."""

    @property
    def row_groups(self) -> tuple[int, ...]:
        """The rows of each row group."""

    @property
    def num_rows(self) -> int:
        """Rows of all row groups."""

    @property
    def num_bytes(self) -> int:
        """The size of the file; -1 where there is none."""


def bind_slots(spec: Schema, file: RowGroups) -> list[Binding]:
    """Gives each used slot the column of its name.

    Raises:
        DataError: A column is missing or its type does not fit the slot.
    """
    bindings: list[Binding] = []
    for slot in spec.used:
        found = _type_of(file, slot.name, _wanted(slot))
        binding = Binding(slot, slot.name, found, slot.num_values)
        _check_type(file, binding)
        bindings.append(binding)
    return bindings


def bind_metadata(
    metadata: ParquetMetadata, file: ParquetFile
) -> list[Binding]:
    """Makes slots of the columns that a `_metadata.json` lists.

    Labels first, then the dense and the sparse slots, each by ascending index.
    A label column of several values gives a slot for each, `name_0`, `name_1`.

    Raises:
        DataError: An index is beyond the schema, or a column of another type.
    """
    bindings: list[Binding] = []
    for group, columns in metadata.columns.items():
        for index, name in columns:
            if index >= len(file.schema):
                raise DataError(
                    f"{metadata.path}: {group}: {name!r} has the index {index}, "
                    f"but {file.path} has {len(file.schema)} columns"
                )
            column = file.schema[index].name
            wanted = _KEYS_WANTED if group == "cats" else _FLOATS_WANTED
            found = _type_of(file, column, wanted)
            if (found.element == FLOAT) != (group != "cats"):
                raise _wrong_type(file, column, wanted)
            bindings += _bound(file, column, found, group)
    if not bindings:
        raise DataError(
            f"{metadata.path}: labels, conts and cats are all empty"
        )
    return bindings


def bind_schema(file: ParquetFile) -> list[Binding]:
    """Makes slots of all columns, by their types.

    Floats are dense slots, lists of any length sparse ones, integers sparse
    ids; floats called "label" are labels.

    Raises:
        DataError: A column is of no type that a slot can have.
    """
    bindings: list[Binding] = []
    for field in file.schema:
        name = field.name
        wanted = f"{_FLOATS_WANTED}, {_KEYS_WANTED}"
        found = _type_of(file, name, wanted)
        group = "cats"
        if name == _LABEL:
            group = "labels"
            if found.element != FLOAT:
                raise _wrong_type(file, name, _FLOATS_WANTED)
        elif found.element == FLOAT and found.width is not None:
            group = "conts"
        bindings += _bound(file, name, found, group)
    if not bindings:
        raise DataError(f"{file.path}: has no columns")
    return bindings


def spec_of(bindings: Sequence[Binding]) -> Schema:
    """The slots that are filled."""
    return Schema(binding.slot for binding in bindings)


def check_same_columns(
    bindings: Sequence[Binding], file: ParquetFile, first: ParquetFile
) -> None:
    """Raises DataError unless `file` has the columns that `first` has."""
    for binding in bindings:
        found = _type_of(
            file, binding.column, f"{binding.type} as {first.path}"
        )
        if found != binding.type:
            raise DataError(
                f"{file.path}: column {binding.column!r}: found {found}, wanted "
                f"{binding.type} as {first.path} has it"
            )


def check_same_places(
    metadata: ParquetMetadata, file: ParquetFile, first: ParquetFile
) -> None:
    """Raises DataError unless both files name the listed columns alike."""
    for columns in metadata.columns.values():
        for index, _ in columns:
            wanted = first.schema[index].name
            names = file.schema.names
            found = names[index] if index < len(names) else None
            if found != wanted:
                raise DataError(
                    f"{file.path}: column {index}: found {found!r}, wanted "
                    f"{wanted!r} as {first.path} has it"
                )


def limit_keys(
    bindings: Sequence[Binding], slot_size_array: Sequence[int]
) -> list[Binding]:
    """Limits the keys of each sparse id slot, and shifts them past one another.

    Raises:
        ValueError: As `slot_offsets`.
    """
    keys = [b.slot for b in bindings if _holds_keys(b.slot)]
    offsets = slot_offsets(keys, slot_size_array)
    limits: dict[str, dict[str, Any]] = {
        slot.name: {"offset": offset, "limit": int(size)}
        for slot, offset, size in zip(keys, offsets, slot_size_array)
    }
    return [
        dataclasses.replace(b, **limits.get(b.slot.name, {})) for b in bindings
    ]


def _holds_keys(slot: Column) -> bool:
    return slot.kind in ("sparse", "one_hot") and slot.dtype != FLOAT


def _wanted(slot: Column) -> str:
    if slot.dtype == FLOAT:
        return _FLOATS_WANTED
    if slot.kind == "label":
        return f"{_FLOATS_WANTED}, {_KEYS_WANTED}"
    return _KEYS_WANTED


def _check_type(file: RowGroups, binding: Binding) -> None:
    slot, found = binding.slot, binding.type
    is_float = found.element == FLOAT
    # A writer stores any label as a float.
    fits = is_float == (slot.dtype == FLOAT) or slot.kind == "label"
    if slot.kind == "label" and slot.dtype == FLOAT:
        fits = is_float
    if not fits:
        raise _wrong_type(file, binding.column, _wanted(slot))
    where = f"{file.path}: column {binding.column!r}: found {found}, wanted "
    if binding.width is None:
        if found.width is not None and found.width % slot.multiple:
            raise DataError(
                f"{where}a multiple of {slot.multiple} values a row for a dense "
                f"slot of shape {list(slot.shape)}"
            )
    elif found.width not in (None, binding.width):
        raise DataError(
            f"{where}{binding.width} values a row for a {slot.kind} slot"
        )


def _type_of(file: RowGroups, column: str, wanted: str) -> ColumnType:
    count = file.schema.names.count(column)
    if count != 1:
        raise DataError(
            f"{file.path}: column {column!r}: found {count} of that name, wanted "
            f"one; the columns are {', '.join(file.schema.names) or 'none'}"
        )
    found = column_type(file.schema.field(column).type)
    if found is None:
        raise _wrong_type(file, column, wanted)
    return found


def _wrong_type(file: RowGroups, column: str, wanted: str) -> DataError:
    import pyarrow.types as types

    found = file.schema.field(column).type
    element = getattr(found, "value_type", found)
    advice = ""
    if wanted == _KEYS_WANTED and types.is_floating(element):
        advice = (
            "; floats are not ids. pandas turns integers into floats if a value "
            "is missing: convert the column by `astype('Int64')`"
        )
        if not isinstance(file, ParquetFile):
            advice += ", and `missing=[]` reads a missing value as no id"
    elif FLOAT in wanted and types.is_float64(element):
        advice = "; convert the column by `astype('float32')`"
    return DataError(
        f"{file.path}: column {column!r}: found {found}, wanted {wanted}{advice}"
    )


def _bound(
    file: ParquetFile, column: str, found: ColumnType, group: str
) -> Iterator[Binding]:
    """The slots of a column of one of the groups of a `_metadata.json`."""
    if group == "cats":
        dtype = FLOAT if found.element == FLOAT else "uint64"
        slot = Column.sparse(column, dtype=dtype)
        yield Binding(slot, column, found, None)
        return
    width = _width(file, column, found)
    if group == "conts":
        yield Binding(Column.dense(column, (width,)), column, found, width)
        return
    for part in range(width):
        name = column if width == 1 else f"{column}_{part}"
        slot = Column.label(name, dtype=FLOAT, binary=False)
        yield Binding(slot, column, found, width, None if width == 1 else part)


def _width(file: ParquetFile, column: str, found: ColumnType) -> int:
    """Values of each row of a column: of its type, or what the footer counts."""
    width = found.width
    if width is None:
        values = sum(_num_values(file, column))
        width, rest = divmod(values, max(file.num_rows, 1))
        if rest or (width == 0 and file.num_rows):
            raise DataError(
                f"{file.path}: column {column!r}: found {values} values in "
                f"{file.num_rows} rows, wanted as many in each row"
            )
        width = max(width, 1)
    if width < 1:
        raise DataError(
            f"{file.path}: column {column!r}: found {found}, wanted at least "
            "one value a row"
        )
    return width


def _num_values(file: ParquetFile, column: str) -> Iterator[int]:
    """How many values, an empty list counting as one, each row group has."""
    leaf = sum(
        _leaves(field.type)
        for field in list(file.schema)[: file.schema.get_field_index(column)]
    )
    for group in range(file.footer.num_row_groups):
        yield file.footer.row_group(group).column(leaf).num_values


def _leaves(arrow_type: Any) -> int:
    """The columns of the Parquet file that a column of this type takes."""
    # Dictionaries and the like are stored as their values.
    count = getattr(arrow_type, "num_fields", 0)
    if not count:
        return 1
    return sum(_leaves(arrow_type.field(i).type) for i in range(count))
