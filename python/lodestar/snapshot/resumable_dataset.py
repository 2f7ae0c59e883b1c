"""A dataset whose read position a snapshot can save."""

from typing import Any

import tensorflow as tf

from lodestar import _private


class ResumableDataset(_private.DatasetOver):
    """A dataset with a single iterator, which every `iter` of it returns.

    `model.fit` creates an iterator that is not accessible. With this dataset,
    reading continues across calls and a snapshot holds the exact position.
    `lodestar.train.fit` with `snapshots` creates one by itself.

    >>> reader = lodestar.snapshot.ResumableDataset(batches.repeat())
    >>> snapshots = lodestar.callbacks.Snapshot("snapshots", 1000, iterator=reader)
    >>> history = model.fit(
    ...     reader, epochs=2, steps_per_epoch=50, callbacks=[snapshots]
    ... )

    Pass `steps_per_epoch` to `model.fit`, and a dataset that repeats: its second
    epoch would find no data left.

    Args:
        dataset: A dataset whose iterators TensorFlow can save.

    Attributes:
        dataset: The dataset that is read.
    """

    def __init__(self, dataset: tf.data.Dataset):
        super().__init__(dataset)
        self.begin_anew()

    @property
    def element_spec(self) -> Any:
        """The element spec of the dataset."""
        return self.dataset.element_spec

    @property
    def iterator(self) -> Any:
        """The current iterator."""
        return self._resumed

    def begin_anew(self) -> None:
        """Starts another epoch with the next `iter`."""
        self._resumed = iter(self.dataset)

    def __iter__(self) -> Any:
        return self._resumed
