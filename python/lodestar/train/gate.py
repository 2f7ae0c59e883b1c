"""Gate: threads that take pieces of work, and moments when none works."""

import threading
from collections.abc import Callable, Iterable, Iterator
from typing import Any


class Gate:
    """Hands pieces of work to threads, and stops them between two steps.

    A piece goes to the thread that asks first: none waits while there are
    pieces left.

    Attributes:
        steps: How many have been done.
    """

    def __init__(self, pieces: Iterable[Any], period: int):
        """Begins with no step done.

        Args:
            pieces: Of the work, in the order in which they are handed out.
            period: Steps between two stops.
        """
        self._pieces = iter(pieces)
        self._period = period
        self._next_stop = period
        self._changed = threading.Condition()
        self._working = 0  # threads that have not ended
        self._stepping = 0  # those in a step
        self._ended = False
        self._error: BaseException | None = None
        self.steps = 0

    def run(
        self,
        work: Callable[[Any], Iterator[None]],
        threads: int,
        at_stop: Callable[[], None],
    ) -> None:
        """Does all work; returns when it is done.

        Args:
            work: Makes of a piece an iterator that does a step a turn.
            threads: How many work.
            at_stop: Called on this thread after every `period` steps: none is
                under way until it returns.

        Raises:
            BaseException: The first that `work` or `at_stop` raises, or one, as
                KeyboardInterrupt, that comes to this thread meanwhile. All
                threads have ended then, each after its step.
        """
        self._working = threads
        workers = [
            threading.Thread(target=self._work, args=[work], daemon=True)
            for _ in range(threads)
        ]
        try:
            for worker in workers:
                worker.start()
            while self._wait_for_stop():
                at_stop()
                with self._changed:
                    self._next_stop += self._period
                    self._changed.notify_all()
        finally:
            with self._changed:
                self._ended = True
                self._changed.notify_all()
            for worker in workers:
                if worker.ident is not None:
                    worker.join()
        if self._error is not None:
            raise self._error

    def _wait_for_stop(self) -> bool:
        """Returns whether there is a stop; not where all threads end first."""
        with self._changed:
            self._changed.wait_for(
                lambda: not self._working or self.steps == self._next_stop
            )
            # Whoever did the last step before a stop waits for its end.
            return bool(self._working) and not self._ended

    def _work(self, work: Callable[[Any], Iterator[None]]) -> None:
        try:
            while (piece := self._next_piece()) is not None:
                steps = work(piece)
                while self._step(steps):
                    pass
        except BaseException as error:  # the thread that waits raises it
            with self._changed:
                self._error = self._error or error
                self._ended = True
        with self._changed:
            self._working -= 1
            self._changed.notify_all()

    def _next_piece(self) -> Any:
        with self._changed:
            return None if self._ended else next(self._pieces, None)

    def _step(self, steps: Iterator[None]) -> bool:
        """Does one when it may; returns whether there may be another."""
        with self._changed:
            self._changed.wait_for(
                lambda: (
                    self._ended or self.steps + self._stepping < self._next_stop
                )
            )
            if self._ended:
                return False
            self._stepping += 1
        done = 0
        try:
            for _ in steps:
                done = 1
                break
        finally:
            with self._changed:
                self._stepping -= 1
                self.steps += done
                # A step that was none lets another thread do it.
                if not done or self.steps == self._next_stop:
                    self._changed.notify_all()
        return bool(done)
