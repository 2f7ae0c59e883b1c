"""Rounds of steps on the workers of a cluster."""

import contextlib
from collections.abc import Callable, Iterator
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

# Steps between two moments at which all workers wait, for each worker.
_STEPS_PER_ROUND = 100


class Scheduler:
    """Runs steps of a model on the workers of its cluster.

    Args:
        model: As for `fit`.
        x: As for `fit`.
        steps_per_round: As for `fit`.

    Attributes:
        step: Of the model.
        coordinator: Of the workers.

    Raises:
        TypeError: `model` or `x` is none.
        ValueError: The model cannot be trained so, or of elements of unknown
            rank, or `steps_per_round` is out of range.
    """

    def __init__(self, model: keras.Model, x: Any, steps_per_round: int | None):
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
            steps_per_round = _STEPS_PER_ROUND * len(workers)
        check_at_least("steps_per_round", steps_per_round, 1)
        self._steps_per_round = steps_per_round
        self._logs = UpdateLogs.of(strategy)
        self._by_workers = callable(x)
        self._dataset = x(tf.distribute.InputContext()) if callable(x) else x
        check_dataset("x", self._dataset)
        with strategy.scope(), errors(self.coordinator):
            spec = self._dataset.element_spec
            try:
                self.step = ScheduledStep.of(model, lambda: (None, spec), [])
            except (TypeError, ValueError):
                _check_ranks(spec)
                raise

    def source(self, steps: int | None) -> BatchSource | WorkerSource:
        """What gives the batches of `x`."""
        if self._by_workers:
            return WorkerSource(self.coordinator, self._dataset, steps)
        return BatchSource("x", self._dataset, steps)

    def run(
        self,
        source: BatchSource | WorkerSource,
        function: Any,
        at_once: int,
        begin: Callable[[int], None],
        end: Callable[[int, dict[str, Any]], None],
        stopped: Callable[[], bool] = lambda: False,
        begun: bool = False,
    ) -> dict[str, Any]:
        """Runs an epoch, whose metrics go on from what the model's have seen.

        Args:
            source: Of its batches.
            function: Of `step`.
            at_once: How many steps a worker is given at a time.
            begin: Called with the number of the first step of a round.
            end: Called with that of the last one, and the metrics so far.
            stopped: Whether no other round is wanted, after each.
            begun: Batches of the epoch were trained on before: there may be no
                other one.

        Returns:
            The metrics by name.
        """
        source.begin()
        done = 0
        logs: dict[str, Any] = {}
        total = self.step.metrics()
        while True:
            wanted = self._steps_per_round
            if source.steps is not None:
                wanted = min(wanted, source.steps - done)
            if not wanted:
                break
            begin(done)
            states, steps = self._round(source, function, at_once, wanted)
            if not steps:
                break
            done += steps
            total = self.step.sum([total, *states])
            logs = {
                name: value.item() if value.ndim == 0 else value
                for name, value in self.step.merge([total]).items()
            }
            end(done - 1, logs)
            if stopped():
                break
        if not done and not begun:
            raise ValueError("there is no batch to train on or to evaluate.")
        return logs

    def _round(
        self,
        source: BatchSource | WorkerSource,
        function: Any,
        at_once: int,
        steps: int,
    ) -> tuple[list[Any], int]:
        """Runs steps; gives the metrics of each call, and how many there were."""
        calls = []
        done = 0
        while done < steps:
            arguments, taken = source.take(min(at_once, steps - done))
            if not taken:
                break
            calls.append(
                self._logs.schedule(
                    self.coordinator, function, arguments, taken
                )
            )
            done += taken
        self._logs.join(self.coordinator)
        return [call.fetch() for call in calls], done


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


def naming_lost_servers(
    model: keras.Model,
) -> contextlib.AbstractContextManager[None]:
    """Within, an error that comes of a lost parameter server names it.

    Args:
        model: Of any strategy.
    """
    strategy = model.distribute_strategy
    if not isinstance(strategy, tf.distribute.ParameterServerStrategy):
        return contextlib.nullcontext()
    return UpdateLogs.of(strategy).servers.naming_lost()


def check_strategy(model: keras.Model, instead: str = "model.fit") -> None:
    """Refuses what is no model under a ParameterServerStrategy."""
    if not isinstance(model, keras.Model):
        raise TypeError(
            f"`model` must be a keras.Model, found {type(model).__name__}."
        )
    strategy = model.distribute_strategy
    if not isinstance(strategy, tf.distribute.ParameterServerStrategy):
        raise ValueError(
            f"the model is made under {type(strategy).__name__}, wanted "
            f"ParameterServerStrategy; use {instead}."
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


def _check_model(model: keras.Model) -> None:
    check_strategy(model)
    if not model.compiled or model.optimizer is None:
        raise ValueError(
            "the model has no optimizer; call model.compile() first."
        )
    if model.run_eagerly:
        raise ValueError("with `run_eagerly` no worker could run a step.")
    if type(model).train_step is not keras.Model.train_step:
        raise ValueError(
            f"{type(model).__name__} has a `train_step` of its own; workers "
            "run Keras's, whose metrics can be added up."
        )
    optimizer = model.optimizer
    if isinstance(optimizer, keras.optimizers.LossScaleOptimizer):
        raise ValueError(
            "a LossScaleOptimizer looks at the gradients of one step after the "
            "other, which workers do not make; use float32 or bfloat16."
        )
    while optimizer is not None:
        if optimizer.gradient_accumulation_steps:
            raise ValueError(
                "`gradient_accumulation_steps` adds up gradients of steps that "
                "follow each other, which those of several workers do not."
            )
        optimizer = getattr(optimizer, "inner_optimizer", None)
