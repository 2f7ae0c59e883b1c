"""Holds a seeded random part of text lines out for evaluation."""

import pathlib
from collections.abc import Sequence

import numpy as np

from errors import InputError


def split_lines(
    sources: Sequence[str],
    train: pathlib.Path,
    held_out: pathlib.Path,
    fraction: float,
    seed: int,
) -> None:
    """Writes each line of `sources` to one of two files, in their order.

    Which lines are held out depends on their number, `fraction` and `seed`
    alone.

    Args:
        sources: Text files whose lines all end in a newline.
        train: File for the larger part.
        held_out: File for `fraction` of the lines, at least one.
        fraction: Above 0, below 1.
        seed: Of the draw.

    Raises:
        InputError: There are fewer than two lines to divide.
    """
    count = sum(1 for _ in _lines(sources))
    if count < 2:
        raise InputError(
            f"{', '.join(sources)}: {count} example(s), wanted at least 2 to "
            "hold some out; give --eval-data"
        )
    number = min(max(round(count * fraction), 1), count - 1)
    chosen = np.zeros(count, bool)
    order = np.random.default_rng(seed).permutation(count)
    chosen[order[:number]] = True
    with open(train, "wb") as rest, open(held_out, "wb") as part:
        for line, out in zip(_lines(sources), chosen, strict=True):
            (part if out else rest).write(line)


def _lines(sources: Sequence[str]):
    for source in sources:
        with open(source, "rb") as file:
            yield from file
