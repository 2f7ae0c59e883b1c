"""Rows of a Parquet row group as NumPy arrays, every value checked."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from lodestar._errors import DataError
from lodestar.data.input_bytes import ChangedFileError, check_unchanged
from lodestar.data.parquet.parquet_files import (
    ParquetFile,
    one_line,
    open_parquet,
)
from lodestar.data.parquet.parquet_schema import FLOAT, Binding
from lodestar.data.sample_columns import ColumnValues, cut, lengths, take
from lodestar.data.sample_writer import is_int64
from lodestar.data.schema import Column
from lodestar.data.schema_layout import dtype_of, limit


class Fault(NamedTuple):
    """Why a row cannot be used.

    Attributes:
        text: Where it is, what was found, and what was wanted.
        advice: What to do about it, if the error is raised; may be empty.
    """

    text: str
    advice: str = ""


@dataclasses.dataclass(frozen=True)
class Rows:
    """Rows of all bound columns.

    Attributes:
        num_rows: How many.
        columns: From the number of each binding to its column `[num_rows,
            width]`, or pair of values and row_splits; int64 or float32.
        bad: The rows that cannot be used, whose values mean nothing.
    """

    num_rows: int
    columns: Mapping[int, Any]
    bad: dict[int, Fault] = dataclasses.field(default_factory=dict)

    def take(self, rows: np.ndarray) -> "Rows":
        """These rows, all of them good, in this order."""
        return Rows(len(rows), take(self.columns, rows))

    def good(self, begin: int, end: int) -> "Rows":
        """The good ones of the rows [begin, end)."""
        if not self.bad and (begin, end) == (0, self.num_rows):
            return self
        rows = np.arange(begin, end)
        if self.bad:
            rows = np.setdiff1d(rows, list(self.bad), assume_unique=True)
        if len(rows) != end - begin:
            return self.take(rows)
        return Rows(end - begin, cut(self.columns, begin, end))


def read_row_group(
    file: ParquetFile, group: int, bindings: Sequence[Binding]
) -> Rows:
    """Reads and checks the bound columns of a row group.

    Rows with a null or a wrong value or count are `bad`.

    Raises:
        DataError: The row group cannot be read or decoded; with the class
            ChangedFileError, the file was written to since its footer was read.
    """
    names = list(dict.fromkeys(binding.column for binding in bindings))
    table = _read(file, group, names)
    first = sum(file.row_groups[:group])
    rows = file.row_groups[group]
    for name in names:
        found = len(table.column(name))
        if found != rows:
            raise DataError(
                f"{file.path}: row group {group}: column {name!r}: "
                f"found {found} rows, wanted {rows} as the footer counts"
            )
    return decode_rows(bindings, table, Faults(first, group))


def decode_rows(
    bindings: Sequence[Binding], table: Any, faults: "Faults"
) -> Rows:
    """The bound columns of a `pyarrow.Table`, checked.

    Args:
        bindings: The columns, each once in the table and of the binding's type.
        table: The rows.
        faults: Where bad rows are noted; some may be already.
    """
    columns = {
        number: decode_column(binding, table.column(binding.column), faults)
        for number, binding in enumerate(bindings)
    }
    _check_weights(bindings, columns, faults)
    return Rows(table.num_rows, columns, faults.found)


def _read(file: ParquetFile, group: int, names: list[str]) -> Any:
    try:
        with open_parquet(file.path, file.footer) as parquet:
            # Row groups are read side by side, so the columns of one are not.
            table = parquet.read_row_group(group, names, use_threads=False)
        check_unchanged(file.path, file.opened)
        return table
    except ChangedFileError:
        raise
    except (Exception, MemoryError) as error:
        check_unchanged(file.path, file.opened)
        # pyarrow raises whatever its decoders meet, OverflowError included.
        raise DataError(
            f"{file.path}: row group {group}: {_broken_column(file, group, names)}"
            f"cannot be read: {one_line(error)}"
        ) from error


def _broken_column(file: ParquetFile, group: int, names: list[str]) -> str:
    for name in names:
        try:
            with open_parquet(file.path, file.footer) as parquet:
                parquet.read_row_group(group, [name], use_threads=False)
        except (Exception, MemoryError):
            return f"column {name!r}: "
    return ""


FILL_NULLS = "fill the nulls, or leave such rows out by `on_error='skip'`"


class Faults:
    """The bad rows of some, each with what was found first."""

    def __init__(
        self,
        first_row: int,
        group: int | None = None,
        null_advice: Callable[[Column], str] = lambda slot: FILL_NULLS,
    ):
        """Begins with no bad row.

        Args:
            first_row: The number of the first row.
            group: The number of the row group that the rows are, if any.
            null_advice: Returns what to do about the nulls of a slot.
        """
        self.null_advice = null_advice
        self._group = group
        self._first_row = first_row
        self.found: dict[int, Fault] = {}

    def add(
        self,
        rows: np.ndarray,
        column: str,
        describe: Callable[[int], str],
        advice: str = "",
    ) -> None:
        """Adds rows; `describe` says of one what was found and wanted."""
        for row in np.unique(rows).tolist():
            if row in self.found:
                continue
            where = f"row {self._first_row + row}"
            if self._group is not None:
                where += f" (row group {self._group}, its row {row})"
            text = f"{where}: column {column!r}: {describe(row)}"
            self.found[row] = Fault(text, advice)


def one_array(column: Any) -> Any:
    """A `pyarrow.ChunkedArray` as one array.

    Of several chunks, texts and lists get offsets of 64 bits: those of 32 hold
    no more than 2^31 - 1 bytes or values together.
    """
    if column.num_chunks == 1:
        return column.chunk(0)
    column = column.unify_dictionaries()
    return column.cast(_with_wide_offsets(column.type)).combine_chunks()


def _with_wide_offsets(arrow_type: Any) -> Any:
    import pyarrow as pa

    if pa.types.is_string(arrow_type):
        return pa.large_string()
    if pa.types.is_list(arrow_type) or pa.types.is_large_list(arrow_type):
        return pa.large_list(_with_wide_offsets(arrow_type.value_type))
    return arrow_type


def decode_column(
    binding: Binding, array: Any, faults: Faults
) -> np.ndarray | ColumnValues:
    """A `pyarrow.ChunkedArray` of the bound column as the slot's values.

    Returns `[rows, width]`, or values and row_splits where the width is not
    fixed.
    """
    array = one_array(array)
    name = binding.column
    advice = faults.null_advice(binding.slot)
    if array.null_count:
        nulls = np.flatnonzero(array.is_null().to_numpy(zero_copy_only=False))
        faults.add(
            nulls, name, lambda _: f"found null, wanted {binding.type}", advice
        )
    if not binding.type.is_list:
        offsets = None
        values = array
    elif binding.type.width is not None:
        width = binding.type.width
        offsets = np.arange(len(array) + 1) * width
        values = array.values.slice(array.offset * width, len(array) * width)
    else:
        offsets = array.offsets.to_numpy()
        begin, end = int(offsets[0]), int(offsets[-1])
        if begin:
            offsets = offsets - begin
        values = array.values.slice(begin, end - begin)
    if offsets is not None and values.null_count:
        nulls = np.flatnonzero(values.is_null().to_numpy(zero_copy_only=False))
        faults.add(
            _rows_of(offsets, nulls),
            name,
            lambda _: f"found null in a list, wanted {binding.type.element}",
            advice,
        )
    numbers = _numbers(values)
    if binding.width is None:
        numbers = _check_numbers(binding, numbers, offsets, faults)
        if offsets is None:  # a key a row
            return numbers[:, np.newaxis]
        if binding.slot.kind == "dense":
            _check_multiple(binding, offsets, faults)
        return ColumnValues(numbers, offsets)
    if offsets is not None:
        numbers = _fixed(binding, numbers, offsets, faults)
    return _check_fixed(binding, numbers, faults)


def _numbers(values: Any) -> np.ndarray:
    """float32 or int64; unsigned 64 bits keep their bits."""
    if values.null_count:
        values = values.fill_null(0)
    numbers = values.to_numpy(zero_copy_only=True)
    if numbers.dtype in (np.float32, np.int64):
        return numbers
    if numbers.dtype == np.uint64:
        return numbers.view(np.int64)
    return numbers.astype(np.int64)


def _rows_of(offsets: np.ndarray, places: np.ndarray) -> np.ndarray:
    """The rows of the values at `places`."""
    return np.searchsorted(offsets, places, side="right") - 1


def _fixed(
    binding: Binding,
    numbers: np.ndarray,
    offsets: np.ndarray,
    faults: Faults,
) -> np.ndarray:
    """Lists that must all have the binding's width as `[rows * width]`."""
    width: Any = binding.width
    counts = np.diff(offsets)
    bad = np.flatnonzero(counts != width)
    if not len(bad):
        return numbers
    faults.add(
        bad,
        binding.column,
        lambda row: f"found {counts[row]} values, wanted {width}",
    )
    fixed = np.zeros((len(counts), width), numbers.dtype)
    good = np.flatnonzero(counts == width)
    if len(good):
        starts = offsets[good, np.newaxis]
        fixed[good] = numbers[starts + np.arange(width)]
    return fixed.reshape(-1)


