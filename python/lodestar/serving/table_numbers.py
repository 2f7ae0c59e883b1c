"""How many ids the tables of a served model found."""

from collections.abc import Iterable, Mapping
from typing import Any

import tensorflow as tf

from lodestar._library import gen_ops
from lodestar.embedding.stats import by_name

# Of the result, and of a table's own statistics.
_NAMES = {
    "rows": "rows",
    "hits": "read_hits",
    "misses": "read_misses",
    "memory": "bytes",
}

TableNumbers = dict[str, dict[str, int]]


def of_loaded(loaded: Any) -> TableNumbers:
    """Returns what an exported model's tables have counted since it was loaded.

    Args:
        loaded: A folder of `export.save`, as `tf.saved_model.load` returns it.

    Returns:
        `rows`, `hits`, `misses` and `memory`, each table -> integer: its rows,
        the ids (without padding) that were looked up and had a row or had
        none, and its bytes in memory.

    Raises:
        TypeError: `loaded` has no tables.
        ValueError: `loaded` is an export of `export.save_plain`.
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
        handles[key] = handle_of(table)
        if handles[key] is None:
            raise ValueError(
                f"The table {key!r} of `source` counts no lookups: the model "
                "was written by export.save_plain. Export it with export.save."
            )
    return of_tables(handles)


def handle_of(table: Any) -> tf.Tensor | None:
    """Returns the handle of the rows of a loaded table; None: it has none."""
    # Older SavedModels hold a table as its rows alone.
    return getattr(getattr(table, "rows", table), "resource_handle", None)


def of_tables(handles: Mapping[str, tf.Tensor]) -> TableNumbers:
    """The same by their handles."""
    result: TableNumbers = {name: {} for name in _NAMES}
    for key, handle in handles.items():
        values, shards = gen_ops.lodestar_embedding_stats(handle)
        found = by_name(None, [(values.numpy(), shards.numpy())])
        for name, there in _NAMES.items():
            result[name][key] = found[there]
    return result


def summed(copies: Iterable[TableNumbers]) -> TableNumbers:
    """The sums over copies of a model."""
    total: TableNumbers = {name: {} for name in _NAMES}
    for numbers in copies:
        for name, tables in numbers.items():
            for key, value in tables.items():
                total[name][key] = total[name].get(key, 0) + value
    return total
