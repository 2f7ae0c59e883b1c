"""Rows that cannot be used, and why."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np


class Fault(NamedTuple):
    """Why a row cannot be used.

    Attributes:
        text: Where the row is, what was found and what is allowed.
        advice: What to do about it, for an error that is raised; may be empty.
    """

    text: str
    advice: str = ""


class Faults:
    """The bad rows of a piece of a source, each with its first fault."""

    def __init__(self, where: Callable[[int], str]):
        """Creates an empty collection.

        Args:
            where: Returns what errors call a row, given its number in the
                piece, e.g. `"row 17"`.
        """
        self._where = where
        self.found: dict[int, Fault] = {}

    def add(
        self,
        rows: np.ndarray,
        column: str,
        describe: Callable[[int], str],
        advice: str = "",
    ) -> None:
        """Adds rows.

        Args:
            rows: Numbers of the rows in the piece.
            column: Name of the column.
            describe: Returns what was found in a row, and what is allowed.
            advice: What to do about it.
        """
        for row in np.unique(rows).tolist():
            if row not in self.found:
                text = f"{self._where(row)}: column {column!r}: {describe(row)}"
                self.found[row] = Fault(text, advice)

    def add_row(self, row: int, text: str) -> None:
        """Adds a row that is bad as a whole."""
        self.found.setdefault(row, Fault(f"{self._where(row)}: {text}"))
