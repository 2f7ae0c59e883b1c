"""The string representation of a LoDTensor."""

from collections.abc import Sequence
from typing import Any

import numpy as np

# If there are more units or rows, only this many at each end are shown.
_MOST = 6
_EDGE = 3


def _row(row: Any) -> str:
    if isinstance(row, bytes):
        return repr(row)
    with np.printoptions(threshold=_MOST, edgeitems=_EDGE):
        # Prints 0.1 also for float32.
        lines = np.array2string(np.asarray(row), separator=", ").split("\n")
    return " ".join(line.strip() for line in lines)


def nested(values: np.ndarray, levels: Sequence[np.ndarray]) -> str:
    """Returns nested lists of rows as a string, with long lists abbreviated.

    Accepts any offsets and omits rows that they do not cover.
    """
    sizes = [max(len(level) - 1, 0) for level in levels] + [len(values)]

    def items(k: int, begin: int, end: int) -> str:
        begin, end = (min(max(int(i), 0), sizes[k]) for i in (begin, end))
        shown: list[int | None] = list(range(begin, end))
        if len(shown) > _MOST:
            shown = [*shown[:_EDGE], None, *shown[-_EDGE:]]
        texts = ["..." if i is None else item(k, i) for i in shown]
        return f"[{', '.join(texts)}]"

    def item(k: int, i: int) -> str:
        if k == len(levels):
            return _row(values[i])
        return items(k + 1, levels[k][i], levels[k][i + 1])

    return items(0, 0, sizes[0])
