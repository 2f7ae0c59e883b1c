"""A dataset that goes on where it stands, and whose place can be saved."""

from typing import Any

import tensorflow as tf

from lodestar import _private


class ResumableDataset(_private.DatasetOver):
    """A dataset with one iterator at a time, which every `iter` of it returns.

    `model.fit` makes an iterator of its own where nobody can ask for its place;
    of this one it reads on, and a snapshot holds the place exactly.

    >>> reader = lodestar.snapshot.ResumableDataset(batches.repeat())
    >>> snapshots = lodestar.callbacks.Snapshot("snapshots", 1000, iterator=reader)
    >>> snapshots.fit(model, epochs=2, steps_per_epoch=50)

    Give `model.fit` its `steps_per_epoch` and let the dataset repeat: its
    second epoch would find no data left. `fit` of the callback needs neither.

    Args:
        dataset: Any dataset whose iterators TensorFlow can save.

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
