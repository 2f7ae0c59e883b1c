"""Tables in the variable store of a Keras file (`.keras`, `.weights.h5`).

A store maps names to arrays. Rows go into it in chunks, because an entry of a
sharded file must fit one shard; text goes in as JSON bytes, because HDF5 and
NPZ agree on numbers only.
"""

import json
from collections.abc import Mapping, MutableMapping
from typing import Any

import numpy as np

from lodestar._library import gen_ops
from lodestar.embedding.embedding_variable import EmbeddingVariable

_CHUNK_BYTES = 32 << 20
_PER_ROW = ("ids", "rows", "frequencies", "last_seen")


def save_table(
    table: EmbeddingVariable, store: MutableMapping[str, Any], prefix: str = ""
) -> None:
    """Writes everything of `table` to `store`, under names with `prefix`."""
    saved = {k: v.numpy() for k, v in table.export_all().items()}
    slots = saved["optimizer_slots"]
    chunk_rows = max(1, _CHUNK_BYTES // (4 * table.dim * (1 + len(slots))))
    count = len(saved["ids"])
    chunks = max(1, -(-count // chunk_rows))  # one, even if empty
    header = {
        "chunks": chunks,
        "dim": table.dim,
        "optimizer": saved["optimizer"].decode(),
        "slot_names": [name.decode() for name in saved["slot_names"]],
    }
    store[f"{prefix}header"] = np.frombuffer(
        json.dumps(header).encode(), np.uint8
    )
    store[f"{prefix}slot_inits"] = saved["slot_inits"]
    store[f"{prefix}counters"] = saved["counters"]
    for chunk in range(chunks):
        part = slice(chunk * chunk_rows, (chunk + 1) * chunk_rows)
        for name in _PER_ROW:
            store[f"{prefix}{name}_{chunk}"] = saved[name][part]
        store[f"{prefix}optimizer_slots_{chunk}"] = slots[:, part]


def load_table(
    table: EmbeddingVariable, store: Mapping[str, Any], prefix: str = ""
) -> None:
    """Makes what `save_table` wrote all that `table` holds.

    Raises:
        ValueError: The saved table has another dim.
    """
    header = json.loads(np.array(store[f"{prefix}header"]).tobytes())
    if header["dim"] != table.dim:
        raise ValueError(
            f"The saved table has dim {header['dim']}, but {table!r} is to "
            "take it; wanted equal dims."
        )
    slot_inits = np.array(store[f"{prefix}slot_inits"], np.float32)
    counters = np.array(store[f"{prefix}counters"], np.int64)
    names = np.array(header["slot_names"], np.object_)
    for chunk in range(header["chunks"]):
        ids, rows, frequencies, last_seen, slots = (
            np.array(store[f"{prefix}{name}_{chunk}"])
            for name in (*_PER_ROW, "optimizer_slots")
        )
        gen_ops.lodestar_embedding_import(
            table.resource_handle,
            ids,
            rows,
            slots,
            frequencies,
            last_seen,
            header["optimizer"],
            names,
            slot_inits,
            counters,
            mode="merge" if chunk else "replace",
        )
