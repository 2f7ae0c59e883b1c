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
