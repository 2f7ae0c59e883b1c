"""TableDataset: a table in memory as a tf.data.Dataset."""

import dataclasses
import warnings
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import tensorflow as tf

from lodestar._checks import check_texts
from lodestar._errors import DataError, describe_error
from lodestar._optional import import_optional
from lodestar.data.csv.csv_columns import CsvColumns
from lodestar.data.csv.csv_table import parse_label
from lodestar.data.parquet.parquet_rows import (
    FILL_NULLS,
    Faults,
    Rows,
    decode_rows,
)
from lodestar.data.parquet.parquet_schema import (
    Binding,
    bind_slots,
    limit_keys,
)
from lodestar.data.parquet.reader_dataset import reader_dataset, skip_of
from lodestar.data.record_dataset import options_of
from lodestar.data.schema import Column, Schema, SchemaLike, as_schema
from lodestar.data.table.arrow_columns import (
    as_slot_column,
    is_number,
    is_text,
)

_LABEL = "label"
# Rows that are made arrays of at a time.
_GROUP_ROWS = 1 << 16
_SEEN_ROWS = 1 << 20
_MAX_SHOWN = 5


def TableDataset(
    table: Any,
    schema: SchemaLike | None = None,
    batch_size: int | None = None,
    *,
    label: str | None = None,
    categorical: Collection[str] = (),
    numeric: Collection[str] = (),
    missing: Collection[str] | None = None,
    weights: Mapping[str, str] | None = None,
    slot_size_array: Sequence[int] | None = None,
    **options: Any,
) -> tf.data.Dataset:
    """Batches of `(features, label)` from a table in memory.

    A pandas or polars DataFrame, a pyarrow Table, or anything else that exports
    itself to Arrow. The elements are those of `ParquetDataset`; the number of
    batches is known, so that Keras's progress bar has an end.

    >>> import pandas
    >>> frame = pandas.DataFrame({"user": ["a", "b"], "age": [31.0, 42.0]})
    >>> (features,) = TableDataset(frame, batch_size=2)
    >>> {name: tensor.shape.as_list() for name, tensor in features.items()}
    {'user': [2, None], 'age': [2, 1]}

    Without `schema` a column is by its type

    - the label, where `label` or "label" is its name;
    - a dense slot, of floats, bools, and lists of floats of a fixed size;
    - a sparse slot, of texts, categories, and other lists;
    - of whole numbers either, by what its first million rows hold, as a column
      of a CSV file (docs/data.md); a warning says which.

    A text, or a category, is the id that `hash_ids(column, text)` gives. A dense
    slot takes any numbers, as float32; a sparse slot of ids integers of any size,
    bools and texts, or lists of them. Floats are no ids: `astype("Int64")` makes
    integers of what pandas has made floats because values are missing.

    Args:
        table: The table. It must not change while it is read, and is freed with
            the dataset and its iterators. An index of pandas is left out.
        schema: A `Schema`, the path of a schema file, or a list of `Column`s, each
            of which is the column of its name; other columns are left alone.
        batch_size: Samples a batch.
        label: `COLUMN`, a column of numbers, or `COLUMN=POSITIVE`: 1 where it is
            POSITIVE (a full stop may be behind it), 0 elsewhere.
        categorical: Columns that are sparse slots.
        numeric: Columns that are dense slots.
        missing: Texts that stand for a missing value. With them, or an empty
            list, so does a null, or a NaN of pandas: a missing value is 0 in a
            dense slot, none in a sparse one. None: a null is an error, and so
            is in any case one in the place of a dense slot's list.
        weights: As `ParquetDataset`.
        slot_size_array: As `ParquetDataset`.
        **options: Those of `ReadOptions` but for `open_command` and
            `shuffle_files`. `shuffle_rows` shuffles windows of consecutive rows:
            of `len(table)` all rows. `num_parallel_files` is how many pieces of
            65,536 rows are made arrays of ahead. Any iterator can be saved.

    Raises:
        TypeError: `table` is no table.
        ImportError: pyarrow is not installed.
        ValueError: An option is out of range; with the class `DataError`, a
            column does not fit its slot, an option names none, or no label is
            POSITIVE.
        tf.errors.InvalidArgumentError: While reading: a row has a null, or a
            value or a count out of range ("pandas.DataFrame: row 17: column
            'age': found null, wanted float", rows count from 0).
    """
    if batch_size is None:
        raise ValueError("`batch_size` is missing.")
    read = options_of(TableDataset, batch_size, options)
    for name in ("open_command", "shuffle_files"):
        if getattr(read, name):
            raise ValueError(
                f"`{name}` is no option of a table, which has no files."
            )
    check_texts(missing=missing, categorical=categorical, numeric=numeric)
    path = _name_of(table)
    arrow = as_arrow(table)
    column, positive = _label_of(path, arrow, label)
    if schema is None:
        spec = _slots_of(path, arrow, column, positive, categorical, numeric)
        if weights:
            spec = spec.with_weights(weights)
    else:
        spec = as_schema(schema, weights)
        if categorical or numeric:
            raise DataError(
                "`schema` says what each column is, and so would `categorical` "
                "and `numeric`"
            )
        if label is not None and column not in spec.names("label"):
            raise DataError(f"`label`={label!r}: is no label of `schema`")
    if column is not None and positive is not None:
        arrow = _with_labels(path, arrow, column, positive)
    for slot in spec.used:
        if arrow.schema.names.count(slot.name) == 1:
            index = arrow.schema.get_field_index(slot.name)
            found = as_slot_column(
                arrow.column(index),
                slot,
                missing,
                f"{path}: column {slot.name!r}",
            )
            arrow = arrow.set_column(index, slot.name, found)
    rows = _TableRows(path, arrow, reads_nulls=missing is not None)
    bindings = bind_slots(spec, rows)
    if slot_size_array is not None:
        bindings = limit_keys(bindings, slot_size_array)
    return reader_dataset(
        [rows], bindings, read, read.shard or (1, 0), skip_of(read), _read_rows
    )


