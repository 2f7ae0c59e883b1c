"""Columns of an Arrow table as the types that slots are read from.

Those of `parquet_schema.column_type`: float32, integers of 32 and 64 bits, and
lists of them.
"""

from collections.abc import Collection
from typing import Any

import numpy as np

from lodestar._errors import DataError
from lodestar.data.csv.hashing import hash_ids
from lodestar.data.parquet.parquet_rows import one_array
from lodestar.data.parquet.parquet_schema import FLOAT
from lodestar.data.schema import Column


def as_slot_column(
    column: Any, slot: Column, missing: Collection[str] | None, where: str
) -> Any:
    """A column as what its slot can be read from.

    Numbers become float32 for a slot of floats, texts the ids that `hash_ids`
    makes of them, bools and short integers int32.

    Args:
        column: A `pyarrow.ChunkedArray`.
        slot: The slot of its name.
        missing: None leaves nulls, which are errors when they are read. Else
            they, and these texts, are missing values: 0 in a dense slot, no
            value in a sparse one. A dense slot's list stays null.
        where: The column in errors.

    Returns:
        A `pyarrow.ChunkedArray` or `pyarrow.Array`. Of a type that the slot
        cannot have it is the column as it was, or its values.

    Raises:
        DataError: A number is beyond float32.
    """
    import pyarrow as pa

    array = one_array(column)
    types = pa.types
    drops = missing is not None and slot.kind == "sparse"
    fills = missing is not None and slot.kind == "dense"
    nulls = array.is_null() if array.null_count else None
    if drops and types.is_fixed_size_list(array.type):
        array = array.cast(pa.large_list(array.type.value_type))
    if types.is_list(array.type) or types.is_large_list(array.type):
        offsets = array.offsets.to_numpy().astype(np.int64)
        values = array.values.slice(offsets[0], offsets[-1] - offsets[0])
        values = _elements(values, slot, missing or (), where)
        offsets -= offsets[0]
        if drops:
            return _without_nulls(values, offsets, nulls)
        return pa.LargeListArray.from_arrays(
            pa.array(offsets), _filled(values) if fills else values, mask=nulls
        )
    if types.is_fixed_size_list(array.type):
        size = array.type.list_size
        values = array.values.slice(array.offset * size, len(array) * size)
        values = _elements(values, slot, missing or (), where)
        return pa.FixedSizeListArray.from_arrays(
            _filled(values) if fills else values, size, mask=nulls
        )
    values = _elements(array, slot, missing or (), where)
    if drops:
        return _without_nulls(values, np.arange(len(values) + 1))
    return _filled(values) if fills else values


def _filled(values: Any) -> Any:
    """Numbers with 0 in the place of nulls."""
    import pyarrow.types as types

    if types.is_integer(values.type) or types.is_floating(values.type):
        return values.fill_null(0)
    return values  # of a type that no dense slot can have


def _without_nulls(
    values: Any, offsets: np.ndarray, null_lists: Any = None
) -> Any:
    """Lists of the values between offsets, but for nulls and for null lists."""
    import pyarrow as pa

    if values.null_count or null_lists is not None:
        valid = values.is_valid().to_numpy(zero_copy_only=False)
        if null_lists is not None:  # which may have values all the same
            nulls = null_lists.to_numpy(zero_copy_only=False)
            valid = valid & ~np.repeat(nulls, np.diff(offsets))
        offsets = np.concatenate([[0], np.cumsum(valid)])[offsets]
        values = values.filter(pa.array(valid))
    return pa.LargeListArray.from_arrays(pa.array(offsets), values)


def is_text(arrow_type: Any) -> bool:
    """Whether values of the type are texts, of a dictionary or not."""
    import pyarrow.types as types

    if types.is_dictionary(arrow_type):
        arrow_type = arrow_type.value_type
    return (
        types.is_string(arrow_type)
        or types.is_large_string(arrow_type)
        or types.is_string_view(arrow_type)
    )


def is_number(arrow_type: Any) -> bool:
    """Whether values of the type are bools or numbers, or nothing but nulls."""
    import pyarrow.types as types

    if types.is_dictionary(arrow_type):
        arrow_type = arrow_type.value_type
    return (
        types.is_boolean(arrow_type)
        or types.is_integer(arrow_type)
        or types.is_floating(arrow_type)
        or types.is_decimal(arrow_type)
        or types.is_null(arrow_type)
    )


def _elements(
    array: Any, slot: Column, missing: Collection[str], where: str
) -> Any:
    """Values that are no lists, as those of the slot."""
    import pyarrow as pa

    types = pa.types
    holds_ids = slot.dtype != FLOAT and slot.kind == "sparse"
    if is_text(array.type):
        return _hashed(array, slot.name, missing) if holds_ids else array
    if types.is_dictionary(array.type):
        array = array.dictionary_decode()
    if not is_number(array.type):
        return array
    if (
        types.is_boolean(array.type)
        or types.is_null(array.type)
        or (types.is_integer(array.type) and array.type.bit_width < 32)
    ):
        array = array.cast(pa.int32())
    is_integer = types.is_integer(array.type)
    if slot.dtype != FLOAT and (is_integer or slot.kind != "label"):
        return array
    return _as_float32(array, where)


def _as_float32(array: Any, where: str) -> Any:
    import pyarrow as pa
    import pyarrow.compute as pc

    if pa.types.is_float32(array.type):
        return array
    wide = array.cast(pa.float64(), safe=False)
    floats = wide.cast(pa.float32(), safe=False)
    lost = pc.and_(pc.is_finite(wide), pc.invert(pc.is_finite(floats)))
    if pc.any(lost).as_py():
        place = pc.index(lost, True).as_py()
        raise DataError(
            f"{where}: value {place}: found {wide[place]}, wanted a float32"
        )
    return floats


def _hashed(array: Any, name: str, missing: Collection[str]) -> Any:
    """The ids of texts, int64; null for those that are missing."""
    import pyarrow as pa

    if not pa.types.is_dictionary(array.type):
        if pa.types.is_string_view(array.type):
            array = array.cast(pa.large_string())
        array = array.dictionary_encode()
    words = array.dictionary.to_pylist()
    nulls = np.array([w is None or w in missing for w in words], bool)
    ids = hash_ids(name, [word or "" for word in words])
    return pa.array(ids, mask=nulls).take(array.indices)
