"""Sources of the batches that steps train on."""

import itertools
from collections.abc import Iterable, Sequence
from typing import Any

import tensorflow as tf

from lodestar._checks import check_count
from lodestar.data.pieces import pieces_of
from lodestar.snapshot.resumable_dataset import ResumableDataset

_NAMED = 3  # files in an error


class BatchSource:
    """Batches that this program reads.

    `name` is the name of the argument `dataset` in messages. With `steps` None, an
    epoch has all batches. With `restarts`, every epoch starts with the first batch.
    """

    def __init__(
        self, name: str, dataset: Any, steps: int | None, restarts: bool = False
    ):
        self._name = name
        self.dataset = dataset
        # A ResumableDataset reads another dataset.
        self._given = getattr(dataset, "dataset", dataset)
        self._passes = steps is None
        self._restarts = restarts or self._passes
        if steps is not None:
            check_count("steps", steps, 1)
        else:
            batches = int(dataset.cardinality())
            if batches == tf.data.INFINITE_CARDINALITY:
                raise ValueError(
                    f"`{name}` is endless. Pass the number of steps per epoch."
                )
            if batches != tf.data.UNKNOWN_CARDINALITY:
                steps = batches
        self.steps = steps
        self.iterator: Any = None

    def no_batch(self) -> ValueError:
        """Returns the error for an epoch without a batch."""
        files = pieces_of(self._given) or []
        return no_batch(self._name, [piece.name for piece in files])

    def begin(self) -> None:
        """Starts an epoch."""
        if self._restarts or self.iterator is None:
            self.iterator = iter(self.dataset)

    def end(self) -> None:
        """Ends an epoch whose steps have all run."""
        if self._passes and isinstance(self.dataset, ResumableDataset):
            self.dataset.begin_anew()

    def take(self, steps: int) -> tuple[Any, int]:
        """Returns up to `steps` batches and their number, 0 at the epoch's end."""
        batches = list(itertools.islice(self._batches(), steps))
        if not batches and self.restart():
            batches = list(itertools.islice(self._batches(), steps))
        return batches, len(batches)

    def restart(self) -> bool:
        """Restarts the data, or returns False if their end ends the epoch."""
        if self._passes:
            return False
        if isinstance(self.dataset, ResumableDataset):
            raise ValueError(
                f"`{self._name}` ended within an epoch. A ResumableDataset must "
                "have the batches of all epochs: repeat its dataset, or remove the "
                "number of steps per epoch."
            )
        self.iterator = iter(self.dataset)
        return True

    def _batches(self) -> Iterable[Any]:
        return self.iterator


class WorkerSource(BatchSource):
    """Endless batches that every worker of `coordinator` reads itself."""

    def __init__(
        self,
        coordinator: tf.distribute.coordinator.ClusterCoordinator,
        dataset: tf.data.Dataset,
        steps: int | None,
    ):
        if steps is None:
            raise ValueError(
                "Datasets of the function `data` are endless. Pass "
                "`steps_per_epoch`."
            )
        super().__init__("data", dataset.repeat(), steps)
        # A dataset created by workers could not use resources of this program.
        self.iterator = iter(
            coordinator.create_per_worker_dataset(self.dataset)
        )

    def take(self, steps: int) -> tuple[Any, int]:
        """Returns the iterator of each worker, and `steps`."""
        return self.iterator, steps


def no_batch(name: str, pieces: Sequence[str]) -> ValueError:
    """Returns the error for the argument `name` without a batch in its `pieces`."""
    if not pieces:
        return ValueError(f"`{name}` has no batch.")
    names = ", ".join(pieces[:_NAMED])
    more = len(pieces) - _NAMED
    others = f" and {more} more" if more > 0 else ""
    return ValueError(
        f"`{name}` has no batch: no record was found in {names}{others}."
    )
