"""Information from the calling frames that Keras does not pass on.

Keras reads layers and variables without telling for which purpose. The running public
functions of Keras show it.
"""

import sys
import traceback
import types
from collections.abc import Iterator
from typing import Any

import keras


def _callers(*names: str) -> Iterator[types.FrameType]:
    for frame, _ in traceback.walk_stack(None):
        if frame.f_code.co_name in names:
            yield frame


def layer_in_file() -> Any:
    """Returns the object that writes its variables to a Keras file, or None."""
    for frame in _callers("save_own_variables"):
        return frame.f_locals.get("self")
    return None


def serializes_object() -> bool:
    """Whether Keras is making the config of an object.

    A config holds the values of variables.
    """
    return any(_callers("serialize_keras_object"))


def model_in_file() -> keras.Model | None:
    """Returns the model that Keras is writing to a file, or None."""
    found = None
    for frame in _callers("save", "save_weights", "save_model", "__reduce__"):
        for name in ("self", "model"):
            model = frame.f_locals.get(name)
            if isinstance(model, keras.Model):
                found = model
    return found


def layer_that_tracks() -> keras.layers.Layer | None:
    """Returns the layer that is getting a variable as an attribute.

    Keras then reads the variable's `trainable`, a few calls below the layer's
    `__setattr__`.
    """
    frame: types.FrameType | None = sys._getframe(2)
    for _ in range(12):
        if frame is None:
            break
        if frame.f_code.co_name == "__setattr__":
            layer = frame.f_locals.get("self")
            return layer if isinstance(layer, keras.layers.Layer) else None
        frame = frame.f_back
    return None


def model_that_makes_config() -> keras.Model | None:
    """Returns the innermost Keras model whose `get_config` is running."""
    for frame in _callers("get_config"):
        model = frame.f_locals.get("self")
        if isinstance(model, keras.Model):
            return model
    return None


def running_optimizers() -> Iterator[keras.optimizers.Optimizer]:
    """Yields the Keras optimizers whose methods are running, innermost first."""
    for frame, _ in traceback.walk_stack(None):
        found = frame.f_locals.get("self")
        if isinstance(found, keras.optimizers.Optimizer):
            yield found


def callbacks_of_fit() -> list[Any]:
    """Returns the callbacks of the innermost running `fit`, if any.

    They are only in a local variable of `fit`, Keras's or ours.
    """
    for frame in _callers("fit"):
        callbacks = frame.f_locals.get("callbacks")
        if isinstance(callbacks, keras.callbacks.CallbackList):
            return list(callbacks.callbacks)
    return []
