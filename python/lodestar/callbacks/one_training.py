"""One training that several calls of `fit`, in several processes, are parts of."""

import json
import warnings
from collections.abc import Iterable, Mapping
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from lodestar import _private
from lodestar.snapshot import blobs
from lodestar.train.shared_out import Phases, build

_CALLBACKS = "fit/callbacks"
_METRIC = "fit/metric/"

# What Keras's callbacks set in `on_train_begin`, and go on from.
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


class OneTraining(Phases):
    """Callbacks to which all calls of `fit` are one training.

    Args:
        callbacks: Nested, as Keras takes them.
        moment: What `moment()` was where the training goes on; {}: it begins.
        **options: As a CallbackList takes them.

    Attributes:
        first_batch: Of the epoch that is trained.
    """

    def __init__(
        self, callbacks: Any, moment: Mapping[str, np.ndarray], **options: Any
    ):
        super().__init__(callbacks, **options)
        self.first_batch = 0
        self._moment = moment
        self._begun = False
        self._first_logs: dict[str, Any] = {}  # of the batches before the first
        self._end_logs: Any = None

    def on_train_begin(self, logs: Any = None) -> None:
        self.training = True
        if self._begun:
            return
        self._begun = True
        # What a BackupAndRestore would restore here is of another moment, and
        # it does nothing else here.
        callbacks = self.callbacks
        self.callbacks: list[keras.callbacks.Callback] = [
            callback
            for callback in callbacks
            if not isinstance(callback, keras.callbacks.BackupAndRestore)
        ]
        super().on_train_begin(logs)
        self.callbacks = callbacks
        _private.forget_initial_epoch(self.model)
        for callback, state in self._saved_states():
            _set_state(callback, state)

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        super().on_train_batch_begin(self.first_batch + batch, logs)

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        super().on_train_batch_end(self.first_batch + batch, logs)

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        # Keras gives none where no batch was left of the epoch.
        super().on_epoch_end(epoch, {**self._first_logs, **(logs or {})})
        self._first_logs = {}

    def on_train_end(self, logs: Any = None) -> None:
        self.training = False
        self._end_logs = logs or self._end_logs

    def end(self) -> None:
        """No call follows."""
        super().on_train_end(self._end_logs)

    def has_stopped(self) -> bool:
        """Whether the training was stopped early before, and is to stay so."""
        return any(
            isinstance(callback, keras.callbacks.EarlyStopping)
            and state.get("stopped_epoch", 0) > 0
            and state["wait"] >= callback.patience
            for callback, state in self._saved_states()
        )

    def moment(self) -> dict[str, np.ndarray]:
        """What callbacks and metrics hold now, between two steps."""
        # First: workers read metrics together, and a callback may fail in one.
        metrics = {
            f"{_METRIC}{i}": blobs.to_array("a metric", variable)
            for i, variable in enumerate(self.model.metrics_variables)
        }
        states = []
        for callback in self.callbacks:
            state = _state(callback)
            if state:
                states.append([type(callback).__name__, state])
        text = json.dumps(states, default=_number).encode()
        return {_CALLBACKS: np.frombuffer(text, np.uint8), **metrics}

    def restore_metrics(self, dataset: tf.data.Dataset) -> None:
        """Gives metrics what they held, in the epoch that goes on.

        Args:
            dataset: What is trained on.
        """
        saved = {
            name: array
            for name, array in self._moment.items()
            if name.startswith(_METRIC)
        }
        if not saved:
            return
        model = self.model
        problem = ""
        strategy = model.distribute_strategy
        # lodestar.train.fit has made them.
        if not isinstance(strategy, tf.distribute.ParameterServerStrategy):
            problem = build(model, dataset)
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
            problem = "they are others than those of the snapshot"
        if problem:
            warnings.warn(
                "The logs of the epoch that goes on are those of its rest: the "
                f"metrics begin anew, as {problem}.",
                RuntimeWarning,
                stacklevel=2,
            )
            return
        for variable, array in pairs:
            variable.assign(array)
        self._first_logs = {
            name: float(value) if np.ndim(value) == 0 else value
            for name, value in model.get_metrics_result().items()
        }

    def _saved_states(self) -> Iterable[tuple[Any, dict[str, Any]]]:
        """Each callback with its state; those of one class in their order."""
        if _CALLBACKS not in self._moment:
            return
        left = json.loads(self._moment[_CALLBACKS].tobytes())
        for callback in self.callbacks:
            for saved in left:
                if saved[0] == type(callback).__name__:
                    left.remove(saved)
                    yield callback, saved[1]
                    break


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
    """A number of NumPy or TensorFlow, for JSON."""
    array = np.asarray(value)
    if array.ndim or array.dtype.kind not in "biuf":
        raise ValueError(
            f"The state of a callback holds {value!r}, wanted what JSON can "
            "hold, or a number."
        )
    return array.item()
