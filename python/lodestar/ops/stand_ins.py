"""Replaces our ops by others, in graphs that must not contain them.

Inside `stand_ins`, a `replaceable` function calls its replacement with the same
arguments and results.
"""

import contextlib
import contextvars
import functools
from collections.abc import Callable, Iterator, Mapping
from typing import Any, ParamSpec, TypeAlias, TypeVar

import tensorflow as tf

_P = ParamSpec("_P")
_R = TypeVar("_R")
# Maps a replaceable function to its replacement.
StandIns: TypeAlias = Mapping[Callable[..., Any], Callable[..., Any]]

_stand_ins: contextvars.ContextVar[StandIns | None] = contextvars.ContextVar(
    "lodestar_stand_ins", default=None
)


def replaceable(function: Callable[_P, _R]) -> Callable[_P, _R]:
    """Decorates a function that `stand_ins` can replace."""

    # AutoGraph would read the source of `function`, a generated op without one.
    @tf.autograph.experimental.do_not_convert
    @functools.wraps(function)
    def call(*args: _P.args, **kwargs: _P.kwargs) -> _R:
        chosen = _stand_ins.get()
        if chosen is None:
            return function(*args, **kwargs)
        return chosen.get(call, function)(*args, **kwargs)

    return call


@contextlib.contextmanager
def stand_ins(
    functions: StandIns,
) -> Iterator[None]:
    """Replaces functions in this thread, by a dict from each to its replacement."""
    token = _stand_ins.set(functions)
    try:
        yield
    finally:
        _stand_ins.reset(token)
