"""Rounds of steps on the workers of a cluster."""

import contextlib
from collections.abc import Iterator, Mapping
from typing import Any

import keras
import tensorflow as tf

from lodestar._checks import check_count
from lodestar.optimizers.update_attempt import UpdateLogs
from lodestar.train.batch_sources import BatchSource, WorkerSource
from lodestar.train.loop import Steps
from lodestar.train.scheduled_step import ScheduledStep
from lodestar.train.step import accumulates_gradients, check_train_step

# Default number of steps between calls of callbacks, per worker or thread.
STEPS_PER_ROUND = 100


class ClusterSteps(Steps):
    """Runs rounds of steps on the workers of a model's cluster.

    `name` is the name of the argument `data` in messages. With `by_workers`, each
    worker reads `data` itself.
    """

    def __init__(
        self,
        model: keras.Model,
        name: str,
        data: Any,
        steps: int | None,
        kind: str = "train",
        steps_per_round: int | None = None,
        sync_every: int = 1,
        by_workers: bool = False,
    ):
        _check_model(model)
        strategy = model.distribute_strategy
        self._coordinator = tf.distribute.coordinator.ClusterCoordinator(
            strategy
        )
        self._logs = UpdateLogs.of(strategy)
        if steps_per_round is None:
            workers = {
                device.name.partition("/device:")[0]
                for device in tf.config.list_logical_devices("CPU")
                if "/job:worker/" in device.name
            }
            steps_per_round = STEPS_PER_ROUND * len(workers)
        check_count("steps_per_round", steps_per_round, 1)
        with strategy.scope(), self.errors():
            spec = data.element_spec
            try:
                self._step = ScheduledStep.of(model, lambda: (None, spec), [])
            except (TypeError, ValueError):
                _check_ranks(spec)
                raise
        self._function = getattr(self._step, kind)
        self._steps_per_call = model.steps_per_execution
        if sync_every > 1:
            self._function = self._step.push
            self._steps_per_call = sync_every
        super().__init__(
            WorkerSource(self._coordinator, data, steps)
            if by_workers
            else BatchSource(name, data, steps, restarts=kind == "test"),
            steps_per_round,
        )

    def errors(self) -> contextlib.AbstractContextManager[None]:
        """Returns `errors` of the coordinator."""
        return errors(self._coordinator)

    def run(self, steps: int) -> tuple[int, Mapping[str, Any]]:
        """Runs a round and waits for all workers."""
        calls, done = [], 0
        while done < steps:
            batches, taken = self._source.take(
                min(self._steps_per_call, steps - done)
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
    """Raises errors of the context after all running steps have ended.

    So does the first KeyboardInterrupt; a second one does not wait.
    """
    logs = UpdateLogs.of(coordinator.strategy)
    with logs.servers.naming_lost():
        try:
            yield
        except BaseException:
            # A step may have ended after it wrote to only some servers.
            with contextlib.suppress(tf.errors.OpError):
                logs.settle(coordinator)
            raise


def _check_model(model: keras.Model) -> None:
    check_train_step(model, "workers")
    if model.run_eagerly:
        raise ValueError("Workers cannot run steps with `run_eagerly`.")
    if isinstance(model.optimizer, keras.optimizers.LossScaleOptimizer):
        raise ValueError(
            "A LossScaleOptimizer needs consecutive steps, but workers run steps "
            "concurrently. Use float32 or bfloat16."
        )
    if accumulates_gradients(model):
        raise ValueError(
            "`gradient_accumulation_steps` needs consecutive steps, but workers run "
            "steps concurrently."
        )


def _check_ranks(spec: Any) -> None:
    """Raises ValueError with the name of an element of unknown rank."""
    for path, leaf in keras.tree.flatten_with_path(spec):
        shape = getattr(leaf, "shape", None)
        if isinstance(shape, tf.TensorShape) and shape.rank is None:
            name = "".join(f"[{key!r}]" for key in path)
            raise ValueError(
                f"element{name} of the dataset must have a known rank to build the "
                "model. Set it with tf.ensure_shape."
            )
