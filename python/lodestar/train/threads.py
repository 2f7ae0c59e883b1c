"""Hogwild training: threads share all weights and divide the data."""

import collections
import concurrent.futures
import os
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import keras
import tensorflow as tf

from lodestar._checks import check_count
from lodestar.data.pieces import Piece, pieces_of
from lodestar.train.batch_sources import no_batch
from lodestar.train.cluster_steps import STEPS_PER_ROUND
from lodestar.train.keras_steps import ended, has_strategy
from lodestar.train.loop import Steps
from lodestar.train.step import (
    TrainingStep,
    accumulates_gradients,
    check_train_step,
)


class ThreadSteps(Steps):
    """Runs rounds of steps in threads, each of which reads a piece of the data.

    `wanted` is the number of threads if there were enough pieces.
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
                "Threads cannot train a model under "
                f"{type(model.distribute_strategy).__name__}. Remove `threads`."
            )
        pieces = pieces_of(data)
        if not pieces:
            raise TypeError(
                "With threads, `data` must be paths, the result of "
                "lodestar.data.open_dataset for files, a list of datasets or a "
                f"lodestar.paddle.InMemoryDataset, got {type(data).__name__}."
            )
        check_count("threads", threads, 0)
        self.pieces = pieces
        self.wanted = threads or len(os.sched_getaffinity(0))
        self.threads = min(self.wanted, len(pieces))
        if self.threads > 1 and model.run_eagerly:
            raise ValueError(
                "With `run_eagerly`, threads would see each other's layer losses. "
                "Use threads=1."
            )
        if self.threads > 1 and accumulates_gradients(model):
            raise ValueError(
                "`gradient_accumulation_steps` needs consecutive steps. Use "
                "threads=1."
            )
        if steps_per_round is None:
            steps_per_round = STEPS_PER_ROUND * self.threads
        check_count("steps_per_round", steps_per_round, 1)
        self.at_once = steps_per_round
        self.step: Any = TrainingStep.of(model, lambda: _first(pieces), fetch)
        if self.threads > 1:
            self.step.check_metrics("several threads")
        self._model = model
        self._crew: Any = None
        # States of metrics that no thread uses at the moment.
        self._states: collections.deque[list[tf.Tensor]] = collections.deque()
        self._outputs: dict[str, list[Any]] = {}

    def begin(self) -> None:
        """Starts an epoch, which reads all pieces."""
        self._crew = Crew(self.pieces, self._train, self.threads)
        self._states.clear()

    def end(self) -> None:
        """Does nothing; `begin` resets the state."""

    def no_batch(self) -> ValueError:
        """Returns the error for an epoch without a batch."""
        return _no_batch(self.pieces)

    def run(self, steps: int) -> tuple[int, Mapping[str, Any]]:
        """Runs a round and waits for all threads."""
        optimizer = self._model.optimizer
        before, done = int(optimizer.iterations), self.done
        try:
            self._crew.run(steps)
        finally:
            done = self.done - done
            # Keras may lose one of two concurrent increments. A LossScaleOptimizer
            # does not count every step.
            if self.threads > 1 and not isinstance(
                optimizer, keras.optimizers.LossScaleOptimizer
            ):
                optimizer.iterations.assign(before + done)
        return done, self.step.merge(self._states)

    @property
    def done(self) -> int:
        """Number of steps of the epoch so far."""
        return self._crew.steps

    def means(self) -> dict[str, float]:
        """Returns the means of fetched outputs since the last call."""
        outputs, self._outputs = self._outputs, {}
        return {
            name: float(tf.reduce_mean(values))
            for name, values in outputs.items()
        }

    def _train(self, piece: Piece) -> Iterator[None]:
        """Trains on a piece, one step per iteration."""
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
            if batch:  # An error of opening already has the name of the file.
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
    """Threads that process pieces of work from a shared list.

    `work` returns an iterator over a piece. Each iteration runs one step.
    """

    def __init__(
        self,
        pieces: Iterable[Any],
        work: Callable[[Any], Iterator[None]],
        threads: int,
    ):
        self._pieces = iter(pieces)
        self._work = work
        # The piece of each thread.
        self._working: list[Iterator[None] | None] = [None] * threads
        self._lock = threading.Condition()
        self._left = 0
        self._under_way = 0
        self._failed = False
        self.steps = 0

    def run(self, steps: int) -> None:
        """Runs `steps` steps, or fewer if no pieces are left.

        Raises an error of a step, or one of this thread such as KeyboardInterrupt,
        after all threads have finished their current step.
        """
        self._left = steps
        threads = range(len(self._working))
        with concurrent.futures.ThreadPoolExecutor(len(threads)) as pool:
            try:
                while self._left:
                    list(pool.map(self._do, threads))
                    # A thread may end before another one returns its step.
                    if not any(self._working):
                        break
            except BaseException:
                self._failed = True
                # The pool does not know a thread during whose start Ctrl-C came.
                with self._lock:
                    self._lock.wait_for(lambda: not self._under_way)
                raise

    def _do(self, thread: int) -> None:
        """Runs steps until none is left."""
        while self._take():
            found = False
            try:
                found = self._step(thread)
            except BaseException:
                self._failed = True
                raise
            finally:
                self._finish(found)
            if not found:
                return

    def _take(self) -> bool:
        with self._lock:
            if self._failed or not self._left:
                return False
            self._left -= 1
            self._under_way += 1
            return True

    def _finish(self, found: bool) -> None:
        """Ends what `_take` began; a step without a piece was not run."""
        with self._lock:
            self._under_way -= 1
            self._left += not found
            self._lock.notify_all()

    def _step(self, thread: int) -> bool:
        """Runs a step of a piece; returns False if no piece is left."""
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


def _first(pieces: Sequence[Piece]) -> tuple[Any, Any]:
    """Returns the first iterator that has a batch, and the batch."""
    for piece in pieces:
        iterator = iter(piece.open())
        for batch in iterator:
            return iterator, batch
    raise _no_batch(pieces)


def _no_batch(pieces: Sequence[Piece]) -> ValueError:
    return no_batch("data", [piece.name for piece in pieces])
