"""Predicates and conversions for Arrow types."""

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

types = pa.types


def is_list(arrow_type: Any) -> bool:
    """Returns whether an Arrow type is a list type."""
    return (
        types.is_list(arrow_type)
        or types.is_large_list(arrow_type)
        or types.is_fixed_size_list(arrow_type)
        or is_list_view(arrow_type)
    )


def is_list_view(arrow_type: Any) -> bool:
    """Returns whether an Arrow type is a list view type."""
    return types.is_list_view(arrow_type) or types.is_large_list_view(
        arrow_type
    )


def without_views(array: Any) -> Any:
    """Converts list views to large lists.

    pyarrow 26 loses values in its own cast.
    """
    offsets = np.zeros(len(array) + 1, np.int64)
    sizes = pc.list_value_length(array).fill_null(0)
    np.cumsum(sizes.to_numpy(zero_copy_only=False), out=offsets[1:])
    return pa.LargeListArray.from_arrays(
        pa.array(offsets), array.flatten(), mask=array.is_null()
    )


def is_text(arrow_type: Any) -> bool:
    """Returns whether an Arrow type is a string or binary type."""
    return (
        types.is_string(arrow_type)
        or types.is_large_string(arrow_type)
        or types.is_string_view(arrow_type)
        or types.is_binary(arrow_type)
        or types.is_large_binary(arrow_type)
        or types.is_binary_view(arrow_type)
        or types.is_fixed_size_binary(arrow_type)
    )


def is_time(arrow_type: Any) -> bool:
    """Returns whether an Arrow type is a date, time or duration type."""
    return (
        types.is_date(arrow_type)
        or types.is_timestamp(arrow_type)
        or types.is_time(arrow_type)
        or types.is_duration(arrow_type)
    )


def as_text(array: Any) -> Any:
    """Returns strings or bytes as large strings, without surrounding whitespace.

    Strips ASCII whitespace, like `tf.strings.strip`, and escapes bytes that are not
    UTF-8.
    """
    if types.is_fixed_size_binary(array.type):
        array = array.cast(pa.binary())
    try:
        array = array.cast(pa.large_string())
    except pa.ArrowInvalid:
        texts = [
            None if b is None else b.decode("utf-8", "backslashreplace")
            for b in array.cast(pa.large_binary()).to_pylist()
        ]
        array = pa.array(texts, pa.large_string())
    return pc.ascii_trim_whitespace(array)


def stripped(array: Any, text: Any) -> Any:
    """Returns the stripped bytes to hash, given `text` from `as_text`.

    Bytes that are not UTF-8 are not escaped.
    """
    is_escaped = types.is_binary(array.type) or types.is_large_binary(
        array.type
    )
    if not is_escaped or pc.all(
        pc.less_equal(pc.binary_length(text), pc.binary_length(array))
    ).as_py() in (True, None):
        return text
    return pa.array(
        [None if b is None else b.strip() for b in array.to_pylist()],
        pa.large_binary(),
    )
