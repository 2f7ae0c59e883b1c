"""How well next items are ranked, and two baselines that count."""

import dataclasses
from collections.abc import Callable, Iterator

import numpy as np

_BATCH_SIZE = 512

# Numbers of events `[B]` -> scores of all candidates `[B, C]`.
Scorer = Callable[[np.ndarray], np.ndarray]


@dataclasses.dataclass(frozen=True)
class Ranking:
    """What `rank` found of each event: the place of its item, or infinity."""

    ranks: np.ndarray

    def hit_rate(self, k: int, among: np.ndarray | None = None) -> float:
        """How often the item is among the first k; its recall at k, too.

        Args:
            k: Length of the list.
            among: Looks at these only, bool `[N]`; NaN where there are none.
        """
        ranks = self.ranks if among is None else self.ranks[among]
        return float(np.mean(ranks <= k)) if len(ranks) else float("nan")

    @property
    def mean_reciprocal_rank(self) -> float:
        """The mean of 1 / rank; 0 for what is no candidate."""
        return float(np.mean(1 / self.ranks))


def rank(
    scorer: Scorer,
    events: np.ndarray,
    items: np.ndarray,
    candidates: np.ndarray,
) -> Ranking:
    """Ranks all candidates for each event.

    Args:
        scorer: Scores the candidates; the highest is the first.
        events: Numbers of the events, `[N]`.
        items: The item of each, `[N]`.
        candidates: Sorted items `[C]`. An item that is none has no rank.
    """
    ranks = np.full(len(events), np.inf)
    column = np.minimum(np.searchsorted(candidates, items), len(candidates) - 1)
    known = candidates[column] == items
    for begin in range(0, len(events), _BATCH_SIZE):
        batch = slice(begin, begin + _BATCH_SIZE)
        scores = scorer(events[batch])
        own = np.take_along_axis(scores, column[batch, None], axis=1)
        above = np.sum(scores > own, axis=1)
        equal = np.sum(scores == own, axis=1)
        # In the middle of those that score the same.
        ranks[batch] = above + (equal + 1) / 2
    ranks[~known] = np.inf
    return Ranking(ranks)


def popularity(items: np.ndarray, candidates: np.ndarray) -> np.ndarray:
    """How often each candidate is among the items, `[C]`."""
    known, counts = np.unique(items, return_counts=True)
    column = np.minimum(np.searchsorted(known, candidates), len(known) - 1)
    return np.where(known[column] == candidates, counts[column], 0)


class CoOccurrence:
    """How often two items were in one session; what never was, by popularity.

    Args:
        items: Of the training events, `[N]`.
        sessions: Of the training events, `[N]`, in ascending order.
        candidates: Sorted items `[C]`, all that `items` holds.
    """

    def __init__(
        self, items: np.ndarray, sessions: np.ndarray, candidates: np.ndarray
    ):
        self._candidates = candidates
        counts = popularity(items, candidates)
        # Below 1, so that it never outweighs a pair.
        self._popularity = counts / (counts.sum() + 1)
        columns = np.searchsorted(candidates, items)
        pairs = np.concatenate(
            [a * len(candidates) + b for a, b in _pairs(columns, sessions)]
        )
        codes, self._counts = np.unique(pairs, return_counts=True)
        self._begins = np.searchsorted(
            codes, np.arange(len(candidates) + 1) * len(candidates)
        )
        self._others = codes % len(candidates)

    def scores(self, last: np.ndarray, known: np.ndarray) -> np.ndarray:
        """Scores of all candidates after the items `last`, `[B, C]`.

        Args:
            last: Items `[B]`.
            known: False where there is no last item, `[B]`.
        """
        scores = np.tile(self._popularity, (len(last), 1))
        columns = np.minimum(
            np.searchsorted(self._candidates, last), len(self._candidates) - 1
        )
        known = known & (self._candidates[columns] == last)
        for row in np.flatnonzero(known):
            begin, end = self._begins[columns[row] : columns[row] + 2]
            scores[row, self._others[begin:end]] += self._counts[begin:end]
        return scores


def _pairs(
    columns: np.ndarray, sessions: np.ndarray
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Both orders of all pairs within a session, by their distance."""
    distance = 1
    while True:
        same = sessions[distance:] == sessions[:-distance]
        if not same.any():
            return
        first, second = columns[:-distance][same], columns[distance:][same]
        yield first, second
        yield second, first
        distance += 1
