"""Base class of callbacks that act every so many batches."""

from typing import Any

from lodestar import _bases
from lodestar._checks import check_epoch_or_count
from lodestar._typing import Every


class Periodic(_bases.Callback):
    """Counts the trained batches, and calls `_on_batches` every so many.

    With `steps_per_execution` a call is several batches, some of which may be beyond
    the end of the epoch. If Keras does not know the number of batches, the last call
    of each epoch counts as full.

    Args:
        name: Name of the argument `every`, for errors.
        every: Number of batches, or `"epoch"`, which calls nothing.
    """

    def __init__(self, name: str, every: Every):
        super().__init__()
        check_epoch_or_count(name, every)
        self._every: Any = every
        self._batches = 0
        self._first_batch = 0  # First batch of the current call.

    @property
    def _by_epoch(self) -> bool:
        """Whether to act at the end of each epoch instead."""
        return bool(self._every == "epoch")

    def _on_batches(self) -> None:
        """Acts after the last of `every` batches."""
        raise NotImplementedError

    def on_train_batch_begin(
        self, batch: int, logs: dict[str, Any] | None = None
    ) -> None:
        self._first_batch = batch

    def on_train_batch_end(
        self, batch: int, logs: dict[str, Any] | None = None
    ) -> None:
        before = self._batches
        steps = (self.params or {}).get("steps")
        last = batch if steps is None else min(batch, steps - 1)
        self._batches += max(last - self._first_batch, 0) + 1
        if (
            not self._by_epoch
            and before // self._every < self._batches // self._every
        ):
            self._on_batches()

    def get_state(self) -> dict[str, int]:
        """Returns the state that snapshots save."""
        return {"batches": self._batches}

    def set_state(self, state: dict[str, int]) -> None:
        """Restores the result of `get_state`."""
        self._batches = state["batches"]
