"""train_from_dataset: Hogwild training by threads that read files."""

import collections
import functools
import os
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import keras
import numpy as np
import tensorflow as tf

from lodestar._checks import check_at_least, check_flag
from lodestar.data.files.file_dataset import FileDataset
from lodestar.paddle.in_memory_dataset import InMemoryDataset
from lodestar.train.gate import Gate
from lodestar.train.step import PARTS, TimedStep, TrainingStep

_EMPTY = "`dataset` has no sample."
_ENDED = "End of sequence"  # of the iterator, and of nothing else

OnPeriod = Callable[[int, dict[str, Any]], None]


class _Piece(NamedTuple):
    """What one thread reads at a time."""

    name: str
    open: Callable[[], tf.data.Dataset]


def train_from_dataset(
    model: keras.Model,
    dataset: FileDataset | InMemoryDataset,
    threads: int = 0,
    fetch: Sequence[str] | None = None,
    fetch_info: Sequence[str] | None = None,
    print_period: int = 100,
    debug: bool = False,
    *,
    on_period: OnPeriod | None = None,
) -> dict[str, Any]:
    """Trains one pass over files by threads that share all weights (Hogwild).

    Each thread takes the next file of the list, reads it, and runs the compiled
    training step on its batches. Tables and dense weights are shared and
    updated without a lock (Niu et al., 2011, "Hogwild!"), so a pass of several
    threads is not the same twice; one of one thread is what `model.fit` does,
    file by file. Each thread has metrics of its own, which are added up.

    >>> data = lodestar.data.FileDataset(files, "schema.yaml", 1024)
    >>> lodestar.train.train_from_dataset(model, data, fetch=["loss", "auc"])

    Args:
        model: A compiled Keras model that keeps Keras's own `train_step`. A
            table needs the `DynamicEmbeddingOptimizer`, as in `model.fit`.
        dataset: A `FileDataset`, whose files are shared out, or an
            `InMemoryDataset`, whose queues are.
        threads: How many; 0 is one for each core. No more than there are files
            or queues are started; where these are fewer, a line says so.
        fetch: What is printed each period: metrics by the names that
            `model.fit` shows, and of a functional model layers, the mean of
            whose outputs over the steps of the period is taken. None is all
            metrics.
        fetch_info: What is printed in the place of each name.
        print_period: Steps of all threads between two prints.
        debug: Whether to print the ops of the step and, at the end, the time
            that its parts took. The parts are compiled one by one then.
        on_period: Called with the number of steps and the values by label, and
            then nothing is printed. No step is under way meanwhile, on any
            thread, so that it may save a snapshot.

    Returns:
        All metrics of the pass by name, as `model.fit`'s last logs.

    Raises:
        TypeError: `dataset` is neither, or `model` no Keras model.
        ValueError: An argument is out of range, the model is not compiled or
            has a `train_step` of its own, or `fetch` names what it has not.
        tf.errors.OpError: As the dataset and the step. The first error of a
            thread, or Ctrl-C, ends all threads after the step that they are
            in; a note says which file it was.
    """
    pieces = _pieces(dataset)
    threads = _num_threads(threads, len(pieces))
    check_at_least("print_period", print_period, 1)
    debug = check_flag("debug", debug)
    _check_model(model, threads)
    if isinstance(fetch, str):
        raise ValueError(f"`fetch`={fetch!r} must be a list of names.")
    fetch = None if fetch is None else list(fetch)
    kind = TimedStep if debug else TrainingStep
    step = kind.of(model, lambda: _first(pieces), fetch)
    labels = _labels(step.fetch, fetch_info)
    if isinstance(step, TimedStep):
        _print_operations(step, iter(pieces[0].open()))
        step.seconds.clear()
    model.reset_metrics()
    sums = _Sums(step)
    gate = Gate(pieces, print_period)
    before = int(model.optimizer.iterations)

    def stop() -> None:
        _count(model, before + gate.steps, threads)
        values = sums.metrics() | sums.means()
        shown = {
            label: values[name]
            for label, name in zip(labels, step.fetch, strict=True)
        }
        if on_period is not None:
            on_period(gate.steps, shown)
        else:
            _print(gate.steps, shown)

    try:
        gate.run(lambda piece: _train(piece, sums), threads, stop)
    finally:
        _count(model, before + gate.steps, threads)
    if not gate.steps:
        raise ValueError(_EMPTY)
    # As model.fit at its end: weights become their averages, where they have.
    model.optimizer.finalize_variable_values(model.trainable_variables)
    if isinstance(step, TimedStep):
        _print_times(step, gate.steps)
    return sums.metrics()


class _Sums:
    """What the steps of all threads add up to."""

    def __init__(self, step: TrainingStep):
        self._step = step
        self._metrics: dict[int, list[tf.Tensor]] = {}  # by thread
        self._lock = threading.Lock()
        self._tensors: dict[str, list[tf.Tensor]] = collections.defaultdict(
            list
        )

    def step(self, iterator: Any) -> None:
        """Does a step of this thread."""
        thread = threading.get_ident()
        metrics = self._metrics.get(thread) or self._step.new_metrics()
        metrics, tensors = self._step(iterator, metrics)
        with self._lock:
            self._metrics[thread] = metrics
            for name, mean in tensors.items():
                self._tensors[name].append(mean)

    def metrics(self) -> dict[str, Any]:
        """Those of the pass by name, which the model then has, too."""
        results = self._step.merge(self._metrics.values())
        return {
            name: value.item() if value.ndim == 0 else value
            for name, value in results.items()
        }

    def means(self) -> dict[str, float]:
        """Those of the fetched tensors since the last call."""
        means = {
            name: float(np.mean(values))
            for name, values in self._tensors.items()
        }
        self._tensors.clear()
        return means


