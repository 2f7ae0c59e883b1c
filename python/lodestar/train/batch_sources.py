"""Sources of the batches that steps train on."""

import itertools
from collections.abc import Callable, Iterable
from typing import Any

import tensorflow as tf

from lodestar._checks import check_count
from lodestar.snapshot.resumable_dataset import ResumableDataset

DatasetFn = Callable[[tf.distribute.InputContext], tf.data.Dataset]


class BatchSource:
    """Batches that this program reads.

    Args:
        name: Name of the argument `dataset`, for error messages.
        dataset: The batches.
        steps: Steps per epoch. None: an epoch is one pass over the dataset.
        restarts: Whether every epoch begins with the first batch.

    Attributes:
        dataset: The batches.
        steps: Steps per epoch; None if unknown.
        iterator: The current pass over the data.

    Raises:
        TypeError: `dataset` is not a dataset.
        ValueError: `steps` is out of range, or None for endless data.
    """

    def __init__(
        self, name: str, dataset: Any, steps: int | None, restarts: bool = False
    ):
        check_dataset(name, dataset)
        self._name = name
        self.dataset = dataset
        self._passes = steps is None
        self._restarts = restarts or self._passes
        if steps is not None:
            check_count("steps", steps, 1)
        else:
            batches = int(dataset.cardinality())
            if batches == tf.data.INFINITE_CARDINALITY:
                raise ValueError(
                    f"`{name}` has no end; give the steps of an epoch."
                )
            if batches != tf.data.UNKNOWN_CARDINALITY:
                steps = batches
        self.steps = steps
        self.iterator: Any = None

    def begin(self) -> None:
        """Begins an epoch."""
        if self._restarts or self.iterator is None:
            self.iterator = iter(self.dataset)

    def end(self) -> None:
        """Ends an epoch of which every step was run."""
        if self._passes and isinstance(self.dataset, ResumableDataset):
            self.dataset.begin_anew()

    def take(self, steps: int) -> tuple[Any, int]:
        """Returns at most `steps` batches, and how many they are.

        There are none only at the end of the epoch.
        """
        batches = list(itertools.islice(self._batches(), steps))
        if not batches and self.restart():
            batches = list(itertools.islice(self._batches(), steps))
        return batches, len(batches)

    def restart(self) -> bool:
        """Begins the data again, unless their end is that of the epoch."""
        if self._passes:
            return False
        if isinstance(self.dataset, ResumableDataset):
            raise ValueError(
                f"`{self._name}` ends within an epoch. A ResumableDataset must "
                "have the batches of all epochs: repeat its dataset, or leave "
                "out the steps of an epoch."
            )
        self.iterator = iter(self.dataset)
        return True

    def _batches(self) -> Iterable[Any]:
        return self.iterator


class WorkerSource(BatchSource):
    """Endless batches that every worker of `coordinator` reads for itself.

    Raises:
        ValueError: `steps` is None or out of range.
    """

    def __init__(
        self,
        coordinator: tf.distribute.coordinator.ClusterCoordinator,
        dataset: tf.data.Dataset,
        steps: int | None,
    ):
        if steps is None:
            raise ValueError(
                "`steps_per_epoch` is None, but the datasets of the function "
                "`data` have no end; give the steps of an epoch."
            )
        super().__init__("data", dataset.repeat(), steps)
        # A dataset that workers make could not use resources of this program.
        self.iterator = iter(
            coordinator.create_per_worker_dataset(self.dataset)
        )

    def take(self, steps: int) -> tuple[Any, int]:
        """Returns the iterator of each worker, and `steps`."""
        return self.iterator, steps


def check_dataset(name: str, dataset: Any) -> None:
    """Raises TypeError unless `dataset` is a `tf.data.Dataset`."""
    if not isinstance(dataset, tf.data.Dataset):
        raise TypeError(
            f"`{name}` must be a tf.data.Dataset, found "
            f"{type(dataset).__name__}."
        )