@dataclasses.dataclass
class _TableRows:
    """A table as what has row groups.

    Attributes:
        path: What errors call it.
        table: A `pyarrow.Table`.
        reads_nulls: Whether nulls are missing values already.
        num_bytes: -1, as that of no file.
    """

    path: str
    table: Any
    reads_nulls: bool
    num_bytes: int = -1

    @property
    def schema(self) -> Any:
        return self.table.schema

    @property
    def num_rows(self) -> int:
        return self.table.num_rows

    @property
    def row_groups(self) -> tuple[int, ...]:
        groups, rest = divmod(self.num_rows, _GROUP_ROWS)
        return (_GROUP_ROWS,) * groups + (rest,) * (rest > 0)

    def null_advice(self, slot: Column) -> str:
        """Returns what to do about the nulls of a slot."""
        if self.reads_nulls or slot.kind not in ("dense", "sparse"):
            return FILL_NULLS
        missing = "0" if slot.kind == "dense" else "no value"
        return (
            f"`missing=[]` reads a null, or a NaN of pandas, as {missing}, and "
            "`on_error='skip'` leaves such rows out"
        )


def _read_rows(
    rows: _TableRows, group: int, bindings: Sequence[Binding]
) -> Rows:
    first = group * _GROUP_ROWS
    part = rows.table.slice(first, _GROUP_ROWS)
    return decode_rows(
        bindings, part, Faults(first, null_advice=rows.null_advice)
    )


def is_table(data: Any) -> bool:
    """Whether this is a table, or looks so much like one that paths are not meant."""
    return (
        hasattr(data, "__arrow_c_stream__")
        or hasattr(data, "__arrow_c_array__")
        or _is_of(data, "pandas", "DataFrame")
        or _is_of(data, "polars", "LazyFrame")
    )


def as_arrow(table: Any) -> Any:
    """A table in memory as a `pyarrow.Table`.

    Raises:
        TypeError: It is no table.
        ImportError: pyarrow is not installed.
        DataError: It cannot be one of Arrow's.
    """
    if _is_of(table, "polars", "LazyFrame"):
        raise TypeError("`table` is a polars LazyFrame: collect() it first.")
    if not is_table(table):
        raise TypeError(
            "`table` must be a pandas or polars DataFrame or a pyarrow Table, "
            f"found {type(table).__name__}."
        )
    pa = import_optional("pyarrow", "TableDataset")
    if _is_of(table, "pandas", "Series") or _is_of(table, "polars", "Series"):
        raise TypeError(
            f"`table` is a {_name_of(table)}, one column: `to_frame()` makes a "
            "table of it."
        )
    try:
        if _is_of(table, "pandas", "DataFrame"):
            return pa.Table.from_pandas(table, preserve_index=False)
        if _is_of(table, "polars", "DataFrame"):
            return table.to_arrow()
        return pa.table(table)
    except (pa.ArrowException, TypeError, ValueError) as error:
        raise DataError(
            f"{_name_of(table)}: cannot be an Arrow table: "
            f"{describe_error(error)}"
        ) from error


def _is_of(data: Any, package: str, name: str) -> bool:
    """Whether this is an instance of a class of a package, or of one below it."""
    return any(
        base.__name__ == name and base.__module__.partition(".")[0] == package
        for base in type(data).__mro__
    )


def _name_of(table: Any) -> str:
    kind = type(table)
    return f"{kind.__module__.partition('.')[0]}.{kind.__name__}"


