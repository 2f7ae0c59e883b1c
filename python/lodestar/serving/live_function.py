"""Functions of the copy of a model that serves."""

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from lodestar.serving.copies import Copies
from lodestar.serving.served_content import ServedContent


class LiveFunction:
    """A function of a loaded model that runs in the copy that serves.

    A graph contains both copies. `find` returns the function in a copy, whose
    attributes this object has as well.
    """

    def __init__(
        self,
        copies: Copies,
        find: Callable[[ServedContent], Callable[..., Any]],
    ):
        self._copies = copies
        self._functions = {
            content: find(content) for content in copies.contents
        }

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        if tf.executing_eagerly():
            return self._call(*arguments, **named)
        return self._traced_call(*arguments, **named)

    def _call(self, *arguments: Any, **named: Any) -> Any:
        return self._copies.run(
            lambda content: self._functions[content](*arguments, **named)
        )

    # Eager calls do not use it, since it takes longer than all of `_call`.
    _traced_call = tf.autograph.experimental.do_not_convert(_call)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(self._functions[self._copies.serving], name)
