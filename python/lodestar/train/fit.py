"""Keras's fit and evaluate, with snapshots, threads, and under strategies."""

import contextlib
import os
from collections.abc import Callable
from typing import Any, Literal

import keras
import tensorflow as tf

from lodestar._checks import check_count
from lodestar._typing import Model, StrPath, StrPaths
from lodestar.callbacks.snapshot import Snapshot
from lodestar.data.open_dataset import open_dataset
from lodestar.data.schema import SchemaLike
from lodestar.embedding import workers
from lodestar.train import loop
from lodestar.train.batch_sources import DatasetFn, check_dataset
from lodestar.train.cluster_steps import ClusterSteps
from lodestar.train.keras_steps import KerasSteps, has_strategy
from lodestar.train.loop import Logs, Steps
from lodestar.train.refused_callbacks import refuse_callbacks
from lodestar.train.step import check_is_model
from lodestar.train.threads import ThreadSteps


def fit(
    model: Model,
    data: tf.data.Dataset | DatasetFn | StrPaths | Any,
    *,
    epochs: int = 1,
    verbose: int | Literal["auto"] = "auto",
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
    """Trains a model like `model.fit`, with snapshots, threads or many machines.

    With `snapshots`, training survives the end of its process. Run the same program
    again: it restores the newest snapshot, completes the epoch from the next batch,
    and trains the remaining epochs. Tables, weights, optimizer, callbacks and logs
    are bitwise equal to an uninterrupted training.

    >>> lodestar.train.fit(model, dataset, epochs=3, snapshots="snapshots")

    With `threads`, each thread trains on the next file of a list (Hogwild; Niu et
    al., 2011). Threads share tables and dense weights and update them without a
    lock, so two trainings by several threads differ.

    >>> lodestar.train.fit(model, "log/20260130/*.txt", schema="schema.yaml", threads=2)

    Under ParameterServerStrategy each step runs on a free worker with the weights
    that it finds. With `snapshots`, no batch is trained twice or skipped, but the
    order of steps varies. Under MirroredStrategy and MultiWorkerMirroredStrategy
    each replica trains on its part of the batch of a step, which may have ragged ids
    and strings. All workers must call this function with the same data in the same
    order.

    Threads and workers of ParameterServerStrategy run rounds of steps. Callbacks of
    batches are called once per round, while no step runs, and see tables, weights
    and metrics at a consistent point in time. Metrics cover every step once.

    >>> with strategy.scope():
    ...     model = make_model()  # compiled
    >>> lodestar.train.fit(model, dataset, epochs=3)

    Args:
        model: A compiled model, created in the scope of its strategy, if any.
            Threads and ParameterServerStrategy need Keras's own `train_step`; the
            latter runs `steps_per_execution` steps per call of a worker.
        data: A `tf.data.Dataset` of batches, or paths for `open_dataset`. With
            `threads`: paths, the result of `open_dataset` for files, a list of
            datasets, or a `lodestar.paddle.InMemoryDataset`, whose queues the
            threads divide. Under ParameterServerStrategy also a function that
            returns a dataset, which every worker reads repeatedly, with elements of
            known rank.
        epochs: See `model.fit`.
        verbose: See `model.fit`.
        callbacks: See `model.fit`.
        validation_data: See `model.fit`; under a strategy a `tf.data.Dataset`.
        initial_epoch: See `model.fit`. Not with `snapshots`.
        steps_per_epoch: Steps per epoch of all workers together. Data that end
            earlier are repeated, except a ResumableDataset (so with `snapshots`),
            which must have the batches of all epochs. None reads all data per epoch.
        validation_steps: See `model.fit`.
        validation_freq: See `model.fit`.
        snapshots: Folder for a snapshot per epoch, or a
            `lodestar.callbacks.Snapshot`.
        threads: Number of threads, at most one per file; 0 starts one per core.
            None runs one step at a time, as `model.fit` does.
        steps_per_round: Steps per round; defaults to 100 per thread or worker.
        sync_every: Under ParameterServerStrategy: number of steps for which a worker
            computes gradients with the same dense weights, before it updates them by
            the sum (Dean et al., 2012, "Downpour SGD"). Tables are read and updated
            in every step.
        schema: Schema of the files if `data` are paths; see `open_dataset`.
        batch_size: Batch size if `data` are paths. Defaults to 1024.

    Returns:
        The history; see `model.fit`.

    Raises:
        TypeError: If `data` or `validation_data` has the wrong type.
        ValueError: If an argument is out of range or contradicts another argument,
            the strategy or the model, there is no batch, a metric is not a sum over
            batches (with threads or ParameterServerStrategy), a batch has fewer
            examples than there are replicas, or the workers of a
            MultiWorkerMirroredStrategy read different batches.
        NotImplementedError: If the strategy is not supported.
        SnapshotError: See `lodestar.snapshot.restore`.
        tf.errors.UnavailableError: If a parameter server, which has a part of the
            model, is lost. The error names it.
        tf.errors.FailedPreconditionError: If the servers belong to another running
            program.
        tf.errors.OpError: If reading or a step fails. With threads, all threads
            finish their current step first. A note on the error names the file.
    """
    check_count("epochs", epochs, 0)
    check_count("initial_epoch", initial_epoch, 0)
    check_count("validation_freq", validation_freq, 1)
    check_count("sync_every", sync_every, 1)
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
        data = snapshots._reader(data)
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
        # Last, so that it saves the effects of the other callbacks.
        callbacks += [snapshots] if snapshots is not None else []
        refuse_callbacks(callbacks, model)
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
            else snapshots._resume(callbacks, steps.build)
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
    model: Model,
    data: Any,
    *,
    verbose: int | Literal["auto"] = "auto",
    steps: int | None = None,
    callbacks: Any = None,
) -> Logs:
    """Evaluates a model like `model.evaluate`, under every strategy of `fit`.

    >>> with strategy.scope():
    ...     model = make_model()  # compiled
    >>> metrics = lodestar.train.evaluate(model, dataset)

    Args:
        model: A compiled model; see `fit`.
        data: Batches, see `fit`; without a strategy, any input of `model.evaluate`.
        verbose: See `model.evaluate`.
        steps: See `model.evaluate`.
        callbacks: See `model.evaluate`. Under ParameterServerStrategy, callbacks of
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
        return ClusterSteps(model, name, data, steps, kind, **by_servers)
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
    """Returns a function that evaluates the model at the end of an epoch."""
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
