"""Keras's fit and evaluate, with snapshots, threads, and under strategies."""

import contextlib
from collections.abc import Callable
from typing import Any, Literal

import keras
import tensorflow as tf

from lodestar._arguments import explained
from lodestar._checks import check_count
from lodestar._errors import noting_graph_errors
from lodestar._typing import Model, StrPath
from lodestar.callbacks.snapshot import Snapshot
from lodestar.embedding import workers
from lodestar.schema import SchemaLike
from lodestar.train import loop
from lodestar.train.cluster_steps import ClusterSteps
from lodestar.train.given_data import (
    Data,
    GivenData,
    are_paths,
    is_function,
)
from lodestar.train.keras_steps import KerasSteps
from lodestar.train.loop import Logs, Steps
from lodestar.train.refused_callbacks import refuse_callbacks
from lodestar.train.step import check_is_model
from lodestar.train.threads import ThreadSteps


@explained()
@noting_graph_errors()
def fit(
    model: Model,
    data: Data,
    *,
    epochs: int = 1,
    verbose: int | Literal["auto"] = "auto",
    callbacks: Any = None,
    validation_data: Data | None = None,
    shuffle: bool = True,
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
        data: A `tf.data.Dataset` of batches, paths for `open_dataset`, arrays as `x`
            or `(x, y[, sample_weight])`, where `x` may be a list or dict of inputs,
            a `keras.utils.PyDataset`, or a function of a `tf.distribute.InputContext`
            that returns a dataset. Under ParameterServerStrategy every worker calls
            the function and reads its dataset repeatedly; elements need a known
            rank. With `threads`: paths, the result of `open_dataset` for files, a
            list of datasets, or a `lodestar.paddle.InMemoryDataset`, whose queues
            the threads divide.
        epochs: See `model.fit`.
        verbose: See `model.fit`.
        callbacks: See `model.fit`.
        validation_data: As `data`. This program reads it. Paths have the schema of
            `data`.
        shuffle: Whether to shuffle arrays in every epoch, as `model.fit` does, but in
            the same orders in every process.
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
        schema: Schema of paths; see `open_dataset`.
        batch_size: Batch size of paths (default 1024) and arrays (default 32).

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
            finish their current step first. Notes on the error have its own
            sentence, which TensorFlow puts among stack traces, and name the file.
    """
    check_count("epochs", epochs, 0)
    check_count("initial_epoch", initial_epoch, 0)
    check_count("validation_freq", validation_freq, 1)
    check_count("sync_every", sync_every, 1)
    check_is_model(model)
    by_servers, alone = _by_servers(model), threads is None
    servers = "under ParameterServerStrategy"
    for name, given, allowed, when in (
        ("snapshots", snapshots, alone, "without `threads`"),
        (
            "snapshots",
            snapshots,
            not is_function(data),
            "if `data` is not a function",
        ),
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
    given_data = GivenData(schema, batch_size)
    given_data.check(data, validation_data)
    by_workers = by_servers and is_function(data)
    if alone or are_paths(data):
        data = given_data.batches("data", data, shuffle)
    if snapshots is not None:
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
            by_workers=by_workers,
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
        validate: Callable[[], Logs] | None = None
        if validation_data is not None:
            testing = _steps(
                model,
                "validation_data",
                given_data.batches("validation_data", validation_data),
                validation_steps,
                "test",
                steps_per_round=steps_per_round,
            )

            def validate() -> Logs:
                return loop.test(testing, callbacks)

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


@explained()
@noting_graph_errors()
def evaluate(
    model: Model,
    data: Data,
    *,
    verbose: int | Literal["auto"] = "auto",
    steps: int | None = None,
    callbacks: Any = None,
    schema: SchemaLike | None = None,
    batch_size: int | None = None,
) -> Logs:
    """Evaluates a model like `model.evaluate`, under every strategy of `fit`.

    >>> with strategy.scope():
    ...     model = make_model()  # compiled
    >>> metrics = lodestar.train.evaluate(model, dataset)

    Args:
        model: A compiled model; see `fit`.
        data: See `fit`.
        verbose: See `model.evaluate`.
        steps: See `model.evaluate`.
        callbacks: See `model.evaluate`. Under ParameterServerStrategy, callbacks of
            batches are called once per round.
        schema: See `fit`.
        batch_size: See `fit`.

    Returns:
        The metrics by name.

    Raises:
        Exception: See `fit`.
    """
    check_is_model(model)
    workers.check_alike(model.distribute_strategy, {"steps": steps})
    given = GivenData(schema, batch_size)
    given.check(data)
    batches = given.batches("data", data)
    testing = _steps(model, "data", batches, steps, "test")
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
