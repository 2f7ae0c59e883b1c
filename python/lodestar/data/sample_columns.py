"""Columns of samples, as `SampleWriter.write_batch` takes them: parts of them.

A column is an array `[B, ...]` or, of a sparse slot, a pair of flat values and
row_splits `[B + 1]`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

Columns = Mapping[str, Any]


def num_rows(columns: Columns) -> int:
    """How many samples there are."""
    column = next(iter(columns.values()))
    return len(column[1]) - 1 if isinstance(column, tuple) else len(column)


def cut(columns: Columns, begin: int, end: int) -> dict[str, Any]:
    """The samples [begin, end)."""
    parts: dict[str, Any] = {}
    for name, column in columns.items():
        if isinstance(column, tuple):
            splits = np.asarray(column[1])[begin : end + 1]
            first, last = splits[0], splits[-1]
            parts[name] = (column[0][first:last], splits - first)
        else:
            parts[name] = column[begin:end]
    return parts


def choose(columns: Columns, keep: np.ndarray) -> dict[str, Any]:
    """The samples where `keep`, bool `[B]`, is True."""
    parts: dict[str, Any] = {}
    for name, column in columns.items():
        if isinstance(column, tuple):
            counts = lengths(column)
            parts[name] = (
                column[0][np.repeat(keep, counts)],
                np.concatenate([[0], np.cumsum(counts[keep])]),
            )
        else:
            parts[name] = column[keep]
    return parts


def lengths(column: Any) -> np.ndarray:
    """How many values each sample has, int64 `[B]`."""
    if isinstance(column, tuple):
        return np.diff(column[1])
    size = int(np.prod(column.shape[1:]))
    return np.full(len(column), size, np.int64)


def flat(column: Any) -> np.ndarray:
    """The values of all samples, `[N]`."""
    return column[0] if isinstance(column, tuple) else column.reshape(-1)