def _check_fixed(
    binding: Binding, numbers: np.ndarray, faults: Faults
) -> np.ndarray:
    """The slot's part of `[rows * width]`, checked, as `[rows, values]`."""
    slot = binding.slot
    numbers = numbers.reshape(-1, binding.width or 1)
    if binding.part is not None:
        numbers = numbers[:, binding.part : binding.part + 1]
    if slot.kind == "label" or slot.kind == "one_hot":
        (values,) = numbers.T
        bad, wanted = _bad_values(slot, values)
        faults.add(
            np.flatnonzero(bad),
            binding.column,
            lambda row: f"found {values[row]}, wanted {wanted}",
        )
    wanted_dtype = dtype_of(slot).as_numpy_dtype
    if numbers.dtype != wanted_dtype:
        with np.errstate(invalid="ignore"):  # of rows that are bad
            numbers = numbers.astype(wanted_dtype)
    return numbers


def _bad_values(slot: Column, values: np.ndarray) -> tuple[np.ndarray, str]:
    """Which labels, or ids of a one-hot slot, are out of range."""
    if slot.kind == "label" and slot.binary:
        return (values != 0) & (values != 1), "0 or 1"
    if slot.kind == "one_hot":
        bad = (values < 0) | (values >= limit(slot))
        return bad, f"a whole number from 0 to {limit(slot) - 1}"
    if slot.dtype != FLOAT and values.dtype == np.float32:
        return ~is_int64(values), "a whole number"
    return np.zeros(len(values), bool), ""


