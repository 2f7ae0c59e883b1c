"""Keys of several slots, shifted past one another."""

import itertools
from collections.abc import Iterable, Sequence

from lodestar._checks import is_integer
from lodestar.data.schema import Column


def slot_offsets(
    schema: Iterable[Column], slot_size_array: Sequence[int]
) -> list[int]:
    """What is added to each slot's keys: the sizes of the slots before it.

    Args:
        schema: The slots of keys, in order.
        slot_size_array: For each of them one more than its largest key.

    Raises:
        ValueError: Not one positive size for each, or one for a one-hot slot.
    """
    schema, sizes = list(schema), list(slot_size_array)
    for slot in schema:
        if slot.kind == "one_hot":
            raise ValueError(
                "`slot_size_array` shifts the keys of sparse slots, but "
                f"{slot.name!r} is a one-hot slot, with its own size."
            )
    if len(sizes) != len(schema):
        raise ValueError(
            f"`slot_size_array` has {len(sizes)} sizes, wanted one for each of "
            f"the {len(schema)} slots of ids: "
            f"{', '.join(slot.name for slot in schema)}."
        )
    if not all(is_integer(s) and s > 0 for s in sizes):
        raise ValueError(
            f"`slot_size_array` must hold positive integers, found {sizes}."
        )
    offsets = list(itertools.accumulate(map(int, sizes), initial=0))
    if offsets[-1] > 2**63 - 1:
        raise ValueError(
            f"`slot_size_array` adds up to {offsets[-1]}, beyond int64."
        )
    return offsets[:-1]
