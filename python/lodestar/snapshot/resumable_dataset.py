"""A dataset that goes on where it stands, and whose place can be saved."""

from typing import Any

import tensorflow as tf


class ResumableDataset(tf.data.Dataset):
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
    """

    def __init__(self, dataset: tf.data.Dataset):
        self._dataset = dataset
        self._resumed = iter(dataset)
        super().__init__(tf.data.experimental.to_variant(dataset))

    @property
    def element_spec(self) -> Any:
        """That of the dataset."""
        return self._dataset.element_spec

    @property
    def dataset(self) -> tf.data.Dataset:
        """The dataset that is read."""
        return self._dataset

    @property
    def iterator(self) -> Any:
        """The one iterator."""
        return self._resumed

    def begin_anew(self) -> None:
        """Lets the next `iter` begin another pass over the data."""
        self._resumed = iter(self._dataset)

    def __iter__(self) -> Any:
        return self._resumed

    def _inputs(self) -> list[tf.data.Dataset]:
        return [self._dataset]
