"""SaveInterval: how often to save, from the time that saving takes."""

import time

from lodestar._checks import is_number

# Time between two saves, however short they are.
_LEAST_SECONDS = 1.0


class SaveInterval:
    """Decides when to save, so that saving takes a small share of the time.

    >>> interval = lodestar.snapshot.SaveInterval()
    >>> for day in ("20260130", "20260131"):
    ...     data = open_dataset(f"log/{day}/*.txt", schema)
    ...     metrics = lodestar.paddle.train_from_dataset(model, data)
    ...     if interval.due():
    ...         interval.saved(lodestar.snapshot.save(model, "snapshots").seconds)

    `lodestar.callbacks.Snapshot(every_n_steps="auto")` does the same between steps.

    Args:
        share: Maximum duration of the last save, as a fraction of the time since. The
            next save is due then.

    Raises:
        ValueError: If `share` is not in (0, 1].
    """

    def __init__(self, share: float = 0.02):
        if not is_number(share) or not 0 < share <= 1:
            raise ValueError(f"`share` must be in (0, 1], got {share!r}.")
        self._share = share
        self._seconds = 0.0  # Duration of the last save.
        self._end = time.perf_counter()

    def due(self) -> bool:
        """Returns whether to save now: the first time, a second after the start."""
        wait = max(self._seconds / self._share, _LEAST_SECONDS)
        return time.perf_counter() - self._end >= wait

    def saved(self, seconds: float | None = None) -> None:
        """Notes that a save has just ended, or failed.

        Args:
            seconds: Duration of the save. None keeps the previous duration.
        """
        if seconds is not None:
            self._seconds = seconds
        self._end = time.perf_counter()
