"""Lets callers observe, and replace, the rows that layers look up."""

import contextlib
import contextvars
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import keras

from lodestar.layers.feature import Feature


class Lookup(NamedTuple):
    """One lookup of a layer, which may have one feature without a name.

    `rows` has the dtype of the table.
    """

    layer: keras.layers.Layer
    name: str | None
    feature: Feature
    ids: Any
    rows: Any


_observer: contextvars.ContextVar[Callable[[Lookup], Any] | None] = (
    contextvars.ContextVar("lodestar_lookup_observer", default=None)
)


@contextlib.contextmanager
def observe_lookups(observer: Callable[[Lookup], Any]) -> Iterator[None]:
    """Passes each lookup in the context to `observer`, which returns its rows."""
    token = _observer.set(observer)
    try:
        yield
    finally:
        _observer.reset(token)


def observed(lookup: Lookup) -> Any:
    """Returns the rows of `lookup`, which an observer may replace."""
    observer = _observer.get()
    return lookup.rows if observer is None else observer(lookup)
