"""Weights that a subclass of a layer over tables has of its own."""

import copy
import warnings
from collections.abc import Mapping, MutableMapping
from typing import Any

import keras
import numpy as np

from lodestar import _private
from lodestar.embedding.hook_variable import as_hook

_KEY = "own_weight_{}"


def _own_weights(layer: keras.layers.Layer) -> list[keras.Variable]:
    return [v for v in _private.own_variables(layer) if as_hook(v) is None]


def save_own_weights(
    layer: keras.layers.Layer, store: MutableMapping[str, Any]
) -> None:
    """Writes them beside the tables."""
    for i, weight in enumerate(_own_weights(layer)):
        store[_KEY.format(i)] = keras.ops.convert_to_numpy(weight)


def load_own_weights(
    layer: keras.layers.Layer, store: Mapping[str, Any]
) -> None:
    """Reads what `save_own_weights` wrote; warns where it wrote nothing.

    Raises:
        ValueError: Others were saved, or of other shapes; none is loaded.
    """
    weights = _own_weights(layer)
    saved = []
    while (key := _KEY.format(len(saved))) in store.keys():
        saved.append(np.asarray(store[key]))
    shapes = [value.shape for value in saved]
    wanted = [tuple(weight.shape) for weight in weights]
    if weights and not saved:
        # A file of a release that saved none.
        warnings.warn(
            f"The layer `{layer.name}` has {len(weights)} weights of its own, "
            "but none was saved: they stay as they are.",
            stacklevel=2,
        )
        return
    if shapes != wanted:
        raise ValueError(
            f"The layer `{layer.name}` has weights of its own of shapes "
            f"{wanted}, but those saved have {shapes}; wanted equal ones."
        )
    for weight, value in zip(weights, saved, strict=True):
        weight.assign(value)


def copy_through_file(
    layer: keras.layers.Layer, memo: dict[int, Any]
) -> keras.layers.Layer:
    """A deep copy in Keras's way, which has all that the layer saves."""
    make, arguments = layer.__reduce__()
    memo[id(layer)] = copied = make(*copy.deepcopy(arguments))
    return copied
