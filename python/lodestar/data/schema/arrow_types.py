"""Kinds of Arrow types."""

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

types = pa.types


def is_list(arrow_type: Any) -> bool:
    """Returns whether values of an Arrow type are lists."""
    return (
        types.is_list(arrow_type)
        or types.is_large_list(arrow_type)
        or types.is_fixed_size_list(arrow_type)
        or is_list_view(arrow_type)
    )


def is_list_view(arrow_type: Any) -> bool:
    """Returns whether values of an Arrow type are views of lists."""
    return types.is_list_view(arrow_type) or types.is_large_list_view(
        arrow_type
    )


def without_views(array: Any) -> Any:
    """Returns views of lists as large lists.

    pyarrow 26 loses values when it casts them.
    """
    offsets = np.zeros(len(array) + 1, np.int64)
    sizes = pc.list_value_length(array).fill_null(0)
    np.cumsum(sizes.to_numpy(zero_copy_only=False), out=offsets[1:])
    return pa.LargeListArray.from_arrays(
        pa.array(offsets), array.flatten(), mask=array.is_null()
    )


def is_text(arrow_type: Any) -> bool:
    """Returns whether values of an Arrow type are strings or bytes."""
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
    """Returns whether values of an Arrow type are times or durations."""
    return (
        types.is_date(arrow_type)
        or types.is_timestamp(arrow_type)
        or types.is_time(arrow_type)
        or types.is_duration(arrow_type)
    )


def as_text(array: Any) -> Any:
    """Returns strings or bytes as large strings without whitespace around them.

    It is ASCII whitespace that is removed, as `tf.strings.strip` does. Bytes
    that are not UTF-8 are escaped.
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
    """Returns what is hashed of strings or bytes whose text is `as_text`.

    Bytes that are not UTF-8 stay as they are.
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
