"""What a table holds, as plain arrays."""

from collections.abc import Mapping
from typing import Any, NamedTuple


class EmbeddingRows(NamedTuple):
    """Rows of an EmbeddingVariable with everything that belongs to them.

    Attributes:
        ids: int64 `[N]`; ascending where exported.
        rows: float32 `[N, D]`.
        optimizer_slots: name -> float32 `[N, D]`; empty: no optimizer attached.
        frequencies: int64 `[N]`, or None for an import that counts from 0.
        last_seen: int64 `[N]`, steps, or None for an import at the table's step.
        optimizer: The update rule that the optimizer slots belong to.
        slot_inits: name -> value that a new row's optimizer slot starts with.
    """

    ids: Any
    rows: Any
    optimizer_slots: Mapping[str, Any] = {}
    frequencies: Any = None
    last_seen: Any = None
    optimizer: str = ""
    slot_inits: Mapping[str, float] = {}


class InspectedIds(NamedTuple):
    """What `EmbeddingVariable.inspect` tells about N ids.

    Attributes:
        ids: int64 `[N]`.
        rows: float32 `[N, D]`, zeros without a row.
        optimizer_slots: name -> float32 `[N, D]`.
        frequencies: int64 `[N]`, sightings; those of pending ids too.
        last_seen: int64 `[N]`, steps; -1 where it is not known.
        shards: int64 `[N]`, where the ids belong.
        states: `"resident"`, `"pending"` (seen, but not admitted yet) or
            `"missing"` for each id.
    """

    ids: Any
    rows: Any
    optimizer_slots: Mapping[str, Any]
    frequencies: Any
    last_seen: Any
    shards: Any
    states: list[str]
