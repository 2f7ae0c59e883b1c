"""The loop over epochs and steps that all ways of training share."""

from collections.abc import Callable, Mapping
from typing import Any, Protocol

import keras

from lodestar import _private
from lodestar.callbacks.resumption import Resumption
from lodestar.embedding import workers

Logs = dict[str, Any]

NO_BATCH = "there is no batch to train on or to evaluate."


class Steps(Protocol):
    """Runs the steps of epochs: in this process, by threads, or elsewhere.

    Attributes:
        total: Steps per epoch; None if unknown.
        at_once: Steps between two calls of callbacks.
    """

    total: int | None
    at_once: int

    def begin(self) -> None:
        """Begins an epoch, whose metrics continue from those of the model."""

    def run(self, steps: int) -> tuple[int, Mapping[str, Any]]:
        """Runs steps; no step is running when it returns.

        Returns:
            How many were run, 0 only at the end of the data; and the metrics.
        """

    def end(self) -> None:
        """Ends an epoch of which every step was run."""


class Loop:
    """Runs epochs, and calls the callbacks as `model.fit` does.

    Args:
        callbacks: Those of a model.
    """

    def __init__(self, callbacks: keras.callbacks.CallbackList):
        self._callbacks = callbacks
        self._model: keras.Model = callbacks.model

    def train(
        self,
        steps: Steps,
        epochs: range,
        *,
        validate: Callable[[], Logs] | None = None,
        validation_freq: int = 1,
        resumption: Resumption | None = None,
        alike: Mapping[str, Any] | None = None,
    ) -> keras.callbacks.History:
        """Trains.

        Args:
            steps: Steps of training.
            epochs: Numbers of the epochs.
            validate: Returns the metrics on the validation data.
            validation_freq: Epochs from one validation to the next.
            resumption: Where to resume, in place of the first epoch.
            alike: What all workers must have been given alike, by name.

        Raises:
            ValueError: There is no batch, or workers were given different
                arguments.
        """
        model, callbacks = self._model, self._callbacks
        model.stop_training = False
        _private.forget_initial_epoch(model)
        first, done = epochs.start, 0
        if resumption is None:
            callbacks.on_train_begin()
        else:
            resumption.begin()
            first, done = resumption.epoch, resumption.batch
        # The BackupAndRestore of each worker may have restored an epoch.
        restored = _private.restored_epoch(model)
        workers.check_alike(
            model.distribute_strategy,
            {**(alike or {}), "restored epoch": restored},
        )
        _private.forget_initial_epoch(model)
        logs: Logs = {}
        for epoch in range(restored or first, epochs.stop):
            model.reset_metrics()
            callbacks.on_epoch_begin(epoch)
            logs = {}
            if resumption is not None and done:
                logs = resumption.restore_metrics()
            logs = self._run(
                steps,
                callbacks.on_train_batch_begin,
                callbacks.on_train_batch_end,
                lambda: workers.agree_to_stop(model),
                done,
                logs,
            )
            done = 0
            if validate is not None and not (epoch + 1) % validation_freq:
                found = validate()
                logs |= {f"val_{name}": value for name, value in found.items()}
            callbacks.on_epoch_end(epoch, logs)
            if workers.agree_to_stop(model):
                break
        if model.optimizer is not None:
            # Weights become their averages if the optimizer keeps some.
            model.optimizer.finalize_variable_values(model.trainable_variables)
        callbacks.on_train_end(logs)
        return model.history

    def test(self, steps: Steps) -> Logs:
        """Evaluates the model; returns the metrics."""
        callbacks = self._callbacks
        callbacks.on_test_begin()
        self._model.reset_metrics()
        logs = self._run(
            steps, callbacks.on_test_batch_begin, callbacks.on_test_batch_end
        )
        callbacks.on_test_end(logs)
        return logs

    def _run(
        self,
        steps: Steps,
        on_begin: Callable[[int], None],
        on_end: Callable[[int, Mapping[str, Any]], None],
        stopped: Callable[[], bool] = lambda: False,
        done: int = 0,
        logs: Mapping[str, Any] | None = None,
    ) -> Logs:
        """Runs the steps of an epoch after the first `done`."""
        logs = logs or {}
        steps.begin()
        ended = done == steps.total
        while not ended:
            left = steps.at_once if steps.total is None else steps.total - done
            on_begin(done)
            ran, found = steps.run(min(left, steps.at_once))
            if ran:
                done += ran
                logs = found
                on_end(done - 1, logs)
            ended = not ran or done == steps.total
            if stopped():
                break
        if ended:
            steps.end()
        if not done:
            raise ValueError(NO_BATCH)
        # As in Keras, metrics unless `train_step` returns something else.
        results = self._model.get_metrics_result()
        if results.keys() == logs.keys():
            logs = results
        return {name: _as_number(value) for name, value in logs.items()}


def _as_number(value: Any) -> Any:
    array = keras.ops.convert_to_numpy(value)
    return array.item() if array.ndim == 0 else array
