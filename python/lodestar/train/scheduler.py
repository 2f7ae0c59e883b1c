"""Scheduler: runs steps of custom loops, whose tables take each update once."""

import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import tensorflow as tf

from lodestar import _private
from lodestar.optimizers.update_attempt import UpdateLogs
from lodestar.train.cluster_steps import errors


class Scheduler:
    """Schedules the steps of a custom loop on the workers of a cluster.

    Use it in place of the coordinator's own `schedule` and `join`. When a worker
    is lost, TensorFlow runs its step again on another worker. If the update of
    that step had begun to be written to tables, the other worker writes the rest
    of it and does not run the step. Tables therefore take each update once and
    atomically.

    >>> scheduler = lodestar.train.Scheduler(coordinator)
    >>> for _ in range(1000):
    ...     scheduler.schedule(step, args=(iterator,))
    >>> scheduler.join()

    Args:
        coordinator: A `tf.distribute.coordinator.ClusterCoordinator`.
    """

    def __init__(
        self, coordinator: tf.distribute.coordinator.ClusterCoordinator
    ):
        self._coordinator = coordinator
        self._logs = UpdateLogs.of(coordinator.strategy)
        # Weak keys, so that steps can be freed.
        self._functions: weakref.WeakKeyDictionary[Any, Any] = (
            weakref.WeakKeyDictionary()
        )

    def schedule(
        self,
        step: Callable[..., Any],
        args: Sequence[Any] | None = None,
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        """Schedules a step. Tables take its update once.

        Args:
            step: A `tf.function` in which an optimizer of `lodestar.optimizers`
                applies gradients once, inside `strategy.run`. It is traced
                again without its `input_signature`, so pass tensors instead of
                Python numbers. Functions that it calls to apply gradients must
                be plain functions. Updates that other optimizers apply before
                the update of the tables may be applied again.
            args: Positional arguments of the step. RemoteValues are not
                supported.
            kwargs: Keyword arguments of the step. RemoteValues are not
                supported.

        Returns:
            A RemoteValue of the step's result. For a step that does not run
            it holds zeros and empty strings, with size 0 in unknown dimensions.
            Return sums of losses and of examples, to which these add nothing.

        Raises:
            TypeError: `step` is not a `tf.function`.
            ValueError: The step applies gradients of tables twice, or in an
                inner `tf.function` that was traced before; or an argument is a
                RemoteValue.
            NotImplementedError: The optimizer has `gradient_accumulation_steps`.
            Exception: An earlier step failed, see `join`. Waits for running
                steps first, also after one KeyboardInterrupt.
        """
        if not isinstance(step, tf.types.experimental.PolymorphicFunction):
            raise TypeError(
                f"`step` must be a tf.function, got {type(step).__name__}."
            )
        if step not in self._functions:
            self._functions[step] = _made_once(step)
        with errors(self._coordinator):
            return self._logs.schedule(
                self._coordinator,
                self._functions[step],
                (tuple(args or ()), dict(kwargs or {})),
                count=1,
            )

    def join(self) -> None:
        """Waits for all steps. Updates are atomic even after an error.

        Call it regularly: until no step is running, each server keeps some
        hundred bytes per step. Call it after an error as well, because
        `coordinator.join()` may leave an update on some servers only.

        Raises:
            tf.errors.UnavailableError: A parameter server was lost, with its
                part of the model (names it).
            tf.errors.FailedPreconditionError: A step applies gradients in a
                loop.
            Exception: A step failed. Other running steps are ended, and their
                updates are made on all servers or none.
        """
        with errors(self._coordinator):
            self._logs.join(self._coordinator)


def _made_once(step: Any) -> Any:
    step_ref = weakref.ref(step)

    def made_once(
        args: Sequence[Any], kwargs: Mapping[str, Any], updates: tf.Tensor
    ) -> Any:
        update, finished = tf.unstack(updates)
        logs = UpdateLogs.of(tf.distribute.get_strategy())
        # Earlier traces of the step update without the log.
        anew = _private.anew(step_ref())
        return logs.begin(update, finished).once(lambda: anew(*args, **kwargs))

    return tf.function(made_once, autograph=False)
