"""fit and evaluate: Keras's, with snapshots, threads, and under strategies."""

import contextlib
import os
from collections.abc import Callable
from typing import Any

import keras
import tensorflow as tf

from lodestar._checks import check_at_least
from lodestar._typing import StrPath, StrPaths
from lodestar.callbacks.snapshot import Snapshot
from lodestar.data.open_dataset import open_dataset
from lodestar.data.schema import SchemaLike
from lodestar.embedding import workers
from lodestar.train import loop
from lodestar.train.batch_sources import DatasetFn, check_dataset
from lodestar.train.keras_steps import KerasSteps, has_strategy
from lodestar.train.loop import Logs, Steps
from lodestar.train.scheduled_steps import ScheduledSteps
from lodestar.train.step import check_is_model
from lodestar.train.threads import ThreadSteps


def fit(
    model: keras.Model,
    data: tf.data.Dataset | DatasetFn | StrPaths | Any,
    *,
    epochs: int = 1,
    verbose: Any = "auto",
    callbacks: Any = None,
    validation_data: Any = None,
    initial_epoch: int = 0,
    steps_per_epoch: int | None = None,
    validation_steps: int | None = None,
    validation_freq: int = 1,
    snapshots: Snapshot | StrPath | None = None,
    threads: int | None = None,
    steps_per_round: int | None = None,
    sync_every: int = 1,
    schema: SchemaLike | None = None,
    batch_size: int | None = None,
) -> keras.callbacks.History:
    """Trains a model as `model.fit` does, and in ways that `model.fit` does not.

    With `snapshots`, training survives the end of its process: run again, the
    same program restores the newest snapshot, finishes its epoch from the next
    batch on, and trains the remaining epochs. Tables, weights, optimizer,
    callbacks and logs are bitwise those of a training that was never interrupted.

    >>> lodestar.train.fit(model, dataset, epochs=3, snapshots="snapshots")

    With `threads`, each thread takes the next file of a list, and trains on its
    batches (Hogwild; Niu et al., 2011). Tables and dense weights are shared, and
    updated without a lock, so that two trainings by several threads differ.

    >>> lodestar.train.fit(model, "log/20260130/*.txt", schema="schema.yaml", threads=2)

    Under ParameterServerStrategy each step runs on whichever worker is free, with
    the weights that it finds there. With `snapshots`, no batch is trained twice
    or left out, but the order of steps differs. Under MirroredStrategy and
    MultiWorkerMirroredStrategy a step is one of all replicas, each of which
    trains on its part of each batch; ragged ids and strings can be looked up. All
    workers call this function, with the same data in the same order.

    Threads and the workers of ParameterServerStrategy run rounds of steps.
    Callbacks of batches are called once per round, while no step runs, so that
    they see tables, weights and metrics at a consistent point in time. Metrics
    cover all steps, each once.

    >>> with strategy.scope():
    ...     model = make_model()  # compiled
    >>> lodestar.train.fit(model, dataset, epochs=3)

    Args:
        model: Compiled, in the scope of its strategy if there is one. Threads and
            workers of ParameterServerStrategy need Keras's own `train_step`. The
            latter are given `steps_per_execution` steps at a time.
        data: A `tf.data.Dataset` of batches, or paths that `open_dataset` opens.
            With `threads`: paths, the result of `open_dataset` for files, a list
            of datasets, or a `lodestar.paddle.InMemoryDataset`, whose queues the
            threads take. Under ParameterServerStrategy also a function: it
            returns the dataset that every worker reads for itself, again and
            again, with elements of known rank.
        epochs: See `model.fit`.
        verbose: See `model.fit`.
        callbacks: See `model.fit`.
        validation_data: See `model.fit`; under a strategy a `tf.data.Dataset`.
        initial_epoch: See `model.fit`. Not with `snapshots`.
        steps_per_epoch: Steps of an epoch, by all workers together. Data that end
            before are read again, except a ResumableDataset (thus with
            `snapshots`), which must last for all epochs. None: an epoch is one
            pass over the data.
        validation_steps: See `model.fit`.
        validation_freq: See `model.fit`.
        snapshots: Folder of the snapshots, which are taken after each epoch; or a
            `lodestar.callbacks.Snapshot`, which says when to take them.
        threads: Number of threads; 0 starts one per core. There are never more
            than files. None: `model.fit`'s one step at a time.
        steps_per_round: Steps of a round; 100 per thread or worker by default.
        sync_every: Under ParameterServerStrategy: a worker reads the dense
            weights, computes the gradients of so many steps with them, and
            updates them by the sum (Dean et al., 2012, "Downpour SGD"). Tables
            are read and updated in every step.
        schema: Schema of the files, if `data` are paths; see `open_dataset`.
        batch_size: Batch size, if `data` are paths. Defaults to 1024.

    Returns:
        The history, see `model.fit`.

    Raises:
        TypeError: `data` or `validation_data` has the wrong type.
        ValueError: An argument is out of range, or does not go with another or
            with the strategy; the model is not as above; there is no batch; the
            workers of a MultiWorkerMirroredStrategy read different ones.
        NotImplementedError: The strategy is another one.
        SnapshotError: See `lodestar.snapshot.restore`.
        tf.errors.UnavailableError: A parameter server is gone, with its part of
            the model; names it.
        tf.errors.FailedPreconditionError: The servers belong to another running
            program.
        tf.errors.OpError: An error of the data or of a step. If a thread raises
            it, all threads end after the step they are in; a note names the file.
    """
    check_at_least("epochs", epochs, 0)
    check_at_least("initial_epoch", initial_epoch, 0)
    check_at_least("validation_freq", validation_freq, 1)
    check_at_least("sync_every", sync_every, 1)
    check_is_model(model)
    by_servers, alone = _by_servers(model), threads is None
    paths = _are_paths(data)
    servers = "under ParameterServerStrategy"
    for name, given, allowed, when in (
        ("schema", schema, paths, "if `data` are paths"),
        ("batch_size", batch_size, paths, "if `data` are paths"),
        ("snapshots", snapshots, alone, "without `threads`"),
        ("snapshots", snapshots, not callable(data), "if `data` is a dataset"),
        (
            "initial_epoch",
            initial_epoch > 0,
            not snapshots,
            "without `snapshots`",
        ),
        ("steps_per_epoch", steps_per_epoch, alone, "without `threads`"),
        ("sync_every", sync_every > 1, by_servers, servers),
        (
            *("steps_per_round", steps_per_round, by_servers or not alone),
            f"{servers} or with `threads`",
        ),
    ):
        if given is not None and given is not False and not allowed:
            raise ValueError(f"`{name}` works only {when}.")
    alike = {
        "epochs": epochs,
        "initial_epoch": initial_epoch,
        "steps_per_epoch": steps_per_epoch,
        "snapshots": snapshots is not None,
        "validation_data": validation_data is not None,
        "validation_steps": validation_steps,
        "validation_freq": validation_freq,
    }
    workers.check_alike(model.distribute_strategy, alike)
    if paths:
        data = open_dataset(
            data, schema, 1024 if batch_size is None else batch_size
        )
    if snapshots is not None:
        check_dataset("data", data)
        if not isinstance(snapshots, Snapshot):
            snapshots = Snapshot(snapshots)
        data = snapshots.reader(data)
    steps: Steps
    if threads is not None:
        steps = ThreadSteps(model, data, threads, steps_per_round)
    else:
        steps = _steps(
            model,
            "data",
            data,
            steps_per_epoch,
            steps_per_round=steps_per_round,
            sync_every=sync_every,
        )
    with steps.errors():
        callbacks = [c for c in _flat(callbacks) if c is not snapshots]
        # Last, so that it saves what the others have made of an epoch.
        callbacks += [snapshots] if snapshots is not None else []
        # Under this name in a function `fit`, layers find and check them.
        callbacks = _callback_list(
            callbacks,
            model,
            verbose,
            add_history=True,
            epochs=epochs,
            steps=steps.total,
        )
        validate = None
        if validation_data is not None:
            validate = _validation(
                callbacks, validation_data, validation_steps, steps_per_round
            )
        with (
            contextlib.nullcontext()
            if snapshots is None
            else snapshots.training(callbacks, steps.build)
        ) as resumption:
            return loop.train(
                steps,
                callbacks,
                range(initial_epoch, epochs),
                validate,
                validation_freq,
                resumption,
            )


