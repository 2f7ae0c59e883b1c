"""Updates of tables on several tasks that are made whole and once.

A worker may be lost in the middle of a step, and what it ran is run again by
another one. The ops of tf_ops/ops/embedding/update_log_ops.cc see to it that
the tables take such an update once, and all of them or none.
"""

import contextlib
import contextvars
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import tensorflow as tf

from lodestar._library import gen_ops


class UpdateAttempt(NamedTuple):
    """What makes an update.

    Attributes:
        run: int64 scalar, a number of its own for each run of a training.
        update: int64 scalar, the update's number in the run.
        numbers: Task -> int64 scalar, the attempt's number there.
    """

    run: tf.Tensor
    update: tf.Tensor
    numbers: Mapping[str, tf.Tensor]

    def number_on(self, device: str | None) -> tf.Tensor | None:
        """The attempt's number on the task that has a device; None: of none."""
        return self.numbers.get(_task(device))

    def commit(self, of_earlier_attempt: bool = False) -> list[Any]:
        """Makes what was staged on all tasks; returns what has then run."""
        done = []
        for task, number in self.numbers.items():
            with tf.device(task):
                done.append(
                    gen_ops.lodestar_commit_update(
                        self.run,
                        self.update,
                        number,
                        of_earlier_attempt=of_earlier_attempt,
                    )
                )
        return done


_current: contextvars.ContextVar[UpdateAttempt | None] = contextvars.ContextVar(
    "update_attempt", default=None
)


def current() -> UpdateAttempt | None:
    """What makes the updates of this thread, if anything does."""
    return _current.get()


def make_once(
    step: Callable[[], Any],
    otherwise: Callable[[], Any],
    *,
    run: Any,
    update: Any,
    finished: Any,
    devices: Sequence[str],
) -> Any:
    """Runs a step of which tables take one update, once; in a `tf.function`.

    If an attempt before this one was cut off when it was committed somewhere,
    it is committed everywhere, and the step is not run.

    Args:
        step: Has an optimizer apply gradients once.
        otherwise: Gives what `step` would, where it is not run.
        run: int64 scalar, a number of its own for each run of a training.
        update: int64 scalar, the update's number in the run.
        finished: int64 scalar: no update below it is run again.
        devices: Of parts of tables; those of this process are left out.

    Returns:
        What `step` or `otherwise` does.
    """
    numbers, committed = {}, []
    for task in filter(None, dict.fromkeys(map(_task, devices))):
        with tf.device(task):
            numbers[task], there = gen_ops.lodestar_begin_update(
                run, update, finished
            )
        committed.append(there)
    if not numbers:
        return step()
    attempt = UpdateAttempt(run, update, numbers)

    def finish() -> Any:
        with tf.control_dependencies(attempt.commit(of_earlier_attempt=True)):
            return tf.nest.map_structure(
                tf.identity, otherwise(), expand_composites=True
            )

    def begin() -> Any:
        with _making(attempt):
            return step()

    return tf.cond(tf.reduce_any(tf.stack(committed)), finish, begin)


def _task(device: str | None) -> str | None:
    # Its first CPU; a process has one log, however many devices it has.
    spec = tf.DeviceSpec.from_string(device or "")
    if spec.job is None:
        known = tf.config.list_logical_devices("CPU")[0].name
        # A worker's own, in a cluster: not where the table is.
        clustered = tf.DeviceSpec.from_string(known).job is not None
        return None if clustered else "/device:CPU:0"
    return spec.replace(
        replica=spec.replica or 0,
        task=spec.task or 0,
        device_type="CPU",
        device_index=0,
    ).to_string()


@contextlib.contextmanager
def _making(attempt: UpdateAttempt) -> Iterator[None]:
    token = _current.set(attempt)
    try:
        yield
    finally:
        _current.reset(token)