def _label_of(
    path: str, arrow: Any, label: str | None
) -> tuple[str | None, str | None]:
    """The label's column, if there is one, and the text that is positive."""
    names = arrow.schema.names
    if label is None:
        return (_LABEL if _LABEL in names else None), None
    column, positive = label, None
    if label not in names:  # where a name may hold "=" itself
        column, positive = parse_label(label)
    _check_column(path, arrow, column)
    return column, positive


def _check_column(path: str, arrow: Any, name: str) -> None:
    count = arrow.schema.names.count(name)
    if count == 0:
        raise DataError(
            f"{path}: unknown column {name!r}; the columns are "
            f"{', '.join(arrow.schema.names) or 'none'}"
        )
    if count > 1:
        raise DataError(f"{path}: {count} columns are called {name!r}")


def _slots_of(
    path: str,
    arrow: Any,
    label: str | None,
    positive: str | None,
    categorical: Collection[str],
    numeric: Collection[str],
) -> Schema:
    """The slots of the columns, by their types."""
    counts = Counter(arrow.schema.names)
    for name in (name for name, count in counts.items() if count > 1):
        _check_column(path, arrow, name)
    for name in (*categorical, *numeric):
        _check_column(path, arrow, name)
        if name == label:
            raise DataError(f"{path}: column {name!r} is the label")
        if name in categorical and name in numeric:
            raise DataError(
                f"{path}: column {name!r} is both categorical and numeric"
            )
    if not arrow.schema.names:
        raise DataError(f"{path}: has no columns")
    given = {label, *categorical, *numeric}
    numeric = {*numeric, *_whole_numbers(path, arrow, given)}
    schema = []
    for field in arrow.schema:
        name = field.name
        if name == label:
            if is_text(field.type) and positive is None:
                raise DataError(
                    f"{path}: column {name!r}: found texts, wanted numbers, or "
                    f"`label`='{name}=POSITIVE' to say which text is 1"
                )
            schema.append(Column.label(name, dtype="float", binary=False))
        elif name in categorical:
            schema.append(Column.sparse(name))
        else:
            schema.append(_slot_of(name, field.type, name in numeric))
    return Schema(schema)


def _whole_numbers(
    path: str, arrow: Any, given: Collection[str | None]
) -> list[str]:
    """Those columns of integers that are numbers, and not ids."""
    import pyarrow.compute as pc
    import pyarrow.types as types

    names = [
        field.name
        for field in arrow.schema
        if types.is_integer(field.type) and field.name not in given
    ]
    columns = CsvColumns(names, ())
    head = arrow.select(names).slice(0, _SEEN_ROWS)
    for name in names:
        counted = pc.value_counts(head.column(name).drop_null())
        values, counts = counted.field("values"), counted.field("counts")
        texts = map(str, values.to_pylist())
        columns.add_counts(name, Counter(dict(zip(texts, counts.to_pylist()))))
    for note in columns.notes():
        warnings.warn(f"{path}: {note}", stacklevel=4)
    found = zip(names, columns.numeric(), strict=True)
    return [name for name, is_number in found if is_number]


def _slot_of(name: str, arrow_type: Any, is_numeric: bool) -> Column:
    import pyarrow.types as types

    element: Any = arrow_type
    width: int | None = 1
    if types.is_fixed_size_list(arrow_type):
        element, width = arrow_type.value_type, arrow_type.list_size
    elif types.is_list(arrow_type) or types.is_large_list(arrow_type):
        element, width = arrow_type.value_type, None
    # A category is one whatever it is called by.
    is_float = (
        is_number(element)
        and not types.is_integer(element)
        and not types.is_dictionary(element)
    )
    if width and (is_numeric or is_float):
        return Column.dense(name, (width,))
    return Column.sparse(name, dtype="float" if is_float else "uint64")


def _with_labels(path: str, arrow: Any, column: str, positive: str) -> Any:
    """The table with 1 where the column is the text, 0 elsewhere."""
    import pyarrow as pa
    import pyarrow.compute as pc

    index = arrow.schema.get_field_index(column)
    try:
        texts = arrow.column(index).cast(pa.large_string())
    except pa.ArrowException as error:
        raise DataError(
            f"{path}: column {column!r}: {describe_error(error)}"
        ) from error
    wanted = pa.array([positive, f"{positive}."], pa.large_string())
    is_positive = pc.is_in(texts, value_set=wanted)
    if len(texts) and not pc.any(is_positive).as_py():
        found = pc.unique(texts).to_pylist()[:_MAX_SHOWN]
        raise DataError(
            f"{path}: column {column!r}: no label is {positive!r}; found "
            f"{', '.join(map(repr, found))}"
        )
    labels = pc.if_else(texts.is_valid(), is_positive.cast(pa.float32()), None)
    return arrow.set_column(index, column, labels)