def evaluate(
    model: keras.Model,
    data: Any,
    *,
    verbose: Any = "auto",
    steps: int | None = None,
    callbacks: Any = None,
) -> Logs:
    """Evaluates a model as `model.evaluate` does, under every strategy of `fit`.

    >>> with strategy.scope():
    ...     model = make_model()  # compiled
    >>> metrics = lodestar.train.evaluate(model, dataset)

    Args:
        model: Compiled, see `fit`.
        data: Batches, see `fit`; without a strategy, what `model.evaluate` takes.
        verbose: See `model.evaluate`.
        steps: See `model.evaluate`.
        callbacks: See `model.evaluate`. Under ParameterServerStrategy those of
            batches are called once per round.

    Returns:
        The metrics by name.

    Raises:
        Exception: See `fit`.
    """
    check_is_model(model)
    if not has_strategy(model):
        return model.evaluate(
            data,
            verbose=verbose,
            steps=steps,
            callbacks=callbacks,
            return_dict=True,
        )
    workers.check_alike(model.distribute_strategy, {"steps": steps})
    testing = _steps(model, "data", data, steps, "test")
    with testing.errors():
        callbacks = _callback_list(
            callbacks, model, verbose, epochs=1, steps=testing.total
        )
        return loop.test(testing, callbacks)


