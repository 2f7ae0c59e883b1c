"""The saved state of an embedding variable."""

import contextlib
import contextvars
import warnings
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import tensorflow as tf

from lodestar._resource import scalar_if_empty, unless_scalar
from lodestar.embedding import ids as ids_lib
from lodestar.embedding import stored_rows
from lodestar.embedding.rows import EmbeddingRows

# Checkpoint names of the outputs of EmbeddingExport, in order.
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
_NEVER_EMPTY = ("rows", "optimizer", "counters")


class _Serving(NamedTuple):
    dtype: str | None


# Per thread: others may save a checkpoint at the same time.
_serving: contextvars.ContextVar[_Serving | None] = contextvars.ContextVar(
    "serving", default=None
)


@contextlib.contextmanager
def for_serving(dtype: str | None = None) -> Iterator[None]:
    """Makes this thread save tables without slots, and with rows of `dtype`."""
    token = _serving.set(_Serving(dtype))
    try:
        yield
    finally:
        _serving.reset(token)


def with_optimizer_slots() -> bool:
    """Whether this thread saves tables with their optimizer slots."""
    return _serving.get() is None


def stored_dtype(row_dtype: tf.DType) -> str | None:
    """Returns the dtype in which this thread saves rows; None: `row_dtype`."""
    serving = _serving.get()
    dtype = serving and serving.dtype
    return dtype if stored_rows.is_smaller(dtype, row_dtype) else None


def check_dim(table: Any, dim: int | None) -> None:
    """Raises ValueError if the rows of `table` have another `dim`."""
    if dim not in (None, table.output_dim):
        raise ValueError(
            f"The saved table has dim {dim}, but {table!r} needs dim "
            f"{table.output_dim}."
        )


def check(table: Any, saved: Mapping[str, Any]) -> None:
    """Checks saved tensors before `table` loads them.

    Warns about content that only one of the two has, which is left out or kept. The
    op checks sizes that are unknown in a graph.

    Raises:
        ValueError: The rows have another dim.
    """
    check_dim(table, saved["rows"].shape[-1])
    pending, counters, shared = (
        saved[name].shape[0] or 0  # None in a graph that is being saved
        for name in ("pending_ids", "sketch", "shared_rows")
    )
    if (pending or counters) and table.admission is None:
        _warn(
            f"{table!r} has no `admission`. Ignored from the saved table: "
            f"{pending} ids that wait for admission, {counters} counters of a "
            "filter."
        )
    if shared and not table._shared_row_count:
        _warn(
            f"{table!r} has no `SharedRows`. Ignored from the saved table: "
            f"{shared} shared rows."
        )
    if (
        not shared
        and table._shared_row_count
        and saved["shared_rows"].shape[0] == 0
    ):
        _warn(
            f"The saved table has no shared rows: {table!r} keeps its "
            f"{table._shared_row_count} shared rows."
        )


def to_checkpoint(
    name: str, saved: Mapping[str, tf.Tensor]
) -> dict[str, tf.Tensor]:
    """Returns `saved`, of the table `name`, in the form of a checkpoint.

    Rows have the `stored_dtype`. Empty tensors, which TensorFlow cannot restore,
    are replaced. `from_checkpoint` reverts this. Rows keep their dim for its
    check.

    Raises:
        ValueError: The dtype cannot hold a row.
    """
    written = {
        name: value if name in _NEVER_EMPTY else scalar_if_empty(value)
        for name, value in saved.items()
    }
    rows = saved["rows"]
    dtype = stored_dtype(rows.dtype)
    if dtype is not None:
        with tf.device(rows.device):
            rows = stored_rows.encode(rows, dtype, f"The table {name!r}")
        written["rows"] = rows
    if tf.executing_eagerly() and not rows.shape[0]:
        with tf.device(rows.device):
            written["rows"] = tf.zeros([1, rows.shape[1]], rows.dtype)
    return written


def from_checkpoint(
    table: Any, written: Mapping[str, tf.Tensor]
) -> dict[str, tf.Tensor]:
    """Returns the saved tensors of a checkpoint, checked by `check`."""
    saved = {
        name: value if name in _NEVER_EMPTY else unless_scalar(value)
        for name, value in written.items()
    }
    slots, num_ids = tf.size(saved["slot_names"]), tf.size(saved["ids"])
    rows = stored_rows.decode(written["rows"][:num_ids], table._row_dtype)
    saved["rows"] = rows
    dim = tf.shape(rows)[1]
    shared = saved["shared_rows"]
    saved["shared_rows"] = tf.reshape(shared, [tf.size(shared) // dim, dim])
    width = tf.where(is_row_wise(saved["optimizer"]), 1, dim)
    for name, per_row in (
        ("optimizer_slots", num_ids),
        ("shared_slots", tf.size(shared) // dim),
    ):
        saved[name] = tf.reshape(saved[name], [slots, per_row, width])
    check(table, saved)
    return saved


def is_row_wise(optimizer: Any) -> Any:
    """Whether the optimizer slots of a table have one number per row."""
    return optimizer == "row_wise_adagrad"


def to_rows(saved: Mapping[str, tf.Tensor]) -> EmbeddingRows:
    """Returns the rows of saved tensors, eagerly."""
    names = [name.decode() for name in saved["slot_names"].numpy()]
    return EmbeddingRows(
        ids=saved["ids"],
        rows=saved["rows"],
        optimizer_slots=dict(zip(names, saved["optimizer_slots"])),
        frequencies=saved["frequencies"],
        last_seen=saved["last_seen"],
        optimizer=saved["optimizer"].numpy().decode(),
        slot_inits=dict(zip(names, saved["slot_inits"].numpy().tolist())),
    )


def from_rows(table: Any, rows: EmbeddingRows) -> dict[str, tf.Tensor]:
    """Returns `rows` as tensors saved by `table`."""
    slots = rows.optimizer_slots
    ids = ids_lib.to_dense_int64(rows.ids, "load_rows")
    frequencies, last_seen = rows.frequencies, rows.last_seen
    if frequencies is None:
        frequencies = tf.zeros_like(ids)
    if last_seen is None:
        last_seen = tf.fill(tf.shape(ids), table.step)
    names = list(slots)
    if names:
        stacked = tf.stack([tf.cast(slots[n], tf.float32) for n in names])
    else:
        stacked = tf.zeros([0, tf.size(ids), table.output_dim])
    inputs = [
        ids,
        ids_lib.to_numbers(rows.rows, "rows", table._row_dtype),
        stacked,
        tf.cast(frequencies, tf.int64),
        tf.cast(last_seen, tf.int64),
        tf.constant(rows.optimizer if names else ""),
        tf.constant(names, tf.string),
        tf.constant([rows.slot_inits[n] for n in names], tf.float32),
        *(tf.zeros([0], tf.int64) for _ in range(4)),
        tf.zeros([0], tf.uint8),
        tf.zeros([0, 0], table._row_dtype),
        tf.zeros([0, 0, 0]),
    ]
    return dict(zip(NAMES, inputs, strict=True))


def _warn(message: str) -> None:
    warnings.warn(message, stacklevel=3)
