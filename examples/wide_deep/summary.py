"""One pass over files: are they sound, and what do they hold?"""

import dataclasses
import os
from collections.abc import Sequence

import numpy as np
from errors import InputError
from reader import Reader

_BATCH_SIZE = 4096


@dataclasses.dataclass(frozen=True)
class Summary:
    """What `summarize` found.

    Attributes:
        examples: Number of examples.
        positives: How many of them have the label 1.
        mean: Of the squashed dense values, see model.squash; one number a
            value of the dense slots, one slot after another.
        variance: As `mean`.
    """

    examples: int
    positives: int
    mean: list[float]
    variance: list[float]


def summarize(files: Sequence[str | os.PathLike], reader: Reader) -> Summary:
    """Reads all examples.

    Raises:
        InputError: A dense value is not finite, or a label not 0 or 1.
        tf.errors.OpError: A file is not of this format or these slots.
    """
    slots = reader.used
    names = [slot.name for slot in slots.dense for _ in range(slot.num_values)]
    examples, positives = 0, 0
    sums, squares = np.zeros(len(names)), np.zeros(len(names))

    def check(values, good, names, wanted):
        for row, column in np.argwhere(~good)[:1]:
            raise InputError(
                f"{reader.place(file, done + row)}: slot {names[column]!r}: a "
                f"value is {values[row, column]}, wanted {wanted}"
            )

    for file in files:
        done = 0
        for features, label in reader.dataset(file, _BATCH_SIZE):
            clicks = label.numpy()
            good = (clicks == 0) | (clicks == 1)
            check(clicks, good, slots.names("label"), "0 or 1")
            positives += int(clicks.sum())
            if names:
                values = np.concatenate(
                    [
                        features[slot.name].numpy().reshape(len(clicks), -1)
                        for slot in slots.dense
                    ],
                    axis=1,
                ).astype(np.float64)
                check(values, np.isfinite(values), names, "a finite number")
                values = np.sign(values) * np.log1p(np.abs(values))
                sums += values.sum(axis=0)
                squares += (values**2).sum(axis=0)
            done += len(clicks)
        examples += done
    mean = sums / examples
    # Rounding may leave a constant slot a variance just below zero.
    variance = np.maximum(squares / examples - mean**2, 0.0)
    return Summary(examples, positives, mean.tolist(), variance.tolist())


def vocabulary(
    files: Sequence[str | os.PathLike], reader: Reader
) -> dict[str, np.ndarray]:
    """Name of an id slot -> the distinct ids that `files` hold."""
    found = {slot.name: np.zeros(0, np.int64) for slot in reader.used.sparse}
    for features, _ in reader.dataset(files, _BATCH_SIZE):
        for name, ids in found.items():
            found[name] = np.union1d(ids, features[name].values.numpy())
    return found
