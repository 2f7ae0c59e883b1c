"""Batches of a known number of examples."""

import dataclasses
from collections.abc import Sequence

import tensorflow as tf
from reader import Reader

_SHUFFLED_ROWS = 1 << 16


@dataclasses.dataclass(frozen=True)
class Examples:
    """Files, and how to read them.

    Attributes:
        files: The files.
        reader: Of the files.
        count: Number of examples in them.
        batch_size: Examples a step.
        shuffle: False keeps the order of the files.
        seed: Of the shuffling.
    """

    files: Sequence[str]
    reader: Reader
    count: int
    batch_size: int
    shuffle: bool = False
    seed: int = 0

    @property
    def steps(self) -> int:
        """Batches a pass, the last one of fewer examples included."""
        return -(-self.count // self.batch_size)

    def dataset(self, epoch: int = 0) -> tf.data.Dataset:
        """One pass, which is the same whenever it is asked for."""
        dataset = self.reader.dataset(
            self.files,
            self.batch_size,
            shuffle_rows=_SHUFFLED_ROWS if self.shuffle else 0,
            seed=self.seed + 1000 * epoch,
        )
        # So that Keras knows where a pass ends before its first end.
        return dataset.apply(
            tf.data.experimental.assert_cardinality(self.steps)
        )
