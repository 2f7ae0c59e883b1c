"""Threads of a reader that start without a lock.

Executors and `threading.Thread` start a thread under locks of the process. Garbage
collected under one may be a tf.data iterator, whose end waits for a batch, so a
batch must not wait for such a lock.
"""

import _thread
import queue
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

from lodestar.ops.python_calls import before_calls_stop

_running: set[Future[Any]] = set()
_ended = threading.Event()


class ReaderThreads:
    """Runs functions on their own threads, at most `limit` at a time."""

    def __init__(self, limit: int):
        self._places: queue.SimpleQueue[None] = queue.SimpleQueue()
        for _ in range(limit):
            self._places.put(None)

    def run(
        self, future: Future[Any], function: Callable[..., Any], *args: Any
    ) -> None:
        """Starts a function that sets the result of `future`."""
        try:
            _thread.start_new_thread(self._run, (future, function, args))
        except RuntimeError as error:
            future.set_exception(error)

    def _run(
        self, future: Future[Any], function: Callable[..., Any], args: Any
    ) -> None:
        self._places.get()
        _running.add(future)
        try:
            if _ended.is_set():
                raise RuntimeError("the interpreter ends")
            result = function(*args)
        except BaseException as error:
            future.set_exception(error)
        else:
            future.set_result(result)
        finally:
            self._places.put(None)
            _running.discard(future)
            # Its exception's traceback refers to this frame.
            del future


@before_calls_stop
def _end() -> None:
    """Waits for the threads, which must not run into the interpreter's exit."""
    _ended.set()
    for future in _running.copy():
        future.exception()
