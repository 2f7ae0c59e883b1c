"""Rounds of steps on the workers of a cluster."""

import contextlib
from collections.abc import Iterator, Mapping
from typing import Any

import keras
import tensorflow as tf

from lodestar._checks import check_at_least
from lodestar.optimizers.update_attempt import UpdateLogs
from lodestar.train.batch_sources import (
    BatchSource,
    WorkerSource,
    check_dataset,
)
from lodestar.train.scheduled_step import ScheduledStep
from lodestar.train.step import accumulates_gradients, check_train_step

# Default of the steps between two calls of callbacks, per worker or thread.
STEPS_PER_ROUND = 100


class Scheduler:
    """Makes the steps of a model that the workers of its cluster run.

    Args:
        model: See `fit`.
        data: See `fit`.
        steps_per_round: See `fit`.
        sync_every: See `fit`.

    Attributes:
        step: The functions of the model that workers run.
        coordinator: The coordinator of the workers.

    Raises:
        TypeError: `data` is not a dataset or a function that returns one.
        ValueError: The model cannot be trained by workers, elements have an
            unknown rank, or `steps_per_round` is out of range.
    """

    def __init__(
        self,
        model: keras.Model,
        data: Any,
        steps_per_round: int | None = None,
        sync_every: int = 1,
    ):
        _check_model(model)
        strategy = model.distribute_strategy
        self.coordinator = tf.distribute.coordinator.ClusterCoordinator(
            strategy
        )
        if steps_per_round is None:
            workers = {
                device.name.partition("/device:")[0]
                for device in tf.config.list_logical_devices("CPU")
                if "/job:worker/" in device.name
            }
            steps_per_round = STEPS_PER_ROUND * len(workers)
        check_at_least("steps_per_round", steps_per_round, 1)
        self._round = steps_per_round
        self._steps_per_call = model.steps_per_execution
        self._sync_every = sync_every
        self._by_workers = callable(data)
        self._data = (
            data(tf.distribute.InputContext()) if callable(data) else data
        )
        check_dataset("data", self._data)
        with strategy.scope(), self.errors():
            spec = self._data.element_spec
            try:
                self.step = ScheduledStep.of(model, lambda: (None, spec), [])
            except (TypeError, ValueError):
                _check_ranks(spec)
                raise

    def errors(self) -> contextlib.AbstractContextManager[None]:
        """Returns `errors` of the coordinator."""
        return errors(self.coordinator)

    def build(self) -> str:
        """Returns "": the variables of the first step are there."""
        return ""

    def training(self, steps: int | None) -> "ScheduledSteps":
        """Returns the steps of training."""
        source: BatchSource | WorkerSource
        if self._by_workers:
            source = WorkerSource(self.coordinator, self._data, steps)
        else:
            source = BatchSource("data", self._data, steps)
        if self._sync_every > 1:
            return self._steps(source, self.step.push, self._sync_every)
        return self._steps(source, self.step.train, self._steps_per_call)

    def testing(
        self, name: str, data: Any, steps: int | None
    ) -> "ScheduledSteps":
        """Returns the steps of an evaluation."""
        source = BatchSource(name, data, steps, restarts=True)
        return self._steps(source, self.step.test, self._steps_per_call)

    def _steps(
        self, source: BatchSource | WorkerSource, function: Any, per_call: int
    ) -> "ScheduledSteps":
        return ScheduledSteps(
            self.coordinator, self.step, source, function, per_call, self._round
        )


class ScheduledSteps:
    """Runs rounds of steps on workers.

    Args:
        coordinator: The coordinator of the workers.
        step: The functions of a model.
        source: Source of the batches.
        function: One of these functions.
        per_call: Steps that a worker is given at a time.
        at_once: Steps per round.

    Attributes:
        total: Steps per epoch; None if unknown.
        at_once: Steps per round.
    """

    def __init__(
        self,
        coordinator: tf.distribute.coordinator.ClusterCoordinator,
        step: ScheduledStep,
        source: BatchSource | WorkerSource,
        function: Any,
        per_call: int,
        at_once: int,
    ):
        self._coordinator = coordinator
        self._logs = UpdateLogs.of(coordinator.strategy)
        self._step, self._function = step, function
        self._source, self._per_call = source, per_call
        self.total = source.steps
        self.at_once = at_once
        self.begin, self.end = source.begin, source.end

    def run(self, steps: int) -> tuple[int, Mapping[str, Any]]:
        """Runs a round, and waits for all workers."""
        calls, done = [], 0
        while done < steps:
            batches, taken = self._source.take(
                min(self._per_call, steps - done)
            )
            if not taken:
                break
            calls.append(
                self._logs.schedule(
                    self._coordinator,
                    self._function,
                    (batches, tf.constant(taken)),
                    taken,
                )
            )
            done += taken
        self._logs.join(self._coordinator)
        states = [call.fetch() for call in calls]
        return done, self._step.merge([self._step.metrics(), *states])


@contextlib.contextmanager
def errors(
    coordinator: tf.distribute.coordinator.ClusterCoordinator,
) -> Iterator[None]:
    """Raises what is raised inside when no step is under way any more.

    A KeyboardInterrupt waits for the steps, too; another one does not.
    """
    logs = UpdateLogs.of(coordinator.strategy)
    with logs.servers.naming_lost():
        try:
            yield
        except BaseException:
            # Steps may have been ended when they had written on one server.
            with contextlib.suppress(tf.errors.OpError):
                logs.settle(coordinator)
            raise


def _check_model(model: keras.Model) -> None:
    check_train_step(model, "workers")
    if model.run_eagerly:
        raise ValueError("with `run_eagerly` no worker could run a step.")
    if isinstance(model.optimizer, keras.optimizers.LossScaleOptimizer):
        raise ValueError(
            "a LossScaleOptimizer looks at the gradients of one step after the "
            "other, which workers do not make; use float32 or bfloat16."
        )
    if accumulates_gradients(model):
        raise ValueError(
            "`gradient_accumulation_steps` adds up gradients of steps that "
            "follow each other, which those of several workers do not."
        )


def _check_ranks(spec: Any) -> None:
    """Names an element whose shape says too little to build a model by."""
    for path, leaf in keras.tree.flatten_with_path(spec):
        shape = getattr(leaf, "shape", None)
        if isinstance(shape, tf.TensorShape) and shape.rank is None:
            name = "".join(f"[{key!r}]" for key in path)
            raise ValueError(
                f"element{name} of the dataset has an unknown rank, with which "
                "the model cannot be built; set it in the dataset, by "
                "tf.ensure_shape."
            )
