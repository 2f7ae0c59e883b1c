"""The loop over epochs and steps of all kinds of training."""

import contextlib
from collections.abc import Callable, Mapping
from typing import Any

import keras

from lodestar import _private
from lodestar.callbacks.resumption import Resumption
from lodestar.embedding import workers

Logs = dict[str, Any]


class Steps:
    """Runs the steps of epochs, in this process or elsewhere.

    `source` is a BatchSource, `total` the number of steps per epoch or None, and
    `at_once` the number of steps between calls of callbacks.
    """

    def __init__(self, source: Any, at_once: int):
        self._source = source
        self.total: int | None = source.steps
        self.at_once = at_once

    def begin(self) -> None:
        """Starts an epoch, whose metrics continue from the model's."""
        self._source.begin()

    def run(self, steps: int) -> tuple[int, Mapping[str, Any]]:
        """Runs steps and waits for all of them.

        Returns their number, 0 only at the end of the data, and the metrics.
        """
        raise NotImplementedError

    def end(self) -> None:
        """Ends an epoch whose steps have all run."""
        self._source.end()

    def no_batch(self) -> ValueError:
        """Returns the error for an epoch without a batch."""
        error: ValueError = self._source.no_batch()
        return error

    def build(self) -> str:
        """Creates the variables of the first step; returns an error or ""."""
        return ""

    def errors(self) -> contextlib.AbstractContextManager[None]:
        """Returns a context for training that handles errors."""
        return contextlib.nullcontext()


def train(
    steps: Steps,
    callbacks: keras.callbacks.CallbackList,
    epochs: range,
    validate: Callable[[], Logs] | None = None,
    validation_freq: int = 1,
    resumption: Resumption | None = None,
) -> keras.callbacks.History:
    """Trains the model of the callbacks, which are called as in `model.fit`.

    `validate` returns the metrics on the validation data. `resumption` is where to
    resume instead of starting with the first epoch.
    """
    model = callbacks.model
    model.stop_training = False
    _private.forget_initial_epoch(model)
    first, done = epochs.start, 0
    if resumption is None:
        callbacks.on_train_begin()
    else:
        resumption.begin()
        first, done = resumption.epoch, resumption.batch
    # BackupAndRestore of each worker may have restored an epoch.
    restored = _private.restored_epoch(model)
    workers.check_alike(model.distribute_strategy, {"restored epoch": restored})
    _private.forget_initial_epoch(model)
    logs: Logs = {}
    for epoch in range(restored or first, epochs.stop):
        model.reset_metrics()
        callbacks.on_epoch_begin(epoch)
        logs = resumption.restore_metrics() if resumption and done else {}
        logs = _run(
            steps,
            model,
            callbacks.on_train_batch_begin,
            callbacks.on_train_batch_end,
            lambda: workers.agree_to_stop(model),
            done,
            logs,
        )
        done = 0
        if validate is not None and not (epoch + 1) % validation_freq:
            logs |= {f"val_{name}": value for name, value in validate().items()}
        callbacks.on_epoch_end(epoch, logs)
        if workers.agree_to_stop(model):
            break
    if model.optimizer is not None:
        # This sets weights to their moving averages if the optimizer has them.
        model.optimizer.finalize_variable_values(model.trainable_variables)
    callbacks.on_train_end(logs)
    return model.history


def test(steps: Steps, callbacks: keras.callbacks.CallbackList) -> Logs:
    """Evaluates the model of the callbacks; returns the metrics."""
    callbacks.on_test_begin()
    callbacks.model.reset_metrics()
    logs = _run(
        steps,
        callbacks.model,
        callbacks.on_test_batch_begin,
        callbacks.on_test_batch_end,
    )
    callbacks.on_test_end(logs)
    return logs


def _run(
    steps: Steps,
    model: keras.Model,
    on_begin: Callable[[int], None],
    on_end: Callable[[int, Mapping[str, Any]], None],
    stopped: Callable[[], bool] = lambda: False,
    done: int = 0,
    logs: Mapping[str, Any] | None = None,
) -> Logs:
    """Runs the steps of an epoch after the first `done`; returns the logs."""
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
        raise steps.no_batch()
    # As in Keras: the metrics, unless `train_step` returns something else.
    results = model.get_metrics_result()
    if results.keys() == logs.keys():
        logs = results
    arrays = {k: keras.ops.convert_to_numpy(v) for k, v in logs.items()}
    return {k: v if v.ndim else v.item() for k, v in arrays.items()}
