"""Refuses Keras callbacks that would save a model without its tables."""

import os
from collections.abc import Iterable
from typing import Any

import keras

from lodestar import _frames

_REFUSED = (
    "{what} copies the weights of a model, which do not include the rows of "
    "tables. Training has not started. {instead}"
)


def refuse_callbacks() -> None:
    """Checks the callbacks of the running `fit`, if any.

    Keras reads the `metrics` of layers when an epoch begins; a layer learns of `fit`
    at that point.

    Raises:
        RuntimeError: A callback would lose rows.
    """
    for callback in _flat(_frames.callbacks_of_fit()):
        found = _problem(callback)
        if found is not None:
            what, instead = found
            raise RuntimeError(_REFUSED.format(what=what, instead=instead))


def _problem(callback: Any) -> tuple[str, str] | None:
    callbacks = keras.callbacks
    name = f"keras.callbacks.{type(callback).__name__}"
    if isinstance(callback, callbacks.EarlyStopping):
        # Ours has its own flag for Keras's argument.
        if callback.restore_best_weights:
            return (
                f"{name}(restore_best_weights=True)",
                "Use lodestar.callbacks.EarlyStopping, which takes the same "
                "arguments.",
            )
    elif isinstance(callback, callbacks.ModelCheckpoint):
        path = os.fspath(callback.filepath)
        if path.endswith((".h5", ".hdf5")) and not callback.save_weights_only:
            return (
                f"{name}({path!r}), a legacy HDF5 file,",
                "Use a path that ends in .keras, or in .weights.h5 with "
                "save_weights_only=True.",
            )
    elif isinstance(callback, callbacks.SwapEMAWeights):
        return (
            name,
            "Tables keep no moving average, so evaluate without it.",
        )
    elif isinstance(callback, getattr(callbacks, "OrbaxCheckpoint", ())):
        return (
            name,
            "Use keras.callbacks.ModelCheckpoint, or "
            "lodestar.callbacks.Snapshot.",
        )
    return None


def _flat(callbacks: Iterable[Any]) -> Iterable[Any]:
    for callback in callbacks:
        if isinstance(callback, keras.callbacks.CallbackList):
            yield from _flat(callback.callbacks)
        else:
            yield callback
