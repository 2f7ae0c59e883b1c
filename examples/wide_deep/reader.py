"""How the files of a data set are read."""

import dataclasses
import os
from collections.abc import Mapping, Sequence
from typing import Any

import tensorflow as tf

from lodestar.data import SlotSpec, open_dataset


@dataclasses.dataclass(frozen=True)
class Reader:
    """What files do not say of themselves.

    Attributes:
        format: Their format, which has a dataset.
        options: Of that dataset.
        slots: What an example holds.
    """

    format: str
    options: Mapping[str, Any]
    slots: SlotSpec

    @property
    def used(self) -> SlotSpec:
        """The slots that are features or the label."""
        return SlotSpec(self.slots.used)

    def dataset(
        self, files: str | os.PathLike | Sequence, batch_size: int, **options
    ) -> tf.data.Dataset:
        """Batches of `(features, label)`; `options` as of every dataset."""
        return open_dataset(
            files,
            self.slots,
            batch_size,
            format=self.format,
            **self.options,
            **options,
        )

    def place(self, file: str | os.PathLike, index: int) -> str:
        """Where an example is, counted from 0, as the errors of datasets say."""
        if self.format == "multislot":
            return f"{file}:{index + 1}"
        word = "row" if self.format == "parquet" else "record"
        return f"{file}: {word} {index}"
