"""How many ids the tables of a served model found."""

from collections.abc import Iterable, Mapping
from typing import Any

import tensorflow as tf

from lodestar._checks import check_eager
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


def stats(loaded: Any) -> TableNumbers:
    """Counts what an exported model's tables have found since it was loaded.

    >>> loaded = tf.saved_model.load("served")
    >>> print(lodestar.serving.openmetrics(lodestar.serving.stats(loaded)))

    Args:
        loaded: What `tf.saved_model.load` gave for a folder of
            `lodestar.export.save`. A LiveModel has `stats()` itself.

    Returns:
        `rows`, `hits`, `misses` and `memory`, each table -> integer: its rows;
        ids (padding aside) that were looked up and had a row, or had none;
        bytes in memory.

    Raises:
        ValueError: `loaded` has no tables that count: it is another object, or
            an export of `export.save_plain`.
        RuntimeError: In a `tf.function`.
    """
    check_eager("stats")
    tables: Any = getattr(loaded, "tables", None)
    handles = {
        key: handle_of(table)
        for key, table in (
            tables.items() if isinstance(tables, Mapping) else ()
        )
    }
    if tables is None or None in handles.values():
        raise ValueError(
            f"`loaded` is {type(loaded).__name__} without tables of "
            "lodestar.export.save; wanted what tf.saved_model.load gives "
            "for such a folder (tables of export.save_plain do not count)."
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
        found = by_name(values.numpy(), shards.numpy())
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
