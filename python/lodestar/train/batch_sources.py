"""Where the steps of an epoch have their batches from."""

import itertools
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from lodestar._checks import check_at_least

DatasetFn = Callable[[tf.distribute.InputContext], tf.data.Dataset]


class BatchSource:
    """Batches that this program reads.

    Args:
        name: Of the argument that `dataset` is, for messages.
        dataset: Of batches.
        steps: Of an epoch; None: a pass over the dataset.
        anew: Each epoch begins with the first batch, not behind the last one's.

    Attributes:
        steps: The same, or as many as a pass has; None: that is not known.

    Raises:
        TypeError: `dataset` is none.
        ValueError: `steps` is out of range.
    """

    def __init__(
        self, name: str, dataset: Any, steps: int | None, anew: bool = False
    ):
        check_dataset(name, dataset)
        self._passes = steps is None
        self._anew = anew or self._passes
        if steps is not None:
            check_at_least("steps", steps, 1)
        else:
            batches = int(dataset.cardinality())
            if batches == tf.data.INFINITE_CARDINALITY:
                raise ValueError(
                    f"`{name}` has no end; give the steps of an epoch."
                )
            if batches != tf.data.UNKNOWN_CARDINALITY:
                steps = batches
        self.steps = steps
        self._dataset = dataset
        self._iterator: Any = None

    def begin(self) -> None:
        """Begins an epoch."""
        if self._anew or self._iterator is None:
            self._iterator = iter(self._dataset)

    def take(self, steps: int) -> tuple[tuple[Any, ...], int]:
        """What a function of `ScheduledStep` takes, and of how many steps it is.

        Args:
            steps: How many at most; 0 are taken at the end.
        """
        batches = list(itertools.islice(self._iterator, steps))
        if not batches and not self._passes:
            self._iterator = iter(self._dataset)
            batches = list(itertools.islice(self._iterator, steps))
        return (batches, tf.constant(len(batches))), len(batches)


class WorkerSource:
    """Batches that every worker reads for itself, without end.

    Args:
        coordinator: Of the workers.
        dataset: Of each worker.
        steps: Of an epoch.

    Attributes:
        steps: The same.

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
                "`steps_per_epoch` is None, and `x` a function, whose datasets "
                "have no end; give the steps of an epoch."
            )
        check_at_least("steps", steps, 1)
        self.steps = steps
        # Made here and sent: made over there, it could hold nothing from here.
        self._iterator = iter(
            coordinator.create_per_worker_dataset(dataset.repeat())
        )

    def begin(self) -> None:
        """Goes on where it is."""

    def take(self, steps: int) -> tuple[tuple[Any, ...], int]:
        """As that of `BatchSource`."""
        return (self._iterator, tf.constant(steps)), steps


def check_dataset(name: str, dataset: Any) -> None:
    """Raises TypeError unless it is one."""
    if not isinstance(dataset, tf.data.Dataset):
        raise TypeError(
            f"`{name}` must be a tf.data.Dataset, found "
            f"{type(dataset).__name__}."
        )
