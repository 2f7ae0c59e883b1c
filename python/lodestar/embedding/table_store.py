"""Tables in the variable store of a Keras file (`.keras`, `.weights.h5`).

A store maps names to arrays. Rows are stored in chunks, because an entry of a
sharded file must fit one shard. Strings are stored as JSON bytes, because HDF5 and
NPZ only agree on numbers.
"""

import json
import math
from collections.abc import Mapping, MutableMapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from lodestar.embedding import saved_state

# An EmbeddingVariable, which imports this module.
Table = Any

_CHUNK_BYTES = 32 << 20
_STRINGS = ("optimizer", "slot_names")
_ARRAYS = tuple(name for name in saved_state.NAMES if name not in _STRINGS)
# Saved with the row axis first, like all others.
_SLOTS = ("optimizer_slots", "shared_slots")
# Written as bits if bfloat16, which not every file format supports.
_BFLOAT16 = ("rows", "shared_rows")


def save_table(
    table: Table, store: MutableMapping[str, Any], prefix: str = ""
) -> None:
    """Writes `table` to `store`, with names that begin with `prefix`."""
    saved = {k: v.numpy() for k, v in table._export_all().items()}
    for name in _SLOTS:
        saved[name] = saved[name].swapaxes(0, 1)
    if table._row_dtype == tf.bfloat16:
        for name in _BFLOAT16:
            saved[name] = saved[name].view(np.uint16)
    chunks = {}
    for name in _ARRAYS:
        array = saved[name]
        item_bytes = array.itemsize * math.prod(array.shape[1:])
        size = max(1, _CHUNK_BYTES // max(1, item_bytes))
        begins = range(0, max(1, len(array)), size)  # one, even if empty
        for chunk, begin in enumerate(begins):
            store[f"{prefix}{name}_{chunk}"] = array[begin : begin + size]
        chunks[name] = len(begins)
    header = {
        "dim": table.output_dim,
        "dtype": table.dtype,
        "optimizer": saved["optimizer"].decode(),
        "slot_names": [name.decode() for name in saved["slot_names"]],
        "chunks": chunks,
    }
    store[f"{prefix}header"] = np.frombuffer(
        json.dumps(header).encode(), np.uint8
    )


def load_table(
    table: Table, store: Mapping[str, Any], prefix: str = ""
) -> None:
    """Replaces the content of `table` by the result of `save_table`.

    Warns about content that only one of the two has, such as shared rows.

    Raises:
        ValueError: There is no saved table, or its dim or dtype differs.
        tf.errors.OpError: As `EmbeddingVariable.load_rows`; the table is
            unchanged.
    """
    load_tables([table], store, [prefix])


def load_tables(
    tables: Sequence[Table],
    store: Mapping[str, Any],
    prefixes: Sequence[str],
) -> None:
    """As `load_table` for several tables, atomically."""
    headers = [
        _read_header(table, store, prefix)
        for table, prefix in zip(tables, prefixes, strict=True)
    ]
    before: list[tuple[Table, Mapping[str, tf.Tensor]]] = []
    try:
        for table, prefix, header in zip(tables, prefixes, headers):
            old: Mapping[str, tf.Tensor] = {}
            if table is not tables[-1]:  # loads atomically
                old = table._export_all()
            try:
                saved = _read(table, store, prefix, header)
            except (KeyError, ValueError, TypeError) as error:
                raise ValueError(
                    f"The saved table for {table!r} is damaged: "
                    f"{type(error).__name__}: {error}."
                ) from error
            saved_state.check(table, saved)
            table._import_all(saved)
            before.append((table, old))
    except BaseException:
        for table, old in before:
            table._import_all(old)
        raise


def holds_table(store: Mapping[str, Any], prefix: str = "") -> bool:
    """Whether `save_table` has written a table with this prefix."""
    return f"{prefix}header" in store.keys()


def _read_header(
    table: Table, store: Mapping[str, Any], prefix: str
) -> dict[str, Any]:
    if not holds_table(store, prefix):
        raise ValueError(
            f"There is no saved table for {table!r}: no `{prefix}header` among "
            f"{sorted(store.keys())}. The file is of a different model."
        )
    try:
        header = json.loads(np.array(store[f"{prefix}header"]).tobytes())
        dim, dtype = header["dim"], header["dtype"]
    except (ValueError, TypeError, KeyError) as error:
        raise ValueError(
            f"The saved table for {table!r} is damaged: its `{prefix}header` "
            f"cannot be read ({type(error).__name__}: {error})."
        ) from error
    saved_state.check_dim(table, dim)
    if dtype != table.dtype:
        raise ValueError(
            f"The saved table has rows of {dtype}, but {table!r} needs "
            f"{table.dtype}."
        )
    return header


def _read(
    table: Table,
    store: Mapping[str, Any],
    prefix: str,
    header: Mapping[str, Any],
) -> dict[str, Any]:
    saved: dict[str, Any] = {
        "optimizer": header["optimizer"],
        "slot_names": np.array(header["slot_names"], np.object_),
    }
    for name in _ARRAYS:
        pieces = [
            np.array(store[f"{prefix}{name}_{chunk}"])
            for chunk in range(header["chunks"][name])
        ]
        saved[name] = np.concatenate(pieces)
    if table._row_dtype == tf.bfloat16:
        for name in _BFLOAT16:
            saved[name] = saved[name].view(tf.bfloat16.as_numpy_dtype)
    for name in _SLOTS:
        saved[name] = saved[name].swapaxes(0, 1)
    return saved
