"""The base class of layers on ragged rows."""

from collections.abc import Mapping
from typing import Any

import keras
import tensorflow as tf

from lodestar import _bases
from lodestar.ops import symbolic_build
from lodestar.ragged import LoDTensor
from lodestar.sequence import nesting


class RaggedLayer(_bases.Layer):
    """A layer whose inputs and outputs keep their levels.

    Takes LoDTensors in place of RaggedTensors, and then returns them.
    """

    # Arguments that the config stores unchanged, and those that it stores serialized,
    # each with the module that does it.
    _plain: tuple[str, ...] = ()
    _serialized: Mapping[str, Any] = {}

    def __init__(self, **kwargs: Any):
        # A cast by Keras would make a symbolic ragged input dense.
        super().__init__(autocast=False, **kwargs)
        self.supports_jit = False

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Calls the layer; Keras does not accept a LoDTensor as an input."""
        given = (args, kwargs)
        if not any(isinstance(x, LoDTensor) for x in tf.nest.flatten(given)):
            return super().__call__(*args, **kwargs)
        args, kwargs = keras.tree.map_structure(_to_ragged, given)
        outputs = super().__call__(*args, **kwargs)
        return keras.tree.map_structure(_to_lod, outputs)

    def get_config(self) -> dict[str, Any]:
        config = super().get_config()
        for name in self._plain:
            config[name] = getattr(self, name)
        for name, kind in self._serialized.items():
            config[name] = kind.serialize(getattr(self, name))
        return config

    def _as_ragged(self, name: str, x: Any) -> Any:
        """Returns `x` as a RaggedTensor, or a ragged KerasTensor unchanged.

        Raises:
            ValueError: `x` is dense.
        """
        x = symbolic_build.as_ragged(x)
        if isinstance(x, tf.RaggedTensor | LoDTensor) or getattr(
            x, "ragged", False
        ):
            return x
        raise ValueError(
            f"`{name}` of the layer '{self.name}' must be ragged, got a dense tensor "
            f"of shape {getattr(x, 'shape', None)}. {nesting.how_to_get_ragged(x)}"
        )


def _to_ragged(x: Any) -> Any:
    return x.to_ragged() if isinstance(x, LoDTensor) else x


def _to_lod(x: Any) -> Any:
    if not isinstance(x, tf.RaggedTensor):
        return x
    return LoDTensor(x.flat_values, x.nested_row_splits)
