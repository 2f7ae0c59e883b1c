"""Pieces of data, each of which one training thread reads."""

from collections.abc import Callable
from typing import Any, NamedTuple

import tensorflow as tf


class Piece(NamedTuple):
    """A part of the data that one thread reads from beginning to end.

    `name` is for messages. `open` returns its batches. Thread-safe.
    """

    name: str
    open: Callable[[], tf.data.Dataset]


def pieces_of(data: Any) -> list[Piece] | None:
    """Returns the pieces of `data`; None if it cannot be divided.

    The datasets of `open_dataset` for files, and InMemoryDatasets, have a method
    `pieces`. Each dataset in a list is one piece.
    """
    if hasattr(data, "pieces"):
        return data.pieces()
    if not isinstance(data, list | tuple) or not all(
        isinstance(part, tf.data.Dataset) for part in data
    ):
        return None
    return [
        # The default argument binds the dataset of this round.
        Piece(f"dataset {number}", lambda part=part: part)  # type: ignore[misc]
        for number, part in enumerate(data)
    ]
