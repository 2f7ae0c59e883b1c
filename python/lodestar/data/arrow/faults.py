"""Bad rows and their faults."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np


class Fault(NamedTuple):
    """Why a row is bad (`text`), and how to fix it (`advice`, for errors)."""

    text: str
    advice: str = ""


class Faults:
    """The bad rows of a part of a source, each with its first fault."""

    def __init__(self, where: Callable[[int], str]):
        """`where` maps a row index to its name in errors, e.g. `"row 17"`."""
        self._where = where
        self.found: dict[int, Fault] = {}

    def add(
        self,
        rows: np.ndarray,
        column: str,
        describe: Callable[[int], str],
        advice: str = "",
    ) -> None:
        """Adds rows; `describe` maps a row to the found and the allowed values."""
        for row in np.unique(rows).tolist():
            if row not in self.found:
                text = f"{self._where(row)}: column {column!r}: {describe(row)}"
                self.found[row] = Fault(text, advice)

    def add_row(self, row: int, text: str) -> None:
        """Adds a row that is bad as a whole."""
        self.found.setdefault(row, Fault(f"{self._where(row)}: {text}"))
