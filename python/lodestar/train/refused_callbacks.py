"""Refuses Keras callbacks that would save a model without its tables."""

import os
from collections.abc import Iterable
from typing import Any

import keras

from lodestar.embedding.table_variable import as_table

_REFUSED = (
    "{what} copies the weights of a model, which do not include the rows of "
    "tables. Training has not started. {instead}"
)


def refuse_callbacks(callbacks: Iterable[Any], model: keras.Model) -> None:
    """Raises RuntimeError if a callback would lose rows of tables of the model."""
    if not any(as_table(v) is not None for v in model.variables):
        return
    for callback in callbacks:
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
