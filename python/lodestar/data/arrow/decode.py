"""Decodes the columns of Arrow tables into the values of declared columns."""

import dataclasses
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lodestar._errors import DataError
from lodestar.data.arrow.elements import Elements, read_elements
from lodestar.data.arrow.faults import Fault, Faults
from lodestar.data.binding import Binding
from lodestar.data.sample_columns import (
    ColumnValues,
    concat,
    cut,
    lengths,
    take,
)
from lodestar.data.schema_layout import dtype_of, limit
from lodestar.schema import Column
from lodestar.schema.arrow_types import (
    as_text,
    is_list,
    is_list_view,
    is_text,
    without_views,
)
from lodestar.schema.column import JSON
from lodestar.schema.domain import expected, to_float32
from lodestar.schema.json_text import json_texts, parse_json

types = pa.types


@dataclasses.dataclass(frozen=True)
class Rows:
    """Rows of all bound columns.

    `columns` maps the index of a binding to its values, `[num_rows, width]` or
    `ColumnValues`, int64 or float32. Values of rows in `bad` are arbitrary.
    """

    num_rows: int
    columns: Mapping[int, Any]
    bad: dict[int, Fault] = dataclasses.field(default_factory=dict)

    def take(self, rows: np.ndarray) -> "Rows":
        """Returns the rows with these indices. Requires: none of them is bad."""
        return Rows(len(rows), take(self.columns, rows))

    def good(self, begin: int, end: int) -> "Rows":
        """Returns the rows in [begin, end) that are not bad."""
        if not self.bad and (begin, end) == (0, self.num_rows):
            return self
        rows = np.arange(begin, end)
        if self.bad:
            rows = np.setdiff1d(rows, list(self.bad), assume_unique=True)
        if len(rows) != end - begin:
            return self.take(rows)
        return Rows(end - begin, cut(self.columns, begin, end))


def decode_rows(
    bindings: Sequence[Binding],
    table: Any,
    na_values: Collection[str],
    faults: Faults,
) -> Rows:
    """Decodes the bound columns of a table and checks every value.

    Requires: the table has each source exactly once. `faults` receives the bad
    rows. Raises DataError if a column's type can never be read as declared.
    """
    columns = {}
    for number, binding in enumerate(bindings):
        try:
            columns[number] = _decode(
                binding, table.column(binding.source), na_values, faults
            )
        except DataError as error:
            raise DataError(f"column {binding.source!r}: {error}") from error
    _check_weights(bindings, columns, faults)
    return Rows(table.num_rows, columns, faults.found)


def wide(column: Any) -> Any:
    """Returns the chunks of a `pyarrow.ChunkedArray` to decode one by one.

    Strings and lists are combined into one array with 64-bit offsets, because
    32-bit offsets are limited to 2^31 - 1 bytes or values. Dictionary chunks stay
    separate, because each may have its own dictionary.
    """
    if column.num_chunks < 2 or _has_dictionary(column.type):
        return column.chunks
    try:
        combined = column.cast(_with_wide_offsets(column.type)).combine_chunks()
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        return column.chunks
    return (
        combined.chunks if isinstance(combined, pa.ChunkedArray) else [combined]
    )


def _has_dictionary(arrow_type: Any) -> bool:
    if types.is_dictionary(arrow_type):
        return True
    if types.is_nested(arrow_type):
        return any(
            _has_dictionary(arrow_type.field(i).type)
            for i in range(arrow_type.num_fields)
        )
    return False


def _with_wide_offsets(arrow_type: Any) -> Any:
    if types.is_string(arrow_type):
        return pa.large_string()
    if types.is_binary(arrow_type):
        return pa.large_binary()
    if types.is_list(arrow_type) or types.is_large_list(arrow_type):
        return pa.large_list(_with_wide_offsets(arrow_type.value_type))
    return arrow_type


@dataclasses.dataclass
class _Lists:
    """An array of nested lists: its leaves, without lists, and each level of lists.

    A level, outermost first, has int64 offsets and a null mask or None.
    """

    leaf: Any
    offsets: list[np.ndarray]
    nulls: list[np.ndarray | None]


def _decode(
    binding: Binding, chunked: Any, na_values: Collection[str], faults: Faults
) -> Any:
    parts: list[Any] = []
    first = 0
    for array in wide(chunked):
        parts.append(_decode_array(binding, array, na_values, faults, first))
        first += len(array)
    if not parts:
        empty = pa.array([], chunked.type)
        parts.append(_decode_array(binding, empty, na_values, faults, 0))
    if len(parts) == 1:
        return parts[0]
    return concat([{0: part} for part in parts])[0]


