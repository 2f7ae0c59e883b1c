"""Hogwild training: threads that share all weights, and take pieces of the data."""

import collections
import concurrent.futures
import os
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import keras
import tensorflow as tf

from lodestar._checks import check_at_least
from lodestar.data.pieces import Piece, pieces_of
from lodestar.train.keras_steps import ended, has_strategy
from lodestar.train.loop import NO_BATCH, Steps
from lodestar.train.scheduled_steps import STEPS_PER_ROUND
from lodestar.train.step import (
    TrainingStep,
    accumulates_gradients,
    check_train_step,
)


class ThreadSteps(Steps):
    """Runs rounds of steps by threads, each of which reads a piece of the data.

    Args:
        model: See `fit`.
        data: See `fit`.
        threads: See `fit`.
        steps_per_round: See `fit`.
        fetch: See `TrainingStep`.

    Attributes:
        step: The compiled step.
        pieces: The pieces of the data.
        wanted: Number of threads if there are enough pieces.
        threads: Number of threads.
    """

    total: int | None = None

    def __init__(
        self,
        model: keras.Model,
        data: Any,
        threads: int,
        steps_per_round: int | None = None,
        fetch: Sequence[str] | None = None,
    ):
        check_train_step(model, "threads")
        if has_strategy(model):
            raise ValueError(
                "the model is made or trained under "
                f"{type(model.distribute_strategy).__name__}, where no threads "
                "can train it: leave out `threads`."
            )
        pieces = pieces_of(data)
        if not pieces:
            raise TypeError(
                "Threads divide files: `data` must be their paths, the result of "
                "lodestar.data.open_dataset for files, a list of datasets or a "
                f"lodestar.paddle.InMemoryDataset, found {type(data).__name__}."
            )
        check_at_least("threads", threads, 0)
        self.pieces = pieces
        self.wanted = threads or len(os.sched_getaffinity(0))
        self.threads = min(self.wanted, len(pieces))
        if self.threads > 1 and model.run_eagerly:
            raise ValueError(
                "with `run_eagerly` layers keep their losses where other threads "
                "find them; use threads=1."
            )
        if self.threads > 1 and accumulates_gradients(model):
            raise ValueError(
                "`gradient_accumulation_steps` adds up gradients of steps that "
                "follow each other, which threads do not; use threads=1."
            )
        if steps_per_round is None:
            steps_per_round = STEPS_PER_ROUND * self.threads
        check_at_least("steps_per_round", steps_per_round, 1)
        self.at_once = steps_per_round
        self.step: Any = TrainingStep.of(model, lambda: _first(pieces), fetch)
        self._model = model
        self._crew: Any = None
        # States of metrics that no thread is using.
        self._states: collections.deque[list[tf.Tensor]] = collections.deque()
        self._outputs: dict[str, list[Any]] = {}

    def begin(self) -> None:
        """Begins an epoch, which reads all pieces."""
        self._crew = Crew(self.pieces, self._train, self.threads)
        self._states.clear()

    def end(self) -> None:
        """Does nothing: the next epoch begins anew."""

    def run(self, steps: int) -> tuple[int, Mapping[str, Any]]:
        """Runs a round, and waits for all threads."""
        optimizer = self._model.optimizer
        before, done = int(optimizer.iterations), self.done
        try:
            self._crew.run(steps)
        finally:
            done = self.done - done
            # Of two concurrent increments by Keras, one may be lost. But a
            # LossScaleOptimizer does not count every step.
            if self.threads > 1 and not isinstance(
                optimizer, keras.optimizers.LossScaleOptimizer
            ):
                optimizer.iterations.assign(before + done)
        return done, self.step.merge(self._states)

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
            metrics = self.step.new_metrics()
        try:
            metrics, outputs = self.step(iterator, metrics)
        finally:
            self._states.append(metrics)
        for name, mean in outputs.items():
            self._outputs.setdefault(name, []).append(mean)


class Crew:
    """Threads that take pieces of work from one list.

    Args:
        pieces: The pieces. Each goes to the thread that asks first.
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
        self._failed = False
        self.steps = 0

    def run(self, steps: int) -> None:
        """Does steps, fewer only if no pieces are left.

        Raises:
            BaseException: An error of a step, or one that this thread gets while
                it waits, e.g. KeyboardInterrupt. All threads have ended, each
                after its step.
        """
        self._left = steps
        threads = range(len(self._working))
        with concurrent.futures.ThreadPoolExecutor(len(threads)) as pool:
            try:
                while self._left:
                    list(pool.map(self._do, threads))
                    # A thread may have ended before another gave a step back.
                    if not any(self._working):
                        break
            except BaseException:
                self._failed = True
                raise

    def _do(self, thread: int) -> None:
        """Does steps until none is left."""
        try:
            while self._take():
                if not self._step(thread):
                    with self._lock:
                        self._left += 1
                    return
        except BaseException:
            self._failed = True
            raise

    def _take(self) -> bool:
        with self._lock:
            if self._failed or not self._left:
                return False
            self._left -= 1
            return True

    def _step(self, thread: int) -> bool:
        """Does a step of a piece; returns whether there was one."""
        while True:
            for _ in self._working[thread] or ():
                with self._lock:
                    self.steps += 1
                return True
            with self._lock:
                piece = next(self._pieces, None)
            self._working[thread] = None
            if piece is None:
                return False
            self._working[thread] = self._work(piece)


def _first(pieces: Iterable[Piece]) -> tuple[Any, Any]:
    """Returns the first iterator that has a batch, and the batch."""
    for piece in pieces:
        iterator = iter(piece.open())
        for batch in iterator:
            return iterator, batch
    raise ValueError(NO_BATCH)
