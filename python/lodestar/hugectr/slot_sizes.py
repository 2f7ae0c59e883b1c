"""Offsets that make the keys of several slots unique."""

import itertools
from collections.abc import Iterable, Sequence

from lodestar._checks import is_integer
from lodestar.schema import Column


def slot_offsets(
    schema: Iterable[Column], slot_size_array: Sequence[int]
) -> list[int]:
    """Returns the offset of each slot's keys: the sum of the sizes before it.

    The size of a slot in `slot_size_array` is its largest key + 1. Raises ValueError
    unless there is one positive size per slot, and no one-hot slot.
    """
    schema, sizes = list(schema), list(slot_size_array)
    for slot in schema:
        if slot.kind == "one_hot":
            raise ValueError(
                "`slot_size_array` is for sparse slots, but "
                f"{slot.name!r} is a one-hot slot, which has its own size."
            )
    if len(sizes) != len(schema):
        raise ValueError(
            f"`slot_size_array` must have a size for each of the {len(schema)} "
            f"slots of ids, {', '.join(slot.name for slot in schema)}, got "
            f"{len(sizes)}."
        )
    if not all(is_integer(s) and s > 0 for s in sizes):
        raise ValueError(
            f"`slot_size_array` must have positive integers, got {sizes}."
        )
    offsets = list(itertools.accumulate(map(int, sizes), initial=0))
    if offsets[-1] > 2**63 - 1:
        raise ValueError(
            "The sum of `slot_size_array` must be less than 2**63, got "
            f"{offsets[-1]}."
        )
    return offsets[:-1]