def _decode_array(
    binding: Binding,
    array: Any,
    na_values: Collection[str],
    faults: Faults,
    first: int,
) -> Any:
    column = binding.column
    advice = _advice(column)

    def add(rows: np.ndarray, describe: Any) -> None:
        faults.add(
            rows + first,
            binding.source,
            lambda row: describe(row - first),
            advice,
        )

    array = _split(array, column, na_values, add)
    lists = _unnested(array)
    depth = len(lists.offsets)
    if depth > max(column.depth, 1) or (depth and column.kind == "one_hot"):
        allowed = "one value per row"
        if column.kind != "one_hot":
            levels = "level" if column.depth == 1 else "levels"
            allowed = f"at most {column.depth} {levels} of lists"
        raise DataError(f"found the type {array.type}, expected {allowed}")
    if depth < column.depth and column.depth > 1:
        raise DataError(
            f"found the type {array.type}, expected lists of lists, as `depth` "
            "says"
        )
    elements = read_elements(lists.leaf, column, na_values)
    if column.kind == "sparse" and column.dtype == "float" and depth:
        # In a list of floats, NaN is a value rather than a missing one.
        is_nan = np.isnan(elements.values)
        if elements.missing is not None and is_nan.any():
            elements = elements._replace(missing=elements.missing & ~is_nan)
    if len(elements.bad):
        _of_rows(lists.offsets, add)(
            elements.bad,
            lambda place: elements.describe(place) + _inferred(column),
        )
    if column.missing_is_error:
        _refuse_missing(column, lists, elements, add)
    if column.kind == "sparse":
        return _sparse(binding, lists, elements, add)
    return _fixed(binding, lists, elements, add, len(array))


def _inferred(column: Column) -> str:
    if column.why == "declared":
        return ""
    return f"; inferred to be {column.describe()}: {column.why}"


def _advice(column: Column) -> str:
    if (
        not column.is_feature
        or column.kind == "one_hot"
        or column.why == "declared"
    ):
        return "`on_error='skip'` leaves such rows out"
    return "declare the column in a schema, or use `on_error='skip'`"


def _split(
    array: Any, column: Column, na_values: Collection[str], add: Any
) -> Any:
    """Splits strings that hold several values into lists of strings."""
    if (
        column.separator is not None
        and column.depth == 1
        and is_list(array.type)
        and is_text(array.type.value_type)
    ):
        return _split_lists(array, column, na_values, add)
    many = column.kind == "sparse" or column.num_values != 1
    if not is_text(array.type) or not many and column.separator is None:
        if not (
            types.is_dictionary(array.type) and is_text(array.type.value_type)
        ):
            return array
        if column.separator is None and (not many or column.encoding == "hash"):
            return array
        array = array.dictionary_decode()
    if column.separator is None:
        if not many or column.encoding == "hash":
            return array
        array = as_text(array)
        if not pc.any(pc.match_substring_regex(array, r"\s")).as_py():
            return array
        missing = pc.is_in(
            array, value_set=pa.array(na_values, pa.large_string())
        )
        array = pc.if_else(missing, None, array)
        return pc.utf8_split_whitespace(array)
    array = as_text(array)
    missing = pc.is_in(array, value_set=pa.array(na_values, pa.large_string()))
    array = pc.if_else(missing, None, array)
    if column.separator == JSON:
        return _json_lists(array, column, add)
    return pc.split_pattern(array, column.separator)


def _split_lists(
    array: Any, column: Column, na_values: Collection[str], add: Any
) -> Any:
    """Replaces each string in lists by the values that it holds."""
    lists = without_views(array) if is_list_view(array.type) else array
    lists = lists.cast(pa.large_list(lists.type.value_type))
    ends = lists.offsets.to_numpy()
    texts = lists.values.slice(int(ends[0]), int(ends[-1] - ends[0]))
    ends = ends - ends[0]
    split = _split(texts, column, na_values, _of_rows([ends], add))
    splits = split.offsets.to_numpy()[ends].astype(np.int64)
    # A list of missing strings is missing, unlike one without strings.
    is_missing = (np.diff(splits) == 0) & (np.diff(ends) > 0)
    is_missing |= lists.is_null().to_numpy(zero_copy_only=False)
    return pa.LargeListArray.from_arrays(
        pa.array(splits), split.values, mask=pa.array(is_missing)
    )


def _json_lists(array: Any, column: Column, add: Any) -> Any:
    texts = array.to_pylist()
    found: list[Any] = []
    bad = []
    for row, text in enumerate(texts):
        try:
            value = None if text is None else parse_json(text)
            found.append(json_texts(value, column))
        except ValueError:
            found.append(None)
            bad.append(row)
    add(
        np.array(bad, np.int64),
        lambda row: (
            f"found {texts[row]!r}, expected a JSON list of "
            f"{'lists of ' * (column.depth - 1)}"
            f"{'strings' if column.strings_only else 'values'}"
        ),
    )
    arrow_type = pa.large_string()
    for _ in range(column.depth):
        arrow_type = pa.large_list(arrow_type)
    return pa.array(found, arrow_type)


