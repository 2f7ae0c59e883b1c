"""What becomes of a snapshot that a thread writes, for those who wait."""

import contextlib
import queue
import threading
import time
import warnings
from typing import Any

from lodestar.snapshot.info import SnapshotInfo


class Latch:
    """As threading.Event, which an interrupt of `wait` can leave locked."""

    def __init__(self) -> None:
        self._set = False
        self._wakers: queue.SimpleQueue[None] = queue.SimpleQueue()

    def set(self) -> None:
        """Lets all go on who wait."""
        self._set = True
        self._wakers.put(None)

    def is_set(self) -> bool:
        """Whether `set` was called."""
        return self._set

    def wait(self, timeout: float | None = None) -> bool:
        """Waits for `set`; returns `is_set()`."""
        end = None if timeout is None else time.monotonic() + timeout
        while not self._set:
            # One whom an interrupt keeps from waking the next is not waited
            # for for ever.
            left = 1.0 if end is None else min(1.0, end - time.monotonic())
            if left <= 0.0:
                break
            with contextlib.suppress(queue.Empty):
                self._wakers.get(timeout=left)
                self._wakers.put(None)
        return self._set


class Outcome:
    """What became of a snapshot."""

    def __init__(self) -> None:
        self.ended = Latch()
        self.info: Any = None  # SnapshotInfo
        self.error: BaseException | None = None
        self.told = False
        # The collector may drop it on the thread that ends it.
        self._lock = threading.RLock()
        self._dropped = False

    def result(self) -> SnapshotInfo:
        """What was written; raises what went wrong."""
        self.told = True
        if self.error is not None:
            raise self.error
        return self.info

    def end(self) -> None:
        """Nothing more comes of it."""
        with self._lock:
            self.ended.set()
            self._warn_if_lost()

    def drop(self) -> None:
        """Nobody can wait for it any more."""
        with self._lock:
            self._dropped = True
            self._warn_if_lost()

    def _warn_if_lost(self) -> None:
        is_lost = self._dropped and self.ended.is_set()
        if not is_lost or self.told or self.error is None:
            return
        self.told = True
        warnings.warn(
            "A snapshot was not written, and nobody waited for it: "
            f"{self.error}",
            RuntimeWarning,
            stacklevel=3,
        )
