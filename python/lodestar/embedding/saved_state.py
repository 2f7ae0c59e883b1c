"""What is saved of an embedding variable, and what may be restored into one."""

import contextlib
import contextvars
import warnings
from collections.abc import Iterator, Mapping
from typing import Any

# What a checkpoint calls the outputs of EmbeddingExport, in their order.
NAMES = (
    "ids",
    "rows",
    "optimizer_slots",
    "frequencies",
    "last_seen",
    "optimizer",
    "slot_names",
    "slot_inits",
    "counters",
    "pending_ids",
    "pending_sightings",
    "pending_last_seen",
    "sketch",
    "shared_rows",
    "shared_slots",
)
# Of this thread: others may save a checkpoint meanwhile.
_with_optimizer_slots = contextvars.ContextVar(
    "with_optimizer_slots", default=True
)


@contextlib.contextmanager
def without_optimizer_slots() -> Iterator[None]:
    """Within, this thread saves tables without their optimizer slots."""
    token = _with_optimizer_slots.set(False)
    try:
        yield
    finally:
        _with_optimizer_slots.reset(token)


def with_optimizer_slots() -> bool:
    """Whether this thread saves tables with their optimizer slots."""
    return _with_optimizer_slots.get()


def check_dim(table: Any, dim: int | None) -> None:
    """Raises ValueError if rows of another `dim` than `table`'s come."""
    if dim not in (None, table.dim):
        raise ValueError(
            f"The saved table has dim {dim}, but {table!r} is to take it; "
            "wanted equal dims."
        )


def check(table: Any, saved: Mapping[str, Any]) -> None:
    """Checks what is to be restored; sizes that a graph hides are the op's.

    Warns of what only one of the two has, and so is left out or as it was.

    Args:
        table: The EmbeddingVariable that is to take it.
        saved: Arrays or tensors by the names of `NAMES`.

    Raises:
        ValueError: Rows of another dim.
    """
    check_dim(table, saved["rows"].shape[-1])
    pending, counters, shared = (
        saved[name].shape[0] or 0  # None in a graph that is being saved
        for name in ("pending_ids", "sketch", "shared_rows")
    )
    if (pending or counters) and not table.has_admission:
        _warn(
            f"{table!r} has no `admission`. Left out of the saved table: "
            f"{pending} ids that wait for a row, {counters} counters of a "
            "filter."
        )
    if shared and not table.shared_rows:
        _warn(
            f"{table!r} has no `SharedRows`. Left out of the saved table: "
            f"{shared} shared rows."
        )
    if not shared and table.shared_rows and saved["shared_rows"].shape[0] == 0:
        _warn(
            f"The saved table has no shared rows: {table!r} keeps the "
            f"{table.shared_rows} that it has."
        )


def _warn(message: str) -> None:
    warnings.warn(message, stacklevel=3)