def _unnested(array: Any) -> _Lists:
    offsets: list[np.ndarray] = []
    nulls: list[np.ndarray | None] = []
    while True:
        arrow_type = array.type
        if isinstance(arrow_type, pa.ExtensionType):
            array = array.storage
            continue
        if is_list_view(arrow_type):
            array = without_views(array)
            continue
        null = None
        if array.null_count:
            null = array.is_null().to_numpy(zero_copy_only=False)
        if types.is_fixed_size_list(arrow_type):
            size = arrow_type.list_size
            offsets.append(np.arange(len(array) + 1, dtype=np.int64) * size)
            values = array.values.slice(array.offset * size, len(array) * size)
        elif types.is_list(arrow_type) or types.is_large_list(arrow_type):
            ends = array.offsets.to_numpy().astype(np.int64)
            values = array.values.slice(int(ends[0]), int(ends[-1] - ends[0]))
            offsets.append(ends - ends[0])
        else:
            return _Lists(array, offsets, nulls)
        nulls.append(null)
        array = values


def _rows_of(offsets: Sequence[np.ndarray], places: np.ndarray) -> np.ndarray:
    """Returns the rows that contain the leaves at these positions."""
    for level in reversed(offsets):
        places = np.searchsorted(level, places, side="right") - 1
    return places


def _of_rows(offsets: Sequence[np.ndarray], add: Any) -> Any:
    """Returns a function that adds the rows of leaves; see `Faults.add`."""

    def add_leaves(places: np.ndarray, describe: Any) -> None:
        rows = _rows_of(offsets, places)
        first = dict(zip(rows[::-1].tolist(), places[::-1].tolist()))
        add(rows, lambda row: describe(first[row]))

    return add_leaves


def _refuse_missing(
    column: Column, lists: _Lists, elements: Elements, add: Any
) -> None:
    for level, null in enumerate(lists.nulls):
        if null is not None:
            rows = _rows_of(lists.offsets[:level], np.flatnonzero(null))
            add(rows, lambda row: "found null, expected a list")
    if elements.missing is not None:
        rows = _rows_of(lists.offsets, np.flatnonzero(elements.missing))
        allowed = "which it must not have"
        if column.kind == "label":
            allowed += " unless the label is declared `optional=True`"
        add(rows, lambda row: f"found a missing value, {allowed}")


def _sparse(
    binding: Binding, lists: _Lists, elements: Elements, add: Any
) -> Any:
    """Returns the present values and their row splits."""
    values = elements.values
    if not lists.offsets and (
        elements.missing is None or not elements.missing.any()
    ):
        ends = [np.arange(len(values) + 1)] if binding.limit else []
        return _limited(binding, values, ends, add)[:, np.newaxis]
    offsets = lists.offsets or [np.arange(len(values) + 1, dtype=np.int64)]
    valid = None if elements.missing is None else ~elements.missing
    for level, null in enumerate(lists.nulls):
        if null is None:
            continue
        # A null list may still have values.
        for below in offsets[level : len(offsets)]:
            null = np.repeat(null, np.diff(below))
        valid = ~null if valid is None else valid & ~null
    splits = offsets[-1]
    if valid is not None and not valid.all():
        kept = np.zeros(len(valid) + 1, np.int64)
        np.cumsum(valid, out=kept[1:])
        splits = kept[splits]
        values = values[valid]
    values = _limited(binding, values, [*offsets[:-1], splits], add)
    found = ColumnValues(values, splits)
    if len(offsets) == 1:
        return found
    return ColumnValues(found, offsets[0])


def _limited(
    binding: Binding, values: np.ndarray, offsets: list[np.ndarray], add: Any
) -> np.ndarray:
    """Checks ids against the limit, and shifts them by the offset."""
    if not binding.limit:
        return values
    # As unsigned integers, negative ids exceed every limit.
    places = np.flatnonzero(values.view(np.uint64) >= binding.limit)
    if len(places):
        rows = _rows_of(offsets, places)
        first = dict(zip(rows[::-1].tolist(), values[places][::-1].tolist()))
        add(
            rows,
            lambda row: (
                f"found the id {first[row]}, expected one in "
                f"[0, {binding.limit - 1}]"
            ),
        )
    return values + binding.offset if binding.offset else values


