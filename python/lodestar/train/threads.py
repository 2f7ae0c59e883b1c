"""Hogwild training: threads that share all weights, and take pieces of the data."""

import collections
import os
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import keras
import tensorflow as tf

from lodestar._checks import check_at_least
from lodestar.data.pieces import Piece, pieces_of
from lodestar.train.keras_steps import KerasTrainer, ended, has_strategy
from lodestar.train.loop import NO_BATCH
from lodestar.train.scheduler import STEPS_PER_ROUND
from lodestar.train.step import (
    TimedStep,
    TrainingStep,
    accumulates_gradients,
    check_train_step,
)


class ThreadTrainer(KerasTrainer):
    """Makes the steps of a model that threads of this process train.

    Args:
        model: Compiled.
        data: What is divided into pieces; see `pieces_of`.
        threads: Number of threads; 0 starts one per core. There are never more
            than pieces.
        steps_per_round: Steps of all threads between two calls of callbacks.
        fetch: Names of metrics, and of layers, the means of whose outputs are
            wanted. None: all metrics.
        timed: Whether to time the parts of steps.

    Attributes:
        step: The compiled step.
        pieces: The pieces of the data.
        wanted: Number of threads if there are enough pieces.
        threads: Number of threads.

    Raises:
        TypeError: `data` cannot be divided.
        ValueError: The model cannot be trained by threads, an argument is out of
            range, or there is no sample.
    """

    def __init__(
        self,
        model: keras.Model,
        data: Any,
        threads: int,
        steps_per_round: int | None = None,
        fetch: Sequence[str] | None = None,
        timed: bool = False,
    ):
        check_train_step(model, "threads")
        if has_strategy(model):
            raise ValueError(
                "the model is made or trained under "
                f"{type(model.distribute_strategy).__name__}, where no threads "
                "can train it: leave out `threads`."
            )
        super().__init__(model, data)
        pieces = pieces_of(data)
        if pieces is None:
            raise TypeError(
                "Threads divide files: `data` must be their paths, the result of "
                "lodestar.data.open_dataset for files, a list of datasets or a "
                f"lodestar.paddle.InMemoryDataset, found {type(data).__name__}."
            )
        check_at_least("threads", threads, 0)
        self.pieces = pieces
        self.wanted = threads or len(os.sched_getaffinity(0))
        self.threads = min(self.wanted, len(pieces))
        if steps_per_round is None:
            steps_per_round = STEPS_PER_ROUND * self.threads
        check_at_least("steps_per_round", steps_per_round, 1)
        self._steps_per_round = steps_per_round
        if self.threads > 1:
            _check_shared(model)
        kind = TimedStep if timed else TrainingStep
        self.step = kind.of(model, lambda: _first(pieces), fetch)

    def training(self, steps: int | None) -> Any:
        """Returns the steps of training."""
        if steps is not None:
            raise ValueError(
                "`steps_per_epoch` does not go with `threads`, which read every "
                "file to its end."
            )
        return ThreadSteps(
            self._model,
            self.step,
            self.pieces,
            self.threads,
            self._steps_per_round,
        )


