"""Sees what embedding layers look up, and may put other rows in its place."""

import contextlib
import contextvars
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import keras

from lodestar.layers.feature import Feature


class Lookup(NamedTuple):
    """One lookup of a layer.

    Attributes:
        layer: The DynamicEmbedding or EmbeddingCollection.
        name: Of the feature; None where the layer has but one.
        feature: How it is read.
        ids: As the layer was given them.
        rows: What was read, of the table's dtype.
    """

    layer: keras.layers.Layer
    name: str | None
    feature: Feature
    ids: Any
    rows: Any


_observers: contextvars.ContextVar[tuple[Any, ...]] = contextvars.ContextVar(
    "lodestar_lookup_observers", default=()
)


@contextlib.contextmanager
def observe_lookups(observer: Callable[[Lookup], Any]) -> Iterator[None]:
    """Within, `observer` gets each lookup of a layer and gives its rows."""
    token = _observers.set((*_observers.get(), observer))
    try:
        yield
    finally:
        _observers.reset(token)


def observed(lookup: Lookup) -> Any:
    """The rows of `lookup`, or what observers gave in their place."""
    for observer in _observers.get():
        lookup = lookup._replace(rows=observer(lookup))
    return lookup.rows