def _fixed(
    binding: Binding, lists: _Lists, elements: Elements, add: Any, rows: int
) -> Any:
    """Returns the values of a label, dense or one-hot column."""
    column = binding.column
    values = elements.values
    if elements.missing is not None:
        fill = column.fill_value if column.kind == "dense" else None
        if column.optional:
            fill = np.nan
        elif not isinstance(fill, (int, float)):
            fill = 0
        values = np.where(elements.missing, values.dtype.type(fill), values)
    width = binding.width if binding.part is not None else column.num_values
    offsets = None
    if lists.offsets:
        values, offsets = _filled_lists(column, lists, values, width)
    if width is None:
        if offsets is None:  # at most one value per row
            offsets = np.arange(rows + 1, dtype=np.int64)
            if elements.missing is not None:
                values = values[~elements.missing]
                np.cumsum(~elements.missing, out=offsets[1:])
        counts = np.diff(offsets)
        add(
            np.flatnonzero(counts % column.multiple),
            lambda row: (
                f"found {counts[row]} values, expected a multiple of "
                f"{column.multiple}"
            ),
        )
        return ColumnValues(_typed(column, values), offsets)
    if offsets is not None:
        values = _of_width(values, offsets, width, add)
    elif width != 1:
        add(
            np.arange(rows),
            lambda row: f"found 1 value, expected {width} per row",
        )
        values = np.zeros(rows * width, values.dtype)
    numbers = values.reshape(-1, width)
    if binding.part is not None:
        numbers = numbers[:, binding.part : binding.part + 1]
    if column.kind == "one_hot" or not column.is_feature:
        (checked,) = numbers.T
        bad, allowed = _bad_values(column, checked)
        add(
            np.flatnonzero(bad),
            lambda row: (
                f"found {checked[row]}, expected {allowed}{_inferred(column)}"
            ),
        )
    return _typed(column, numbers)


def _filled_lists(
    column: Column, lists: _Lists, values: np.ndarray, width: int | None
) -> tuple[np.ndarray, np.ndarray]:
    """Returns values and offsets with null lists filled."""
    (offsets,) = lists.offsets
    (null,) = lists.nulls
    if null is None or column.missing_is_error:
        return values, offsets
    counts = np.where(null, width or 0, np.diff(offsets))
    filled = np.zeros(len(counts) + 1, np.int64)
    np.cumsum(counts, out=filled[1:])
    fill = (
        column.fill_value if isinstance(column.fill_value, (int, float)) else 0
    )
    found = np.full(int(filled[-1]), fill, values.dtype)
    kept = np.repeat(~null, np.diff(offsets))
    found[np.repeat(~null, counts)] = values[kept]
    return found, filled


def _of_width(
    values: np.ndarray, offsets: np.ndarray, width: int, add: Any
) -> np.ndarray:
    """Flattens lists to `[rows * width]`; reports lists of another length."""
    counts = np.diff(offsets)
    bad = np.flatnonzero(counts != width)
    if not len(bad):
        return values
    add(bad, lambda row: f"found {counts[row]} values, expected {width}")
    fixed = np.zeros((len(counts), width), values.dtype)
    good = np.flatnonzero(counts == width)
    if len(good):
        fixed[good] = values[offsets[good, np.newaxis] + np.arange(width)]
    return fixed.reshape(-1)


def _bad_values(column: Column, values: np.ndarray) -> tuple[np.ndarray, str]:
    """Returns a mask of invalid targets or one-hot ids, and the allowed values."""
    is_missing = column.optional & np.isnan(values)
    if column.kind == "label" and column.binary:
        return (values != 0) & (values != 1) & ~is_missing, "0 or 1"
    if column.kind == "one_hot":
        bad = (values < 0) | (values >= limit(column))
        return bad, f"an integer in [0, {limit(column) - 1}]"
    if values.dtype == np.float32:
        return ~np.isfinite(values) & ~is_missing, "a finite number"
    return to_float32(column, values)[1], expected(column)


def _typed(column: Column, values: np.ndarray) -> np.ndarray:
    wanted = dtype_of(column).as_numpy_dtype
    if values.dtype == wanted:
        return values
    with np.errstate(invalid="ignore"):  # bad rows hold arbitrary values
        return values.astype(wanted)


def _check_weights(
    bindings: Sequence[Binding],
    columns: Mapping[int, Any],
    faults: Faults,
) -> None:
    by_name = {b.column.name: columns[i] for i, b in enumerate(bindings)}
    for binding, values in zip(bindings, columns.values()):
        of = binding.column.weights_of
        if of not in by_name:
            continue
        weights, ids = lengths(values), lengths(by_name[of])

        def describe(
            row: int, weights: Any = weights, ids: Any = ids, of: Any = of
        ) -> str:
            return (
                f"found {weights[row]} weights, expected {ids[row]}, one for "
                f"each value of {of!r}"
            )

        faults.add(np.flatnonzero(weights != ids), binding.source, describe)
