"""Counts the rows, lookups and memory of a served model's tables."""

from collections.abc import Mapping, Sequence
from typing import Any

import tensorflow as tf

from lodestar._library import gen_ops
from lodestar.embedding.stats import by_name

# Name in the result -> name in a table's own statistics.
_NAMES = {
    "rows": "rows",
    "hits": "read_hits",
    "misses": "read_misses",
    "memory": "bytes",
}

TableNumbers = dict[str, dict[str, int]]


def of_loaded(loaded: Any) -> TableNumbers:
    """Returns the numbers of a loaded export since it was loaded.

    They are `rows`, `hits` and `misses` (ids without padding that were looked up
    and had a row or no row) and `memory` in bytes, each table -> integer.
    """
    tables = getattr(loaded, "tables", None)
    if not isinstance(tables, Mapping):
        raise TypeError(
            "`source` must be a LiveModel, what tf.saved_model.load returns "
            "for a folder of export.save, or a mapping as LiveModel.stats() "
            f"returns, got {type(loaded).__name__}."
        )
    handles = {}
    for key, table in tables.items():
        handles[key] = handles_of(table)
        if not handles[key]:
            raise ValueError(
                f"The table {key!r} of `source` counts no lookups: the model "
                "was written by export.save_plain. Export it with export.save."
            )
    return of_tables(handles)


def handles_of(table: Any) -> list[tf.Tensor]:
    """Returns the handles of a loaded table's parts; empty without parts."""
    # With a single part, and in older SavedModels, the table itself is its rows.
    parts = [getattr(table, "rows", table)]
    while (part := getattr(table, f"rows_{len(parts)}", None)) is not None:
        parts.append(part)
    handles = [getattr(part, "resource_handle", None) for part in parts]
    return [handle for handle in handles if handle is not None]


def of_tables(handles: Mapping[str, Sequence[tf.Tensor]]) -> TableNumbers:
    """Returns the numbers of tables, given the handles of their parts."""
    result: TableNumbers = {name: {} for name in _NAMES}
    for key, parts in handles.items():
        found = by_name(
            None,
            [
                tuple(x.numpy() for x in gen_ops.lodestar_embedding_stats(part))
                for part in parts
            ],
        )
        for name, there in _NAMES.items():
            result[name][key] = found[there]
    return result
