"""The result of a snapshot that a thread writes."""

import contextlib
import queue
import threading
import time
import warnings
from typing import Any

from lodestar.snapshot.info import SnapshotInfo


class Latch:
    """A threading.Event that an interrupt of `wait` cannot leave locked."""

    def __init__(self) -> None:
        self._set = False
        self._wakers: queue.SimpleQueue[None] = queue.SimpleQueue()

    def set(self) -> None:
        """Wakes all waiting threads."""
        self._set = True
        self._wakers.put(None)

    def is_set(self) -> bool:
        """Returns whether `set` was called."""
        return self._set

    def wait(self, timeout: float | None = None) -> bool:
        """Waits for `set` and returns `is_set()`."""
        end = None if timeout is None else time.monotonic() + timeout
        while not self._set:
            # An interrupted thread may not wake the next one, so poll as well.
            left = 1.0 if end is None else min(1.0, end - time.monotonic())
            if left <= 0.0:
                break
            with contextlib.suppress(queue.Empty):
                self._wakers.get(timeout=left)
                self._wakers.put(None)
        return self._set


class Outcome:
    """The result or the error of a snapshot."""

    def __init__(self) -> None:
        self.ended = Latch()
        self.info: Any = None  # SnapshotInfo
        self.error: BaseException | None = None
        self.told = False
        # Reentrant: the garbage collector may call `drop` on the thread that
        # calls `end`.
        self._lock = threading.RLock()
        self._dropped = False

    def result(self) -> SnapshotInfo:
        """Returns the description of the version, or raises the error."""
        self.told = True
        if self.error is not None:
            raise self.error
        return self.info

    def end(self) -> None:
        """Marks the outcome as final."""
        with self._lock:
            self.ended.set()
            self._warn_if_lost()

    def drop(self) -> None:
        """Notes that nobody can wait for the snapshot any more."""
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