def _pieces(dataset: FileDataset | InMemoryDataset) -> list[_Piece]:
    if isinstance(dataset, FileDataset):
        return [
            _Piece(file, functools.partial(dataset.dataset, file))
            for file in dataset.files
        ]
    if isinstance(dataset, InMemoryDataset):
        return [
            _Piece(f"queue {queue}", functools.partial(dataset.dataset, queue))
            for queue in range(dataset.num_queues)
        ]
    raise TypeError(
        "`dataset` must be a lodestar.data.FileDataset or a "
        f"lodestar.paddle.InMemoryDataset, found {type(dataset).__name__}; "
        "model.fit trains on one tf.data.Dataset."
    )


def _num_threads(wanted: int, num_pieces: int) -> int:
    check_at_least("threads", wanted, 0)
    threads = wanted or len(os.sched_getaffinity(0))
    if threads > num_pieces:
        print(
            f"train_from_dataset: {num_pieces} thread"
            f"{'' if num_pieces == 1 else 's'} and not {threads}, one a file "
            "or queue",
            flush=True,
        )
    return min(threads, num_pieces)


def _check_model(model: keras.Model, threads: int) -> None:
    if not isinstance(model, keras.Model):
        raise TypeError(
            f"`model` must be a keras.Model, found {type(model).__name__}."
        )
    if not model.compiled or model.optimizer is None:
        raise ValueError(
            "the model has no optimizer; call model.compile() first."
        )
    if type(model).train_step is not keras.Model.train_step:
        raise ValueError(
            f"{type(model).__name__} has a `train_step` of its own; "
            "train_from_dataset runs Keras's, with metrics of each thread."
        )
    strategy = model.distribute_strategy
    if tf.distribute.has_strategy() or (
        strategy is not tf.distribute.get_strategy()
    ):
        raise ValueError(
            f"the model is made or trained under {type(strategy).__name__}; "
            "threads share a model that no strategy spreads."
        )
    if threads == 1:
        return
    if model.run_eagerly:
        raise ValueError(
            "with `run_eagerly` layers keep their losses where other threads "
            "find them; use threads=1."
        )
    optimizer = model.optimizer
    while optimizer is not None:
        if optimizer.gradient_accumulation_steps:
            raise ValueError(
                "`gradient_accumulation_steps` adds up gradients of steps that "
                "follow each other, which threads do not; use threads=1."
            )
        optimizer = getattr(optimizer, "inner_optimizer", None)


def _count(model: keras.Model, steps: int, threads: int) -> None:
    """Counts the steps of which threads have lost count: Keras adds 1 in two.

    That of a LossScaleOptimizer, which leaves some out, stays as it is.
    """
    optimizer = model.optimizer
    if threads > 1 and not isinstance(
        optimizer, keras.optimizers.LossScaleOptimizer
    ):
        optimizer.iterations.assign(steps)


def _first(pieces: list[_Piece]) -> tuple[Any, Any]:
    """The first iterator that has a batch, and the batch."""
    for piece in pieces:
        iterator = iter(piece.open())
        for batch in iterator:
            return iterator, batch
    raise ValueError(_EMPTY)


def _labels(names: list[str], labels: Sequence[str] | None) -> list[str]:
    if labels is None:
        return names
    if isinstance(labels, str) or len(labels) != len(names):
        raise ValueError(
            f"`fetch_info`={labels!r} must have a label for each of {names}."
        )
    return list(labels)


def _train(piece: _Piece, sums: _Sums) -> Iterator[None]:
    """Trains on a piece, a step a turn."""
    batch = 0
    try:
        iterator = iter(piece.open())
        while True:
            batch += 1
            try:
                sums.step(iterator)
            except tf.errors.OutOfRangeError as error:
                if _ENDED not in str(error):
                    raise
                return
            yield
    except Exception as error:
        if batch:  # what cannot be opened names itself
            error.add_note(f"in {piece.name}, batch {batch}")
        raise


def _print(steps: int, values: Mapping[str, Any]) -> None:
    texts = [
        f"{label} {value:.4f}"
        if isinstance(value, float)
        else f"{label} {value}"
        for label, value in values.items()
    ]
    print(f"step {steps}: {', '.join(texts)}", flush=True)


def _print_operations(step: TrainingStep, iterator: Any) -> None:
    counts = collections.Counter(step.operations(iterator))
    print(f"the step has {counts.total()} ops:")
    for name, count in counts.most_common():
        print(f"{count:7} {name}")


def _print_times(step: TimedStep, steps: int) -> None:
    total = sum(step.seconds.values())
    for part in PARTS:
        seconds = step.seconds.get(part, 0.0)
        print(
            f"{part:>9} {1e3 * seconds / max(steps, 1):9.3f} ms a step "
            f"{100 * seconds / (total or 1):5.1f} %",
            flush=True,
        )
