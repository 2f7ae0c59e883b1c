"""One pass over MultiSlot files: are they sound, and what do they hold?"""

import dataclasses
import os
from collections.abc import Sequence

import numpy as np
from errors import InputError

from lodestar.data import MultiSlotDataset, SlotSpec

_BATCH_SIZE = 4096


@dataclasses.dataclass(frozen=True)
class Summary:
    """What `summarize` found.

    Attributes:
        examples: Number of lines.
        positives: How many of them have the label 1.
        mean: Of the squashed dense values, see model.squash; one number a
            value of the dense slots, one slot after another.
        variance: As `mean`.
    """

    examples: int
    positives: int
    mean: list[float]
    variance: list[float]


def summarize(files: Sequence[str | os.PathLike], slots: SlotSpec) -> Summary:
    """Reads all lines.

    Raises:
        InputError: A dense value is not finite.
        tf.errors.OpError: A file or a line is not MultiSlot of these slots.
    """
    names = [slot.name for slot in slots.dense for _ in range(slot.num_values)]
    examples, positives = 0, 0
    sums, squares = np.zeros(len(names)), np.zeros(len(names))
    for file in files:
        line = 1
        for features, label in MultiSlotDataset(file, slots, _BATCH_SIZE):
            rows = len(label)
            positives += int(label.numpy().sum())
            if names:
                values = np.concatenate(
                    [
                        features[slot.name].numpy().reshape(rows, -1)
                        for slot in slots.dense
                    ],
                    axis=1,
                ).astype(np.float64)
                bad = np.argwhere(~np.isfinite(values))
                for row, column in bad[:1]:
                    raise InputError(
                        f"{file}:{line + row}: slot {names[column]!r}: a value "
                        f"is {values[row, column]}, wanted a finite number"
                    )
                values = np.sign(values) * np.log1p(np.abs(values))
                sums += values.sum(axis=0)
                squares += (values**2).sum(axis=0)
            line += rows
        examples += line - 1
    mean = sums / examples
    # Rounding may leave a constant slot a variance just below zero.
    variance = np.maximum(squares / examples - mean**2, 0.0)
    return Summary(examples, positives, mean.tolist(), variance.tolist())


def vocabulary(
    files: Sequence[str | os.PathLike], slots: SlotSpec
) -> dict[str, np.ndarray]:
    """Name of an id slot -> the distinct ids that `files` hold."""
    found = {slot.name: np.zeros(0, np.int64) for slot in slots.sparse}
    for features, _ in MultiSlotDataset(files, slots, _BATCH_SIZE):
        for name, ids in found.items():
            found[name] = np.union1d(ids, features[name].values.numpy())
    return found
