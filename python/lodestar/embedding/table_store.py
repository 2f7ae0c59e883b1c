"""Tables in the variable store of a Keras file (`.keras`, `.weights.h5`).

A store maps names to arrays. Rows go into it in chunks, because an entry of a
sharded file must fit one shard; text goes in as JSON bytes, because HDF5 and
NPZ agree on numbers only.
"""

import json
from collections.abc import Mapping, MutableMapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from lodestar._library import gen_ops
from lodestar.embedding.embedding_variable import EmbeddingVariable

_CHUNK_BYTES = 32 << 20
# What is cut along the same axis, and so into as many chunks.
_PER_ROW = ("ids", "rows", "frequencies", "last_seen")
_PER_PENDING_ID = ("pending_ids", "pending_sightings", "pending_last_seen")
_PER_COUNTER = ("sketch",)
_PER_SHARED_ROW = ("shared_rows", "shared_slots")
# Written as their bits where they are bfloat16, which not every file knows.
_BFLOAT16 = ("rows", "shared_rows")


def save_table(
    table: EmbeddingVariable, store: MutableMapping[str, Any], prefix: str = ""
) -> None:
    """Writes everything of `table` to `store`, under names with `prefix`."""
    saved = {k: v.numpy() for k, v in table.export_all().items()}
    for name in ("optimizer_slots", "shared_slots"):
        # The rows' own axis first, as that of everything else.
        saved[name] = saved[name].swapaxes(0, 1)
    slots = len(saved["slot_names"])
    row_bytes = table.dim * (table.dtype.size + slots * table.update_dtype.size)
    if table.dtype == tf.bfloat16:
        for name in _BFLOAT16:
            saved[name] = saved[name].view(np.uint16)
    header = {
        "chunks": _save(
            saved, (*_PER_ROW, "optimizer_slots"), row_bytes, store, prefix
        ),
        "pending_chunks": _save(saved, _PER_PENDING_ID, 8, store, prefix),
        "sketch_chunks": _save(saved, _PER_COUNTER, 1, store, prefix),
        "shared_chunks": _save(
            saved, _PER_SHARED_ROW, row_bytes, store, prefix
        ),
        "dim": table.dim,
        "dtype": table.dtype.name,
        "optimizer": saved["optimizer"].decode(),
        "slot_names": [name.decode() for name in saved["slot_names"]],
    }
    store[f"{prefix}header"] = np.frombuffer(
        json.dumps(header).encode(), np.uint8
    )
    store[f"{prefix}slot_inits"] = saved["slot_inits"]
    store[f"{prefix}counters"] = saved["counters"]


def load_table(
    table: EmbeddingVariable, store: Mapping[str, Any], prefix: str = ""
) -> None:
    """Makes what `save_table` wrote all that `table` holds.

    Raises:
        ValueError: The saved table has another dim or dtype.
        tf.errors.OpError: As `EmbeddingVariable.import_`; the table is as it
            was.
    """
    header = json.loads(np.array(store[f"{prefix}header"]).tobytes())
    table.check_saved_dim(header["dim"])
    if header["dtype"] != table.dtype.name:
        raise ValueError(
            f"The saved table has rows of {header['dtype']}, but {table!r} is "
            "to take it; wanted equal dtypes."
        )

    def load(names: Sequence[str], chunks: int) -> list[np.ndarray]:
        return [
            np.concatenate(
                [np.array(store[f"{prefix}{n}_{c}"]) for c in range(chunks)]
            )
            for n in names
        ]

    ids, rows, frequencies, last_seen, slots = load(
        (*_PER_ROW, "optimizer_slots"), header["chunks"]
    )
    shared_rows, shared_slots = load(_PER_SHARED_ROW, header["shared_chunks"])
    if table.dtype == tf.bfloat16:
        rows, shared_rows = (
            bits.view(tf.bfloat16.as_numpy_dtype)
            for bits in (rows, shared_rows)
        )
    # One call: all of it or nothing.
    gen_ops.lodestar_embedding_import(
        table.resource_handle,
        ids,
        rows,
        slots.swapaxes(0, 1),
        frequencies,
        last_seen,
        header["optimizer"],
        np.array(header["slot_names"], np.object_),
        np.array(store[f"{prefix}slot_inits"], np.float32),
        np.array(store[f"{prefix}counters"], np.int64),
        *load(_PER_PENDING_ID, header["pending_chunks"]),
        *load(_PER_COUNTER, header["sketch_chunks"]),
        shared_rows,
        shared_slots.swapaxes(0, 1),
        mode="replace",
    )


def _save(
    saved: Mapping[str, np.ndarray],
    names: Sequence[str],
    item_bytes: int,
    store: MutableMapping[str, Any],
    prefix: str,
) -> int:
    """Writes arrays of equal lengths; returns the number of chunks."""
    size = max(1, _CHUNK_BYTES // item_bytes)
    chunks = max(1, -(-len(saved[names[0]]) // size))  # one, even if empty
    for chunk in range(chunks):
        part = slice(chunk * size, (chunk + 1) * size)
        for name in names:
            store[f"{prefix}{name}_{chunk}"] = saved[name][part]
    return chunks
