"""The result of a snapshot that a thread writes or copies."""

import contextlib
import queue
import threading
import time
import warnings
from typing import Any, Generic, TypeVar

from lodestar._resource import NotCopied

_T = TypeVar("_T")


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


class Work(Generic[_T]):
    """Work of a thread, with its result or error.

    Error messages contain `action`, such as "written".

    Attributes:
        ready: Set when the work has begun (`began`), or after its end.
        ended: Set when the result or error is final.
        told: Whether a caller has seen the result or error.
    """

    def __init__(self, action: str) -> None:
        self.action = action
        self.ready, self.ended = Latch(), Latch()
        self.began = self.told = False
        self.error: BaseException | None = None
        self._result: Any = None  # _T
        # Reentrant: the garbage collector may call `drop` on the thread of `run`.
        self._dropping = threading.RLock()
        self._dropped = False

    def _do(self) -> _T:
        """Does the work, and calls `_begin` when it has begun."""
        raise NotImplementedError

    def run(self) -> None:
        """Does the work."""
        try:
            self._result = self._do()
        except BaseException as error:
            self.error = error
        finally:
            with self._dropping:
                self.ended.set()
                self._warn_if_lost()
            # After `ended`, so that `done()` is True in all workers.
            self.ready.set()

    def _begin(self, wake: bool = True) -> None:
        self.began = True
        if wake:
            self.ready.set()

    def result(self) -> _T:
        """Returns the result, or raises the error."""
        self.told = True
        if self.error is not None:
            raise self.error
        found: _T = self._result
        return found

    def drop(self) -> None:
        """Notes that nobody can wait for the snapshot any more."""
        with self._dropping:
            self._dropped = True
            self._warn_if_lost()

    def _warn_if_lost(self) -> None:
        is_lost = self._dropped and self.ended.is_set()
        if not is_lost or self.told or self.error is None:
            return
        self.told = True
        warnings.warn(
            f"A snapshot was not {self.action}, and nobody waited for it: "
            f"{self.error}",
            RuntimeWarning,
            stacklevel=3,
        )


class Pending(NotCopied, Generic[_T]):
    """Work of a thread, for which a process waits before it exits."""

    _instead_of_copy = "pass the same object instead."

    def __init__(self, work: Work[_T]):
        """Starts the work and waits until it has begun."""
        self._work = work
        # Must not reference `self`, so that `__del__` runs when it is dropped.
        self._thread = threading.Thread(
            target=work.run, name="lodestar-snapshot"
        )
        self._thread.start()
        work.ready.wait()
        if not work.began:
            self.wait()

    def done(self) -> bool:
        """Returns whether the work has ended or failed."""
        return self._work.ended.is_set()

    def wait(self, timeout: float | None = None) -> _T:
        """Waits for the end, and returns the result.

        Args:
            timeout: Maximum time to wait in seconds. None waits without limit.

        Raises:
            TimeoutError: The work has not ended yet; it continues.
            Exception: Any error of the function that started the work.
        """
        if not self._work.ended.wait(timeout):
            raise TimeoutError(
                f"The snapshot is not {self._work.action} after {timeout} "
                "seconds."
            )
        self._thread.join()
        return self._work.result()

    def __del__(self) -> None:
        work = getattr(self, "_work", None)
        if work is not None:
            work.drop()
