"""schedule and join: loops of their own, whose tables take each update once."""

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
    """`coordinator.schedule(step, args, kwargs)`; tables take its update once.

    When a worker is lost, TensorFlow runs its step again on another one. If the
    update of that step had begun to be written to the tables, the other worker
    writes what is left of it on the servers and does not run the step. So tables
    take the update once, all of it or none.

    >>> for _ in range(1000):
    ...     lodestar.train.schedule(coordinator, step, args=(iterator,))
    >>> lodestar.train.join(coordinator)

    After an error, `coordinator.join()` in place of it may leave an update on
    some servers only.

    Args:
        coordinator: Of a ParameterServerStrategy.
        step: A `tf.function` in which one of `lodestar.optimizers` applies
            gradients once, in `strategy.run`, as Keras wants it. It is traced
            anew, without its `input_signature`, by which numbers of Python
            become tensors: give tensors. Functions in it that apply gradients
            are plain ones. What other optimizers apply in it before the one of
            the tables may be applied again.
        args: Of the step, as `coordinator.schedule` takes them, but no
            RemoteValue.
        kwargs: As there.

    Returns:
        As there: a RemoteValue of what the step returns. Of a step that is not
        run it is zeros and empty strings, of size 0 where the size is not known
        before: return sums, of losses and examples, to which these add nothing.

    Raises:
        TypeError: `step` is no `tf.function`.
        ValueError: The step applies gradients of tables twice, or in a
            `tf.function` within that was traced before; or a RemoteValue is
            given.
        NotImplementedError: The optimizer has `gradient_accumulation_steps`.
        Exception: As `join`, of a step before. Steps that are under way are
            waited for, also after a KeyboardInterrupt; another one ends that.
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
    """`coordinator.join()`; after an error, too, updates are whole.

    Call it now and then: until no step is under way, each server keeps some
    hundred bytes of each.

    Args:
        coordinator: Of a ParameterServerStrategy.

    Raises:
        tf.errors.UnavailableError: A parameter server is gone, and its part of
            the model with it; names it.
        tf.errors.FailedPreconditionError: A step applies gradients in a loop.
        Exception: As a step that was scheduled; steps that were under way with
            it are ended, their updates made on all servers or none.
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
        # Not what was traced of it before, which updates in another way.
        anew = _private.anew(step_ref())
        return logs.begin(update, finished).once(lambda: anew(*args, **kwargs))

    return tf.function(made_once, autograph=False)


# By the step, which they do not keep.
_MADE_ONCE: weakref.WeakKeyDictionary[Any, Any] = weakref.WeakKeyDictionary()
