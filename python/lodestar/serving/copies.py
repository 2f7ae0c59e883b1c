"""Two copies of a model that take turns, so that no call sees an update."""

import time
import weakref
from collections.abc import Callable, Sequence
from typing import TypeVar

import tensorflow as tf

from lodestar._library import gen_ops
from lodestar.serving.served_content import ServedContent

_T = TypeVar("_T")


class _Turn:
    """The copy that serves; referenced by the calls that read it."""

    __slots__ = ("__weakref__", "copy")

    def __init__(self, copy: int):
        self.copy = copy


class Copies:
    """Two copies, one of which serves while the other is updated.

    Calls never wait for updates: each holds the turn that it began with, and the
    next update of that copy waits until no call holds it. Graphs hold turns with
    ops. A single copy is updated while calls read it.
    """

    def __init__(self, contents: Sequence[ServedContent]):
        self._contents = tuple(contents)
        self._turn = _Turn(0)
        self._last_turn: weakref.ref[_Turn] | None = None
        self._turns = gen_ops.lodestar_make_turns()

    @property
    def single(self) -> bool:
        """Whether there is only one copy."""
        return len(self._contents) == 1

    @property
    def contents(self) -> tuple[ServedContent, ...]:
        """All copies. Another thread may be updating one of them."""
        return self._contents

    @property
    def serving(self) -> ServedContent:
        """The copy that serves now; only `run` prevents its update."""
        return self._contents[self._turn.copy]

    def run(self, call: Callable[[ServedContent], _T]) -> _T:
        """Returns `call` of the copy that serves, in graphs at run time."""
        if self.single:
            return call(self._contents[0])
        if tf.executing_eagerly():
            turn = self._turn
            try:
                return call(self._contents[turn.copy])
            finally:
                # Otherwise the traceback of an error would hold the turn.
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
        """Waits for calls of the other copy to end, and returns it."""
        end = time.monotonic() + seconds
        while self._last_turn_is_held():
            if time.monotonic() >= end:
                raise TimeoutError(
                    f"A call that began before the last update still runs after "
                    f"{seconds:g} seconds. The next update waits for it."
                )
            time.sleep(0.001)
        return self._contents[0 if self.single else 1 - self._turn.copy]

    def swap(self) -> None:
        """Makes new calls use the idle copy."""
        if self.single:
            return
        turn = _Turn(1 - self._turn.copy)
        gen_ops.lodestar_begin_turn(self._turns, turn.copy)
        self._last_turn = weakref.ref(self._turn)
        self._turn = turn

    def _last_turn_is_held(self) -> bool:
        if self._last_turn is not None and self._last_turn() is not None:
            return True
        return bool(gen_ops.lodestar_last_turn_is_held(self._turns))
