"""Unique ids of slots, and ids that slots share, in bounded memory."""

from collections.abc import Mapping

import numpy as np

# Maximum number of unique ids kept per slot.
_MAX_DISTINCT = 1_000_000
# Number of new ids to collect before merging, which reads all ids.
_MOST_NEW = 1 << 17


class DistinctIds:
    """The unique ids of a slot, which are `exact` up to a maximum number."""

    def __init__(self) -> None:
        self._ids = np.zeros(0, np.uint64)
        self._new: list[np.ndarray] = []
        self._num_new = 0
        self.exact = True

    def add(self, ids: np.ndarray) -> None:
        """Adds ids of dtype uint64."""
        if not self.exact or not len(ids):
            return
        self._new.append(np.unique(ids))
        self._num_new += len(self._new[-1])
        if self._num_new >= _MOST_NEW:
            self._merge()

    def ids(self) -> np.ndarray:
        """Returns the ids that are kept, in ascending order."""
        self._merge()
        return self._ids

    def _merge(self) -> None:
        if self._new:
            self._ids = np.unique(np.concatenate([self._ids, *self._new]))
            self._new, self._num_new = [], 0
        if len(self._ids) > _MAX_DISTINCT:
            self._ids = self._ids[:_MAX_DISTINCT]
            self.exact = False


def unsigned(ids: np.ndarray) -> np.ndarray:
    """Reinterprets int64 ids as uint64."""
    if ids.dtype.kind == "i":
        return ids.astype(np.int64, copy=False).view(np.uint64)
    return ids


def shared_ids(
    schema: Mapping[str, DistinctIds], shown: int
) -> tuple[int, dict[int, list[str]]]:
    """Finds the ids that several slots have.

    Returns their number, and the names of the slots of the smallest `shown` ids.
    """
    kept = {name: distinct.ids() for name, distinct in schema.items()}
    if not kept:
        return 0, {}
    every = np.concatenate(list(kept.values()))
    ids, counts = np.unique(every, return_counts=True)
    shared = ids[counts > 1]
    return len(shared), {
        one: [name for name, found in kept.items() if one in found]
        for one in shared[:shown].tolist()
    }
