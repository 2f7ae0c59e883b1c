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

from lodestar import _private

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
            _refuse_onnx()
            return function(*args, **kwargs)
        return chosen.get(call, function)(*args, **kwargs)

    return call


def _refuse_onnx() -> None:
    if tf.executing_eagerly() or not _private.is_onnx_export():
        return
    raise NotImplementedError(
        "ONNX lacks Lodestar's ops, so `model.export(format='onnx')` "
        "cannot convert this model. Write a SavedModel of TensorFlow ops with "
        "lodestar.export.save_plain(model, path, index='sorted') and "
        "convert it with `python -m tf2onnx.convert --saved-model path --output "
        "model.onnx`."
    )


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
