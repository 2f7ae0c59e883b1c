"""What a table holds, as plain arrays."""

from collections.abc import Mapping
from typing import Any, NamedTuple


class EmbeddingRows(NamedTuple):
    """Rows of an EmbeddingVariable with everything that belongs to them.

    Attributes:
        ids: int64 `[N]`; ascending where exported.
        rows: `[N, D]`, of the table's dtype.
        optimizer_slots: name -> `[N, D]`, float64 for rows of float64, else
            float32; empty: no optimizer attached.
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
        rows: `[N, D]`, of the table's dtype; zeros without a row.
        optimizer_slots: name -> `[N, D]`, as those of EmbeddingRows.
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
