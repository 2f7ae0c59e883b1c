"""Functions of whichever copy of a model serves."""

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from lodestar.serving.copies import Copies
from lodestar.serving.served_content import ServedContent


class LiveFunction:
    """A function of a loaded model, in the copy that serves when it is called.

    In a graph too: it is traced with both. Attributes are those of the
    function, which `find` finds in a copy.
    """

    def __init__(
        self,
        copies: Copies,
        find: Callable[[ServedContent], Callable[..., Any]],
    ):
        self._copies = copies
        self._find = find

    @tf.autograph.experimental.do_not_convert
    def __call__(self, *arguments: Any, **named: Any) -> Any:
        return self._copies.run(
            lambda content: self._find(content)(*arguments, **named)
        )

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(self._find(self._copies.serving), name)
