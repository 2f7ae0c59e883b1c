"""Slices and concatenates the columns that `SampleWriter.write_batch` accepts.

A column is an array `[B, ...]` or, for a sparse column, a pair of flat values
and row splits `[B + 1]`. For lists of lists, the values are such a pair again. A
sparse column with one value per example may be an array `[B, 1]`.
"""

from collections.abc import Hashable, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

import numpy as np

from lodestar._errors import DataError

Columns = Mapping[str, Any]
_Name = TypeVar("_Name", bound=Hashable)


class ColumnValues(NamedTuple):
    """The values of a column in B examples.

    Attributes:
        values: `[N]`, in the caller's dtype; ids are 64-bit integers, signed or
            unsigned. For lists of lists: the `ColumnValues` of N lists.
        splits: int64 `[B + 1]`, from 0 to N.
    """

    values: Any
    splits: np.ndarray


def num_rows(columns: Columns) -> int:
    """Returns the number of examples."""
    return _length(next(iter(columns.values())))


def cut(columns: Mapping[_Name, Any], begin: int, end: int) -> dict[_Name, Any]:
    """Returns the examples [begin, end), without copying."""
    return {name: _cut(c, begin, end) for name, c in columns.items()}


def take(columns: Mapping[_Name, Any], rows: np.ndarray) -> dict[_Name, Any]:
    """Returns the examples with these indices, in this order."""
    return {name: _take(column, rows) for name, column in columns.items()}


def concat(parts: Sequence[Mapping[_Name, Any]]) -> dict[_Name, Any]:
    """Concatenates parts, of which there must be at least one."""
    if len(parts) == 1:
        return dict(parts[0])
    return {name: _concat([part[name] for part in parts]) for name in parts[0]}


def _length(column: Any) -> int:
    return len(column[1]) - 1 if isinstance(column, tuple) else len(column)


def _cut(column: Any, begin: int, end: int) -> Any:
    if not isinstance(column, tuple):
        return column[begin:end]
    splits = np.asarray(column[1])[begin : end + 1]
    first, last = splits[0], splits[-1]
    return ColumnValues(_cut(column[0], first, last), splits - first)


def _take(column: Any, rows: np.ndarray) -> Any:
    if not isinstance(column, tuple):
        return column[rows]
    values, splits = column
    splits = np.asarray(splits)
    starts = splits[rows]
    taken = _splits(splits[rows + 1] - starts)
    places = np.repeat(starts - taken[:-1], np.diff(taken))
    places += np.arange(len(places))
    return ColumnValues(_take(values, places), taken)


def as_lists(column: Any) -> Any:
    """Converts a column of one value per example, `[B, 1]`, to `ColumnValues`."""
    if isinstance(column, tuple):
        return column
    return ColumnValues(column.reshape(-1), np.arange(len(column) + 1))


def _concat(pieces: Sequence[Any]) -> Any:
    if not any(isinstance(piece, tuple) for piece in pieces):
        return np.concatenate(pieces)
    values, splits = zip(*map(as_lists, pieces))
    counts = np.concatenate([np.diff(s) for s in splits])
    return ColumnValues(_concat(values), _splits(counts))


def _splits(counts: np.ndarray) -> np.ndarray:
    splits = np.zeros(len(counts) + 1, np.int64)
    np.cumsum(counts, out=splits[1:])
    return splits


def lengths(column: Any) -> np.ndarray:
    """Returns the number of values, or lists, per example, int64 `[B]`."""
    if isinstance(column, tuple):
        return np.diff(column[1])
    size = int(np.prod(column.shape[1:]))
    return np.full(len(column), size, np.int64)


def check_one_size(name: str, splits: np.ndarray) -> None:
    """Raises DataError unless all examples of a column have equal sizes."""
    counts = np.diff(splits)
    other = np.flatnonzero(counts != counts[:1])
    if len(other):
        raise DataError(
            f"column {name!r} has a free dim, so the examples of a batch must "
            f"be of one size: found {counts[other[0]]} values in example "
            f"{other[0]}, expected {counts[0]} as in example 0"
        )


def flat(column: Any) -> np.ndarray:
    """Returns the values of all examples, `[N]`."""
    if not isinstance(column, tuple):
        return column.reshape(-1)
    return flat(column[0]) if isinstance(column[0], tuple) else column[0]