class ThreadSteps:
    """Runs rounds of steps by threads.

    Args:
        model: The model.
        step: Its compiled step.
        pieces: Pieces of the data. Each epoch reads all of them.
        threads: Number of threads.
        at_once: Steps per round.

    Attributes:
        total: None: the number of steps is unknown.
        at_once: Steps per round.
    """

    total = None

    def __init__(
        self,
        model: keras.Model,
        step: TrainingStep,
        pieces: Sequence[Piece],
        threads: int,
        at_once: int,
    ):
        self._model, self._step, self._pieces = model, step, pieces
        self._threads = threads
        self.at_once = at_once
        self._crew: Any = None
        # States of metrics that no thread is using.
        self._states: collections.deque[list[tf.Tensor]] = collections.deque()
        self._outputs: dict[str, list[Any]] = {}

    def begin(self) -> None:
        """Begins an epoch."""
        self._crew = Crew(self._pieces, self._train, self._threads)
        self._states.clear()

    def end(self) -> None:
        """Ends an epoch."""

    def run(self, steps: int) -> tuple[int, Mapping[str, Any]]:
        """Runs a round, and waits for all threads."""
        optimizer = self._model.optimizer
        before, done = int(optimizer.iterations), self._crew.steps
        try:
            self._crew.run(steps)
        finally:
            done = self._crew.steps - done
            # Of two concurrent increments by Keras, one may be lost. But a
            # LossScaleOptimizer does not count every step.
            if self._threads > 1 and not isinstance(
                optimizer, keras.optimizers.LossScaleOptimizer
            ):
                optimizer.iterations.assign(before + done)
        return done, self._step.merge(self._states)

    @property
    def done(self) -> int:
        """The number of steps of the epoch so far."""
        return self._crew.steps

    def means(self) -> dict[str, float]:
        """Returns the means of fetched outputs since the last call."""
        outputs, self._outputs = self._outputs, {}
        return {
            name: float(tf.reduce_mean(values))
            for name, values in outputs.items()
        }

    def _train(self, piece: Piece) -> Iterator[None]:
        """Trains on a piece; one step per iteration."""
        batch = 0
        try:
            iterator = iter(piece.open())
            while True:
                batch += 1
                try:
                    self._run_step(iterator)
                except tf.errors.OutOfRangeError as error:
                    if not ended(error):
                        raise
                    return
                yield
        except Exception as error:
            if batch:  # errors of opening name the file
                error.add_note(f"in {piece.name}, batch {batch}")
            raise

    def _run_step(self, iterator: Any) -> None:
        try:
            metrics = self._states.pop()
        except IndexError:
            metrics = self._step.new_metrics()
        try:
            metrics, outputs = self._step(iterator, metrics)
        finally:
            self._states.append(metrics)
        for name, mean in outputs.items():
            self._outputs.setdefault(name, []).append(mean)


class Crew:
    """Threads that take pieces of work from one list.

    A piece goes to the thread that asks first.

    Args:
        pieces: The pieces, in order.
        work: Makes an iterator from a piece, which does one step per iteration.
        threads: Number of threads.

    Attributes:
        steps: Steps done so far.
    """

    def __init__(
        self,
        pieces: Iterable[Any],
        work: Callable[[Any], Iterator[None]],
        threads: int,
    ):
        self._pieces = iter(pieces)
        self._work = work
        # By thread: the piece that it is working on.
        self._working: list[Iterator[None] | None] = [None] * threads
        self._lock = threading.Lock()
        self._left = 0
        self._error: BaseException | None = None
        self.steps = 0

    def run(self, steps: int) -> None:
        """Does steps, fewer only if all pieces are done before.

        Raises:
            BaseException: The first error of a step, or one that this thread
                gets while it waits, e.g. KeyboardInterrupt. All threads have
                ended, each after its step.
        """
        self._left = steps
        while self._left and self._run_threads():
            pass

    def _run_threads(self) -> bool:
        """Lets threads do what is left; returns whether there are pieces left."""
        threads = [
            threading.Thread(target=self._do, args=[index], daemon=True)
            for index in range(len(self._working))
        ]
        try:
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        except BaseException as error:
            self._stop(error)
        for thread in threads:
            if thread.ident is not None:
                thread.join()
        if self._error is not None:
            raise self._error
        # A thread may have been left over for a step that another gave back.
        return any(self._working)

    def _do(self, index: int) -> None:
        """Does steps until none is left."""
        try:
            while self._take():
                if not self._step(index):
                    with self._lock:
                        self._left += 1
                    return
        except BaseException as error:  # the thread that waits raises it
            self._stop(error)

    def _take(self) -> bool:
        with self._lock:
            if self._error is not None or not self._left:
                return False
            self._left -= 1
            return True

    def _step(self, index: int) -> bool:
        """Does a step of a piece; returns whether there was one."""
        while True:
            for _ in self._working[index] or ():
                with self._lock:
                    self.steps += 1
                return True
            with self._lock:
                piece = next(self._pieces, None)
            self._working[index] = None
            if piece is None:
                return False
            self._working[index] = self._work(piece)

    def _stop(self, error: BaseException) -> None:
        with self._lock:
            self._error = self._error or error


def _check_shared(model: keras.Model) -> None:
    """Raises ValueError if only one thread at a time can train a model."""
    if model.run_eagerly:
        raise ValueError(
            "with `run_eagerly` layers keep their losses where other threads "
            "find them; use threads=1."
        )
    if accumulates_gradients(model):
        raise ValueError(
            "`gradient_accumulation_steps` adds up gradients of steps that "
            "follow each other, which threads do not; use threads=1."
        )


def _first(pieces: Iterable[Piece]) -> tuple[Any, Any]:
    """Returns the first iterator that has a batch, and the batch."""
    for piece in pieces:
        iterator = iter(piece.open())
        for batch in iterator:
            return iterator, batch
    raise ValueError(NO_BATCH)