def _by_servers(model: keras.Model) -> bool:
    return isinstance(
        model.distribute_strategy, tf.distribute.ParameterServerStrategy
    )


def _steps(
    model: keras.Model,
    name: str,
    data: Any,
    steps: int | None,
    kind: str = "train",
    **by_servers: Any,
) -> Steps:
    if _by_servers(model):
        return ScheduledSteps(model, name, data, steps, kind, **by_servers)
    return KerasSteps(model, name, data, steps, kind)


def _are_paths(data: Any) -> bool:
    paths = data if isinstance(data, list | tuple) else [data]
    return bool(paths) and all(
        isinstance(path, str | os.PathLike) for path in paths
    )


def _flat(callbacks: Any) -> list[Any]:
    if isinstance(callbacks, keras.callbacks.CallbackList):
        callbacks = callbacks.callbacks
    return keras.tree.flatten(callbacks or [])


def _callback_list(
    callbacks: Any, model: keras.Model, verbose: Any, **options: Any
) -> keras.callbacks.CallbackList:
    return keras.callbacks.CallbackList(
        callbacks,
        model=model,
        verbose=verbose,
        add_progbar=verbose != 0,
        **options,
    )


def _validation(
    callbacks: keras.callbacks.CallbackList,
    data: Any,
    steps: int | None,
    steps_per_round: int | None,
) -> Callable[[], Logs]:
    """Returns what evaluates the model at the end of an epoch."""
    model = callbacks.model
    if has_strategy(model):
        testing = _steps(
            model,
            "validation_data",
            data,
            steps,
            "test",
            steps_per_round=steps_per_round,
        )
        return lambda: loop.test(testing, callbacks)
    x, y, weight = keras.utils.unpack_x_y_sample_weight(data)
    return lambda: model.evaluate(
        x,
        y,
        sample_weight=weight,
        steps=steps,
        callbacks=callbacks,
        return_dict=True,
    )
