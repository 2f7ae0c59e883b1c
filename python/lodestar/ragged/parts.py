"""Concatenation and slicing of LoDTensors."""

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from lodestar._checks import as_int64, is_integer
from lodestar.ragged.arguments import Parts, check_rows_like


def concat(parts: Sequence[Parts]) -> Parts:
    """Concatenates the units of all parts at every level."""
    if not parts:
        raise ValueError("`tensors` must have at least one LoDTensor, got [].")
    first, first_levels = parts[0]
    for i, (values, levels) in enumerate(parts):
        if len(levels) != len(first_levels):
            raise ValueError(
                f"`tensors[{i}]` has {len(levels)} levels, but `tensors[0]` "
                f"has {len(first_levels)}."
            )
        check_rows_like(f"tensors[{i}]", values, "`tensors[0]`", first)
    joined = []
    for k in range(len(first_levels)):
        pieces = [first_levels[k]]
        end = first_levels[k][-1]
        for _, levels in parts[1:]:
            pieces.append(levels[k][1:] + end)
            end += levels[k][-1]
        joined.append(tf.concat(pieces, 0))
    return tf.concat([values for values, _ in parts], 0), tuple(joined)


def split_points(units: int | tf.Tensor, num_places: int) -> list[Any]:
    """Returns the bounds of the parts of `units`.

    There are `num_places` parts, or one per unit if Python knows of fewer units; the
    last part gets the remainder. Without units every place gets an empty part.
    """
    if isinstance(units, int):
        count = min(units, num_places) or num_places
        size = units // count
        return [i * size for i in range(count)] + [units]
    count = tf.minimum(units, num_places)
    size = units // tf.maximum(count, 1)
    return [tf.where(i < count, i * size, units) for i in range(num_places)] + [
        units
    ]


def unit_index(key: Any, count: int | tf.Tensor) -> Any:
    """Returns the index of unit `key` among `count`."""
    if tf.is_tensor(key):
        key = as_int64("key", key, 0)
        static = tf.get_static_value(key)
        key = key if static is None else int(static)
    elif not is_integer(key):
        raise TypeError(
            f"The index of a unit must be an integer or a slice, got {key!r}."
        )
    if isinstance(key, tf.Tensor) or isinstance(count, tf.Tensor):
        return tf.where(key < 0, key + count, key)
    if not -count <= key < count:
        raise IndexError(f"There is no unit {key}, only {count} units.")
    return key % count


def slice_bounds(key: slice, count: int | tf.Tensor) -> tuple[Any, Any]:
    """Returns the bounds of a slice of `count` units."""
    if key.step not in (None, 1):
        raise ValueError(f"The step of a slice must be 1, got {key.step!r}.")
    bounds = (key.start, key.stop)
    if isinstance(count, int) and all(
        bound is None or is_integer(bound) for bound in bounds
    ):
        begin, end, _ = key.indices(count)
        return begin, max(begin, end)
    begin, end = (
        as_int64(name, default if bound is None else bound, 0)
        for name, bound, default in zip(
            ("begin", "end"), bounds, (0, count), strict=True
        )
    )
    begin, end = (
        tf.clip_by_value(tf.where(x < 0, x + count, x), 0, count)
        for x in (begin, end)
    )
    return begin, tf.maximum(begin, end)
