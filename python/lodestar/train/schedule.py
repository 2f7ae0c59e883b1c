"""schedule and join: for your own loops, whose tables take each update once."""

import weakref
from collections.abc import Mapping, Sequence
from typing import Any

import tensorflow as tf

from lodestar import _private
from lodestar.optimizers.update_attempt import UpdateLogs
from lodestar.train.scheduler import errors


def schedule(
    coordinator: tf.distribute.coordinator.ClusterCoordinator,
    step: Any,
    args: Sequence[Any] | None = None,
    kwargs: Mapping[str, Any] | None = None,
) -> Any:
    """Calls `coordinator.schedule(step, args, kwargs)`; tables take its update once.

    When a worker is lost, TensorFlow runs its step again on another worker. If the
    update of that step had begun to be written to tables, the other worker writes
    the rest of it, and does not run the step. So tables take each update once and
    atomically.

    >>> for _ in range(1000):
    ...     lodestar.train.schedule(coordinator, step, args=(iterator,))
    >>> lodestar.train.join(coordinator)

    After an error, call `lodestar.train.join`: `coordinator.join()` may leave an
    update on some servers only.

    Args:
        coordinator: Coordinator of a ParameterServerStrategy.
        step: A `tf.function` in which one of `lodestar.optimizers` applies
            gradients once, in `strategy.run`, as Keras wants it. It is traced
            anew, without its `input_signature`, by which numbers of Python
            become tensors: give tensors. Functions in it that apply gradients
            are plain ones. What other optimizers apply in it before the one of
            the tables may be applied again.
        args: Arguments of the step, see `coordinator.schedule`. No RemoteValue.
        kwargs: Keyword arguments of the step. No RemoteValue.

    Returns:
        A RemoteValue of what the step returns. For a step that is not run it is
        zeros and empty strings, of size 0 in unknown dimensions. So return sums of
        losses and of examples, to which these add nothing.

    Raises:
        TypeError: `step` is no `tf.function`.
        ValueError: The step applies gradients of tables twice, or in a
            `tf.function` within that was traced before; or a RemoteValue is
            given.
        NotImplementedError: The optimizer has `gradient_accumulation_steps`.
        Exception: See `join`; an error of an earlier step. Waits for running
            steps first, also after one KeyboardInterrupt.
    """
    if not isinstance(step, tf.types.experimental.PolymorphicFunction):
        raise TypeError(
            f"`step` must be a tf.function, found {type(step).__name__}."
        )
    if step not in _MADE_ONCE:
        _MADE_ONCE[step] = _made_once(step)
    with errors(coordinator):
        return UpdateLogs.of(coordinator.strategy).schedule(
            coordinator,
            _MADE_ONCE[step],
            (tuple(args or ()), dict(kwargs or {})),
            count=1,
        )


def join(coordinator: tf.distribute.coordinator.ClusterCoordinator) -> None:
    """Calls `coordinator.join()`; updates are atomic even after an error.

    Call it regularly: until no step is running, each server keeps some hundred
    bytes per step.

    Args:
        coordinator: Coordinator of a ParameterServerStrategy.

    Raises:
        tf.errors.UnavailableError: A parameter server is gone, with its part of
            the model; names it.
        tf.errors.FailedPreconditionError: A step applies gradients in a loop.
        Exception: An error of a step. Other running steps are ended, and their
            updates made on all servers or none.
    """
    with errors(coordinator):
        UpdateLogs.of(coordinator.strategy).join(coordinator)


def _made_once(step: Any) -> Any:
    step_ref = weakref.ref(step)

    def made_once(
        args: Sequence[Any], kwargs: Mapping[str, Any], updates: tf.Tensor
    ) -> Any:
        update, finished = tf.unstack(updates)
        logs = UpdateLogs.of(tf.distribute.get_strategy())
        # Earlier traces of the step update in another way.
        anew = _private.anew(step_ref())
        return logs.begin(update, finished).once(lambda: anew(*args, **kwargs))

    return tf.function(made_once, autograph=False)


# By step; weak keys, so that steps can be freed.
_MADE_ONCE: weakref.WeakKeyDictionary[Any, Any] = weakref.WeakKeyDictionary()
