"""Columns of samples, as `SampleWriter.write_batch` takes them: parts of them.

A column is an array `[B, ...]` or, of a sparse slot, a pair of flat values and
row_splits `[B + 1]`.
"""

from collections.abc import Hashable, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

import numpy as np

from lodestar._errors import DataError

Columns = Mapping[str, Any]
_Name = TypeVar("_Name", bound=Hashable)


class ColumnValues(NamedTuple):
    """A slot's values in B samples.

    Attributes:
        values: `[N]`, of the dtype that the caller gave. Of a uint64 slot:
            integers of 64 bits, with or without sign.
        splits: int64 `[B + 1]`, from 0 to N.
    """

    values: np.ndarray
    splits: np.ndarray


def num_rows(columns: Columns) -> int:
    """How many samples there are."""
    column = next(iter(columns.values()))
    return len(column[1]) - 1 if isinstance(column, tuple) else len(column)


def cut(columns: Mapping[_Name, Any], begin: int, end: int) -> dict[_Name, Any]:
    """The samples [begin, end), of the same memory."""
    parts: dict[_Name, Any] = {}
    for name, column in columns.items():
        if isinstance(column, tuple):
            splits = np.asarray(column[1])[begin : end + 1]
            first, last = splits[0], splits[-1]
            parts[name] = ColumnValues(column[0][first:last], splits - first)
        else:
            parts[name] = column[begin:end]
    return parts


def take(columns: Mapping[_Name, Any], rows: np.ndarray) -> dict[_Name, Any]:
    """The samples of these numbers, in this order."""
    parts: dict[_Name, Any] = {}
    for name, column in columns.items():
        if isinstance(column, tuple):
            values, splits = column
            splits = np.asarray(splits)
            starts = splits[rows]
            taken = _splits(splits[rows + 1] - starts)
            places = np.repeat(starts - taken[:-1], np.diff(taken))
            places += np.arange(len(places))
            parts[name] = ColumnValues(values[places], taken)
        else:
            parts[name] = column[rows]
    return parts


def concat(parts: Sequence[Mapping[_Name, Any]]) -> dict[_Name, Any]:
    """The samples of all parts, of which there is one, one after another."""
    if len(parts) == 1:
        return dict(parts[0])
    columns: dict[_Name, Any] = {}
    for name, first in parts[0].items():
        pieces = [part[name] for part in parts]
        if isinstance(first, tuple):
            values, splits = zip(*pieces)
            counts = np.concatenate([np.diff(s) for s in splits])
            columns[name] = ColumnValues(
                np.concatenate(values), _splits(counts)
            )
        else:
            columns[name] = np.concatenate(pieces)
    return columns


def _splits(counts: np.ndarray) -> np.ndarray:
    splits = np.zeros(len(counts) + 1, np.int64)
    np.cumsum(counts, out=splits[1:])
    return splits


def lengths(column: Any) -> np.ndarray:
    """How many values each sample has, int64 `[B]`."""
    if isinstance(column, tuple):
        return np.diff(column[1])
    size = int(np.prod(column.shape[1:]))
    return np.full(len(column), size, np.int64)


def check_one_size(name: str, splits: np.ndarray) -> None:
    """Checks that all samples of a slot with a free dim have as many values.

    Args:
        name: Of the slot, for the error.
        splits: Integers `[B + 1]`.

    Raises:
        DataError: A sample has another number of values than the first.
    """
    counts = np.diff(splits)
    other = np.flatnonzero(counts != counts[:1])
    if len(other):
        raise DataError(
            f"slot {name!r} has a free dim, so the samples of a batch must be "
            f"of one size: found {counts[other[0]]} values in sample "
            f"{other[0]}, wanted {counts[0]} as in sample 0"
        )


def flat(column: Any) -> np.ndarray:
    """The values of all samples, `[N]`."""
    return column[0] if isinstance(column, tuple) else column.reshape(-1)
