"""Arguments of `keras.layers.Layer` that layers pass on."""

from typing import Any, TypedDict


class TableLayerOptions(TypedDict, total=False):
    """Options of a layer with tables, besides its `dtype` and `name`."""

    trainable: bool


class LayerOptions(TableLayerOptions, total=False):
    """Options of a layer without tables."""

    dtype: Any
    name: str | None
