"""fit and evaluate: Keras's, of models that strategies spread."""

from typing import Any

import keras
import tensorflow as tf

from lodestar import _private
from lodestar._checks import check_at_least
from lodestar.train import replicas
from lodestar.train.batch_sources import BatchSource, DatasetFn
from lodestar.train.scheduler import Scheduler, errors


def fit(
    model: keras.Model,
    x: tf.data.Dataset | DatasetFn,
    *,
    epochs: int = 1,
    verbose: Any = "auto",
    callbacks: Any = None,
    validation_data: tf.data.Dataset | None = None,
    initial_epoch: int = 0,
    steps_per_epoch: int | None = None,
    validation_steps: int | None = None,
    validation_freq: int = 1,
    steps_per_round: int | None = None,
    sync_every: int = 1,
) -> keras.callbacks.History:
    """`model.fit` of a model under a strategy of `tf.distribute`.

    Under ParameterServerStrategy each step runs on whichever worker is free, on
    the weights that it finds. All workers wait after every `steps_per_round`
    steps. Callbacks are called then, so that they see weights, tables and
    metrics of one moment. Metrics are those of all steps, none counted twice. To go
    on in the middle of an epoch, call it by `fit` of `lodestar.callbacks.Snapshot`.

    Under MirroredStrategy and MultiWorkerMirroredStrategy it is what `model.fit`
    would be if Keras could: a step is one of all replicas, callbacks are called
    after each, and ragged ids and strings may be looked up. All workers call
    it, with data in the same order, and each trains on its part of each batch.

    >>> with strategy.scope():
    ...     model = make_model()  # and its `compile`
    >>> lodestar.train.fit(model, dataset, epochs=3)

    Args:
        model: Made and compiled in the scope of the strategy, with Keras's own
            `train_step`. The `steps_per_execution` of `compile` is how many
            steps a worker is given at a time.
        x: Batches, read by this program, each trained on by one worker, or by
            all replicas. Or, under ParameterServerStrategy, a function that
            gives the dataset which every worker reads for itself, from its
            beginning again where it ends. There the rank of its elements must
            be known before they are read.
        epochs: As `model.fit`.
        verbose: As there.
        callbacks: As there; those of batches are called once a round.
        validation_data: Batches, evaluated as `x` is trained on.
        initial_epoch: As there.
        steps_per_epoch: As there, of all workers together; a dataset that ends
            is read again, but for a ResumableDataset, whose data must not end
            before the epochs do. None: one pass over `x`, which is no function then.
        validation_steps: As there.
        validation_freq: As there.
        steps_per_round: Of all workers together; default: 100 for each.
        sync_every: A worker reads the dense weights, computes the gradients of
            so many steps by them, and updates them by the sum (Dean et al.,
            2012, "Downpour SGD"). Tables are read and updated in every step.
            It is how many steps a worker is given at a time, too.

    Returns:
        As `model.fit`.

    Raises:
        TypeError: `x` or `validation_data` is neither.
        ValueError: An argument is out of range or for another strategy, the
            model is not as above, there is no batch, or replicas of several
            workers read different ones.
        tf.errors.UnavailableError: A parameter server is gone, and its part of
            the model with it; names it.
        tf.errors.FailedPreconditionError: The servers belong to another
            program, which is running.
        tf.errors.OpError: As the dataset and the step.
    """
    check_at_least("epochs", epochs, 0)
    check_at_least("initial_epoch", initial_epoch, 0)
    check_at_least("validation_freq", validation_freq, 1)
    check_at_least("sync_every", sync_every, 1)
    if replicas.are_of(model):
        for name, given in (
            ("steps_per_round", steps_per_round is not None),
            ("sync_every", sync_every > 1),
        ):
            if given:
                raise ValueError(
                    f"`{name}` is for ParameterServerStrategy; here every step "
                    "is one of all replicas."
                )
        return replicas.fit(
            model,
            x,
            callbacks,
            validation_data,
            epochs=epochs,
            verbose=verbose,
            initial_epoch=initial_epoch,
            steps_per_epoch=steps_per_epoch,
            validation_steps=validation_steps,
            validation_freq=validation_freq,
        )
    scheduler = Scheduler(model, x, steps_per_round)
    function, at_once = scheduler.step.train, model.steps_per_execution
    if sync_every > 1:
        function, at_once = scheduler.step.push, sync_every
    train = scheduler.source(steps_per_epoch)
    validation = None
    if validation_data is not None:
        validation = BatchSource(
            "validation_data", validation_data, validation_steps, anew=True
        )
    callbacks = _callback_list(
        callbacks,
        model,
        verbose,
        add_history=True,
        epochs=epochs,
        steps=train.steps,
    )
    logs: dict[str, Any] = {}
    model.stop_training = False
    with errors(scheduler.coordinator):
        callbacks.on_train_begin()
        first = _private.restored_epoch(model) or initial_epoch
        _private.forget_initial_epoch(model)
        for epoch in range(first, epochs):
            model.reset_metrics()
            callbacks.on_epoch_begin(epoch)
            logs = scheduler.run(
                train,
                function,
                at_once,
                callbacks.on_train_batch_begin,
                callbacks.on_train_batch_end,
                lambda: model.stop_training,
                # A snapshot may have been taken behind the last batch.
                begun=getattr(callbacks, "first_batch", 0) > 0,
            )
            if validation is not None and not (epoch + 1) % validation_freq:
                found = _evaluate(model, scheduler, validation, callbacks)
                logs |= {f"val_{name}": value for name, value in found.items()}
            callbacks.on_epoch_end(epoch, logs)
            if model.stop_training:
                break
        # Weights become their averages, where the optimizer has some.
        model.optimizer.finalize_variable_values(model.trainable_variables)
        callbacks.on_train_end(logs)
    return model.history


def evaluate(
    model: keras.Model,
    x: tf.data.Dataset,
    *,
    verbose: Any = "auto",
    steps: int | None = None,
    callbacks: Any = None,
) -> dict[str, Any]:
    """`model.evaluate`, as `fit` is `model.fit`.

    Args:
        model: As for `fit`.
        x: Batches, as for `fit`.
        verbose: As `model.evaluate`.
        steps: As there.
        callbacks: As there; those of batches are called once a round.

    Returns:
        The metrics by name.

    Raises:
        Exception: As `fit`.
    """
    if replicas.are_of(model):
        return replicas.evaluate(
            model, x, callbacks, verbose=verbose, steps=steps
        )
    scheduler = Scheduler(model, x, None)
    source = BatchSource("x", x, steps)
    callbacks = _callback_list(
        callbacks, model, verbose, epochs=1, steps=source.steps
    )
    with errors(scheduler.coordinator):
        return _evaluate(model, scheduler, source, callbacks)


def _evaluate(
    model: keras.Model,
    scheduler: Scheduler,
    source: BatchSource,
    callbacks: keras.callbacks.CallbackList,
) -> dict[str, Any]:
    callbacks.on_test_begin()
    model.reset_metrics()
    logs = scheduler.run(
        source,
        scheduler.step.test,
        model.steps_per_execution,
        callbacks.on_test_batch_begin,
        callbacks.on_test_batch_end,
    )
    callbacks.on_test_end(logs)
    return logs


def _callback_list(
    callbacks: Any, model: keras.Model, verbose: Any, **options: Any
) -> keras.callbacks.CallbackList:
    if isinstance(callbacks, keras.callbacks.CallbackList):
        return callbacks
    return keras.callbacks.CallbackList(
        callbacks,
        model=model,
        verbose=verbose,
        add_progbar=verbose != 0,
        **options,
    )