def _check_numbers(
    binding: Binding,
    numbers: np.ndarray,
    offsets: np.ndarray | None,
    faults: Faults,
) -> np.ndarray:
    """Keys checked against the slot's size, and shifted."""
    if not binding.limit:
        return numbers
    # Negative numbers are beyond every size.
    places = np.flatnonzero(numbers.view(np.uint64) >= binding.limit)
    if len(places):
        rows = places if offsets is None else _rows_of(offsets, places)
        first = dict(zip(rows[::-1].tolist(), numbers[places][::-1].tolist()))
        faults.add(
            rows,
            binding.column,
            lambda row: (
                f"found key {first[row]}, wanted 0 to {binding.limit - 1}"
            ),
        )
    return numbers + binding.offset if binding.offset else numbers


def _check_multiple(
    binding: Binding, offsets: np.ndarray, faults: Faults
) -> None:
    """A dense slot with a free dim needs a multiple of the others' product."""
    multiple = binding.slot.multiple
    counts = np.diff(offsets)
    faults.add(
        np.flatnonzero(counts % multiple),
        binding.column,
        lambda row: (
            f"found {counts[row]} values, wanted a multiple of {multiple}"
        ),
    )


def _check_weights(
    bindings: Sequence[Binding],
    columns: Mapping[int, np.ndarray | ColumnValues],
    faults: Faults,
) -> None:
    by_name = {b.slot.name: columns[i] for i, b in enumerate(bindings)}
    for binding, column in zip(bindings, columns.values()):
        of = binding.slot.weights_of
        if of not in by_name:
            continue
        weights, ids = lengths(column), lengths(by_name[of])

        def describe(
            row: int, weights: Any = weights, ids: Any = ids, of: Any = of
        ) -> str:
            return (
                f"found {weights[row]} weights, wanted {ids[row]}, one for each "
                f"value of {of!r}"
            )

        faults.add(np.flatnonzero(weights != ids), binding.column, describe)
