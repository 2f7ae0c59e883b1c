"""A dataset that is read from where it was left, and whose place can be saved."""

from typing import Any

import tensorflow as tf

from lodestar import _private


class ResumableDataset(_private.DatasetOver):
    """A dataset with one iterator at a time, which every `iter` of it returns.

    `model.fit` creates an iterator that nobody can ask for its place. From this
    dataset it reads on, and a snapshot holds the exact place. `lodestar.train.fit`
    with `snapshots` needs no such dataset: it creates one.

    >>> reader = lodestar.snapshot.ResumableDataset(batches.repeat())
    >>> snapshots = lodestar.callbacks.Snapshot("snapshots", 1000, iterator=reader)
    >>> history = model.fit(
    ...     reader, epochs=2, steps_per_epoch=50, callbacks=[snapshots]
    ... )

    Give `model.fit` its `steps_per_epoch`, and a dataset that repeats: its second
    epoch would find no data left.

    Args:
        dataset: A dataset whose iterators TensorFlow can save.

    Attributes:
        dataset: The dataset that is read.
    """

    def __init__(self, dataset: tf.data.Dataset):
        super().__init__(dataset)
        self._resumed = iter(dataset)

    @property
    def element_spec(self) -> Any:
        """That of the dataset."""
        return self.dataset.element_spec

    @property
    def iterator(self) -> Any:
        """The one iterator."""
        return self._resumed

    def begin_anew(self) -> None:
        """Lets the next `iter` begin another pass over the data."""
        self._resumed = iter(self.dataset)

    def __iter__(self) -> Any:
        return self._resumed
