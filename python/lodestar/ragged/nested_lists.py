"""LoDTensors from nested Python lists."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from lodestar._checks import as_dtype_of, check_count
from lodestar.ragged.arguments import Parts


def _is_list(item: Any) -> bool:
    return isinstance(item, (list, tuple)) or (
        isinstance(item, np.ndarray) and item.ndim > 0
    )


def _place(indices: Sequence[int]) -> str:
    return "`rows" + "".join(f"[{i}]" for i in indices) + "`"


def _depth(item: Any) -> int:
    """Returns the depth of nested lists, by the deepest."""
    if not _is_list(item):
        return 0
    return 1 + max((_depth(inner) for inner in item), default=0)


def _shape(item: Any) -> tuple[int, ...]:
    """Returns the shape of nested lists, by the first item of each."""
    if not _is_list(item):
        return ()
    return (len(item), *(_shape(item[0]) if len(item) else ()))


def _check_shape(
    item: Any, shape: tuple[int, ...], place: Sequence[int]
) -> None:
    if not shape:
        if _is_list(item):
            raise ValueError(f"{_place(place)} must be a number, got a list.")
        return
    if not _is_list(item) or len(item) != shape[0]:
        raise ValueError(
            f"{_place(place)} must be a list of {shape[0]}, like the first "
            f"row, got {item!r}."
        )
    for i, inner in enumerate(item):
        _check_shape(inner, shape[1:], [*place, i])


def _convert(items: Any, dtype: tf.DType | None) -> tf.Tensor:
    if dtype is None:
        return tf.convert_to_tensor(items)
    return as_dtype_of("rows", items, dtype, "`dtype`")


def _as_tensor(
    items: Sequence[Any] | np.ndarray,
    places: list[Any],
    shape: tuple[int, ...],
    dtype: tf.DType | None,
) -> tf.Tensor:
    if not items:
        return tf.zeros([0, *shape], dtype or tf.float32)
    if isinstance(items[0], (np.ndarray, np.generic)):
        items = np.array(items)
    try:
        return _convert(items, dtype)
    except (TypeError, ValueError, tf.errors.OpError) as error:
        for item, place in zip(items, places, strict=True):
            try:
                dtype = _convert(item, dtype).dtype
            except (TypeError, ValueError, tf.errors.OpError):
                wanted = "a number or string" if dtype is None else dtype.name
                raise ValueError(
                    f"{_place(place)} must be {wanted}, got {item!r}."
                ) from error
        raise


def from_nested_lists(rows: Any, dtype: Any, num_levels: int | None) -> Parts:
    """Returns the values and levels of nested lists."""
    if not _is_list(rows):
        raise TypeError(f"`rows` must be nested lists, got {type(rows)}.")
    depth = _depth(rows)
    if num_levels is None:
        num_levels = max(depth - 1, 1)
    check_count("num_levels", num_levels, 0)
    items, places = list(rows), [[i] for i in range(len(rows))]
    levels = []
    for _ in range(num_levels):
        offsets, inner_items, inner_places = [0], [], []
        for item, place in zip(items, places, strict=True):
            if not _is_list(item):
                raise ValueError(
                    f"{_place(place)} must be a list, because there are "
                    f"{num_levels} levels, got {item!r}."
                )
            inner_items.extend(item)
            inner_places += [[*place, i] for i in range(len(item))]
            offsets.append(len(inner_items))
        levels.append(tf.constant(offsets, tf.int64))
        items, places = inner_items, inner_places
    shape = _shape(items[0]) if items else ()
    for item, place in zip(items, places, strict=True):
        _check_shape(item, shape, place)
    dtype = None if dtype is None else tf.as_dtype(dtype)
    return _as_tensor(items, places, shape, dtype), tuple(levels)
