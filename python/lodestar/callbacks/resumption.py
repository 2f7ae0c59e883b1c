"""Saves and restores the place of a training, its callbacks and its metrics."""

import json
import warnings
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import keras
import numpy as np

from lodestar import _private
from lodestar.snapshot import blobs

_CALLBACKS = "fit/callbacks"
_METRIC = "fit/metric/"

# Attributes that Keras callbacks reset in `on_train_begin`.
_ATTRIBUTES: dict[type, tuple[str, ...]] = {
    keras.callbacks.EarlyStopping: (
        "wait",
        "best",
        "best_epoch",
        "stopped_epoch",
    ),
    keras.callbacks.ReduceLROnPlateau: ("wait", "best", "cooldown_counter"),
    keras.callbacks.ModelCheckpoint: ("best",),
}


class Resumption:
    """Makes several calls of `fit`, in several processes, one training.

    `moment` is the result of `moment()` at the point to resume from, or {}. It is
    after `batch` batches of `epoch`. `build` builds the metrics of the model and
    returns an error message or "".
    """

    def __init__(
        self,
        callbacks: keras.callbacks.CallbackList,
        moment: Mapping[str, np.ndarray],
        epoch: int,
        batch: int,
        build: Callable[[], str],
    ):
        self.callbacks = callbacks
        self.epoch, self.batch = epoch, batch
        self._moment = moment
        self._build = build

    def begin(self) -> None:
        """Calls `on_train_begin` of the callbacks and restores their states."""
        every = self.callbacks.callbacks
        # BackupAndRestore would restore another state and does nothing else here.
        self.callbacks.callbacks = [
            callback
            for callback in every
            if not isinstance(callback, keras.callbacks.BackupAndRestore)
        ]
        self.callbacks.on_train_begin()
        self.callbacks.callbacks = every
        for callback, state in self._saved_states():
            _set_state(callback, state)

    def has_stopped(self) -> bool:
        """Returns whether an EarlyStopping has ended the training for good."""
        return any(
            isinstance(callback, keras.callbacks.EarlyStopping)
            and state.get("stopped_epoch", 0) > 0
            and state["wait"] >= callback.patience
            for callback, state in self._saved_states()
        )

    def moment(self) -> dict[str, np.ndarray]:
        """Returns the states of callbacks and metrics between two steps."""
        # Metrics first: all workers read them, but a callback may fail in one.
        metrics = {
            f"{_METRIC}{i}": blobs.to_array("a metric", variable)
            for i, variable in enumerate(self.callbacks.model.metrics_variables)
        }
        states = []
        for callback in self.callbacks.callbacks:
            state = _state(callback)
            if state:
                states.append([_kind(callback), state])
        text = json.dumps(states, default=_number).encode()
        return {_CALLBACKS: np.frombuffer(text, np.uint8), **metrics}

    def restore_metrics(self) -> dict[str, Any]:
        """Restores the metrics of the resumed epoch; returns their results."""
        saved = {
            name: array
            for name, array in self._moment.items()
            if name.startswith(_METRIC)
        }
        if not saved:
            return {}
        problem = self._build()
        model = self.callbacks.model
        pairs = [
            (variable, saved.get(f"{_METRIC}{i}"))
            for i, variable in enumerate(model.metrics_variables)
        ]
        if not problem and (
            len(pairs) != len(saved)
            or any(
                array is None or array.shape != tuple(variable.shape)
                for variable, array in pairs
            )
        ):
            problem = "they differ from the metrics in the snapshot"
        if problem:
            warnings.warn(
                "The metrics of the resumed epoch restart, so its logs cover only "
                f"the rest of the epoch: {problem}.",
                RuntimeWarning,
                stacklevel=2,
            )
            return {}
        for variable, array in pairs:
            variable.assign(array)
        return dict(model.get_metrics_result())

    def _saved_states(self) -> Iterable[tuple[Any, dict[str, Any]]]:
        """Yields each callback with its state, in order within a class."""
        if _CALLBACKS not in self._moment:
            return
        left = json.loads(self._moment[_CALLBACKS].tobytes())
        for callback in self.callbacks.callbacks:
            kind = _kind(callback)
            for saved in left:
                if saved[0] == kind:
                    left.remove(saved)
                    yield callback, saved[1]
                    break


def _kind(callback: Any) -> str:
    """Returns the import path of a callback's class, unique in a process."""
    return f"{type(callback).__module__}.{type(callback).__qualname__}"


def _state(callback: Any) -> dict[str, Any]:
    state = {name: getattr(callback, name) for name in _attributes(callback)}
    state.update(_private.batch_counters(callback))
    if hasattr(callback, "get_state"):
        state["state"] = callback.get_state()
    return state


def _set_state(callback: Any, state: dict[str, Any]) -> None:
    for name in _attributes(callback):
        if name in state:
            setattr(callback, name, state[name])
    _private.set_batch_counters(callback, state)
    if "state" in state and hasattr(callback, "set_state"):
        callback.set_state(state["state"])


def _attributes(callback: Any) -> tuple[str, ...]:
    for kind, names in _ATTRIBUTES.items():
        if isinstance(callback, kind):
            return names
    return ()


def _number(value: Any) -> Any:
    """Converts a number of NumPy or TensorFlow for JSON."""
    array = np.asarray(value)
    if array.ndim or array.dtype.kind not in "biuf":
        raise ValueError(
            "The state of a callback must have only numbers and JSON values, got "
            f"{value!r}."
        )
    return array.item()
