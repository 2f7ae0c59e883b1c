"""Copies of a model that take turns, so that no call sees an update."""

import time
import weakref
from collections.abc import Callable, Sequence
from typing import TypeVar

import tensorflow as tf

from lodestar._library import gen_ops
from lodestar.serving.served_content import ServedContent

_T = TypeVar("_T")


class _Turn:
    """Which copy serves; there are references as long as calls read it."""

    __slots__ = ("__weakref__", "copy")

    def __init__(self, copy: int):
        self.copy = copy


class Copies:
    """Two copies, one of which serves while the other is written to.

    Calls wait for no update: each holds the turn that it began with, and the
    next writer waits until nobody holds it. Graphs hold a turn by ops. Of one
    copy alone, calls read what is written to.

    Args:
        contents: One or two; the first serves.
    """

    def __init__(self, contents: Sequence[ServedContent]):
        self._contents = tuple(contents)
        self._turn = _Turn(0)
        self._last_turn: weakref.ref[_Turn] | None = None
        self._turns = gen_ops.lodestar_make_turns()

    @property
    def single(self) -> bool:
        """Whether there is one alone."""
        return len(self._contents) == 1

    @property
    def contents(self) -> tuple[ServedContent, ...]:
        """All, to read what others may be writing."""
        return self._contents

    @property
    def serving(self) -> ServedContent:
        """What serves now; `run` keeps it from being written to."""
        return self._contents[self._turn.copy]

    def run(self, call: Callable[[ServedContent], _T]) -> _T:
        """Returns what `call` gives for the copy that serves.

        In a graph, for the one that serves when the graph runs.
        """
        if self.single:
            return call(self._contents[0])
        if tf.executing_eagerly():
            turn = self._turn
            try:
                return call(self._contents[turn.copy])
            finally:
                # Else the traceback of an error would hold it.
                del turn
        held, copy = gen_ops.lodestar_hold_turn(self._turns)
        outputs = tf.cond(
            tf.equal(copy, 0),
            lambda: call(self._contents[0]),
            lambda: call(self._contents[1]),
        )
        tensors = tf.nest.flatten(outputs, expand_composites=True)
        with tf.control_dependencies(tensors):
            gen_ops.lodestar_release_turn(held)
        return outputs

    def idle(self, seconds: float) -> ServedContent:
        """The copy to write to, when the calls that read it have ended.

        Raises:
            TimeoutError: They did not in so many seconds.
        """
        end = time.monotonic() + seconds
        while self._last_turn_is_held():
            if time.monotonic() >= end:
                raise TimeoutError(
                    f"after {seconds:g} seconds, a call still runs that began "
                    "before the last update; the next one waits for its end"
                )
            time.sleep(0.001)
        return self._contents[0 if self.single else 1 - self._turn.copy]

    def swap(self) -> None:
        """Calls that begin from here on see the copy that was idle."""
        if self.single:
            return
        turn = _Turn(1 - self._turn.copy)
        gen_ops.lodestar_begin_turn(self._turns, turn.copy)
        self._last_turn = weakref.ref(self._turn)
        self._turn = turn

    def _last_turn_is_held(self) -> bool:
        return (
            self._last_turn is not None and self._last_turn() is not None
        ) or bool(gen_ops.lodestar_last_turn_is_held(self._turns))
