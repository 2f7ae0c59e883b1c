"""Updates of tables on several tasks that are made whole and once.

A worker may be lost in the middle of a step, and what it ran is run again by
another one. The ops of tf_ops/ops/embedding/update_log_ops.cc see to it that
the tables take such an update once, and all of them or none.
"""

import contextlib
import dataclasses
import threading
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from lodestar import _servers
from lodestar._library import gen_ops
from lodestar._resource import SharedResource
from lodestar.embedding import strategies


class UpdateLogs:
    """The logs of updates of tables, one on each device that they lie on.

    Args:
        devices: Of parts of tables.

    Attributes:
        servers: The servers that the devices belong to.
    """

    def __init__(self, devices: Iterable[str | None]):
        self._next = 0
        self._finished = 0
        # Numbers that are taken are not finished before they are scheduled.
        self._lock = threading.Lock()
        devices = dict.fromkeys(devices)
        self.servers = _servers.Servers(map(_servers.claim, devices))
        # By the names that TensorFlow gives them: a device has several.
        with self.servers.naming_lost():
            self._logs = {
                log.device_name: log for log in map(_UpdateLog, devices)
            }

    @classmethod
    def of(
        cls, strategy: tf.distribute.ParameterServerStrategy
    ) -> "UpdateLogs":
        """Those on its parameter servers."""
        # Two threads with two logs would number their updates alike.
        with _LOGS_LOCK:
            if strategy not in _LOGS:
                with strategy.scope():
                    _LOGS[strategy] = cls(strategies.servers())
            return _LOGS[strategy]

    def schedule(
        self,
        coordinator: tf.distribute.coordinator.ClusterCoordinator,
        function: Any,
        arguments: Sequence[Any],
        count: int,
    ) -> Any:
        """Schedules a function that makes updates.

        Args:
            coordinator: Of all such functions.
            function: A `tf.function` of the arguments and of an int64 vector:
                the number of its first update, and one below which no update is
                run again.
            arguments: Of the function.
            count: Of its updates.

        Returns:
            As `coordinator.schedule`.
        """
        with self._lock:
            # It raises the error of a step, but first waits for all others.
            if self.servers.run(coordinator.done):
                self._finished = self._next
            updates = tf.constant([self._next, self._finished], tf.int64)
            self._next += count
            return coordinator.schedule(function, (*arguments, updates))

    def begin(self, update: Any, finished: Any) -> "UpdateAttempt":
        """Begins an attempt at an update; in a `tf.function`.

        All logs are asked at once, while that is computed of the step which
        does not wait for the answer.

        Args:
            update: int64 scalar, the update's number.
            finished: int64 scalar: no update below it is run again.
        """
        key = tf.stack([update, finished])
        begun = {}
        for device, log in self._logs.items():
            log.keep_for_graph()
            # Each takes its own handle: TensorFlow runs stateful ops without
            # one after another.
            begun[device] = log.call(gen_ops.lodestar_begin_update, key)
        attempts = {device: attempt for device, (attempt, _) in begun.items()}
        return UpdateAttempt(
            self._logs,
            attempts,
            # The number that one log gave it.
            name=next(iter(attempts.values()))[1],
            committed=tf.reduce_max([there for _, there in begun.values()]),
        )

    def settle(
        self, coordinator: tf.distribute.coordinator.ClusterCoordinator
    ) -> None:
        """Waits for all that is scheduled, and ends all attempts at updates.

        What is committed on one device is then on all; the rest is forgotten.

        Args:
            coordinator: As for `schedule`, which waits meanwhile.

        Raises:
            tf.errors.OpError: A device is gone.
        """
        self.servers.run(lambda: self._settle(coordinator))

    def _settle(
        self, coordinator: tf.distribute.coordinator.ClusterCoordinator
    ) -> None:
        logs = self._logs.values()
        with self._lock:
            # What a step raises is not always an OpError.
            with contextlib.suppress(Exception):
                coordinator.join()
            below = self._next
            committed = [
                log.call(gen_ops.lodestar_close_updates, below).numpy()
                for log in logs
            ]
            for log in logs:
                log.call(
                    gen_ops.lodestar_settle_updates, np.concatenate(committed)
                )

    def join(
        self, coordinator: tf.distribute.coordinator.ClusterCoordinator
    ) -> None:
        """Waits for all that is scheduled, or until a server is lost."""
        self.servers.run(coordinator.join)


_LOGS: weakref.WeakKeyDictionary[Any, UpdateLogs] = weakref.WeakKeyDictionary()
_LOGS_LOCK = threading.Lock()


class _UpdateLog(SharedResource):
    """That of one device."""

    def __init__(self, device: str | None):
        super().__init__("update_log", device)
        with tf.init_scope():
            self.device_name = self.resource_handle.device

    def _make_resource(self, shared_name: str, container: str) -> tf.Tensor:
        return gen_ops.lodestar_update_log(
            shared_name=shared_name, container=container
        )

    def call(self, op: Callable[..., Any], *inputs: Any, **attrs: Any) -> Any:
        """Runs `op`, whose first input is the handle, where the log is."""
        # Made on the server, an input would wait for it with the lock of the
        # interpreter held, so that no thread could notice that it is lost.
        tensors = [tf.convert_to_tensor(v, tf.int64) for v in inputs]
        with tf.device(self.device_name):
            return op(self.resource_handle, *tensors, **attrs)


@dataclasses.dataclass
class UpdateAttempt:
    """What makes an update.

    Attributes:
        logs: By device.
        attempts: By device, as BeginUpdate gave them.
        name: int64 scalar, by which all logs know what it has staged.
        committed: int64 scalar: the name of an attempt that was committed
            somewhere, and may have been cut off then; 0: there is none.
        made: Whether the step commits it.
    """

    logs: Mapping[str, _UpdateLog]
    attempts: Mapping[str, tf.Tensor]
    name: tf.Tensor
    committed: tf.Tensor
    made: bool = False

    def stage_inputs(
        self, part: SharedResource
    ) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor] | None:
        """Of EmbeddingStage, to update a part; None: no log is where it lies."""
        device = part.resource_handle.device
        if device not in self.logs:
            return None
        log = self.logs[device].resource_handle
        return log, self.attempts[device], self.name

    def commit(self, name: tf.Tensor | None = None) -> list[Any]:
        """Makes what was staged everywhere; returns what has then run.

        Args:
            name: Of the attempt that has staged it; default: of this one.

        Raises:
            ValueError: The step has done so before.
        """
        if name is None:
            if self.made:
                raise ValueError(
                    "a step whose update is made once applies gradients of "
                    "tables twice; wanted one `apply`, of all variables."
                )
            self.made = True
            name = self.name
        return [
            log.call(
                gen_ops.lodestar_commit_update, self.attempts[device], name
            )
            for device, log in self.logs.items()
        ]

    def once(
        self,
        step: Callable[[], Any],
        otherwise: Callable[[], Any] | None = None,
    ) -> Any:
        """Runs a step of which tables take the update, once.

        If it is committed somewhere, it is committed everywhere, and the step
        is not run.

        Args:
            step: Has an optimizer apply gradients once.
            otherwise: Gives what `step` would, where it is not run; default:
                zeros, of size 0 where the size is not known.

        Returns:
            What `step` or `otherwise` does.

        Raises:
            ValueError: The step applies gradients twice, or where the attempt
                is not known.
        """
        results = []

        def make() -> Any:
            with _making(self):
                results.append(step())
            if not self.made:
                _check_makes_no_other_update()
            return results[0]

        def finish() -> Any:
            with tf.control_dependencies(self.commit(self.committed)):
                if otherwise is None:
                    return tf.nest.map_structure(_zeros, results[0])
                return tf.nest.map_structure(
                    tf.identity, otherwise(), expand_composites=True
                )

        # Traced in this order.
        return tf.cond(self.committed <= 0, make, finish)


# The last two where it was traced in another trace of the step.
_UPDATES = (
    "Lodestar>EmbeddingApply",
    "Lodestar>EmbeddingApplyAll",
    "Lodestar>EmbeddingStage",
    "Lodestar>CommitUpdate",
)


def _check_makes_no_other_update() -> None:
    library = tf.compat.v1.get_default_graph().as_graph_def().library
    for function in library.function:
        if any(n.op in _UPDATES for n in function.node_def):
            raise ValueError(
                "a step whose update is made once applies gradients of tables "
                f"in the tf.function {function.signature.name}, which was "
                "traced before; let the step call a plain function."
            )


def _zeros(like: Any) -> Any:
    if like is None:
        return None
    if isinstance(like, tf.RaggedTensor):
        # Splits of no rows are [0].
        return tf.RaggedTensor.from_nested_row_splits(
            _zeros(like.flat_values),
            [
                tf.zeros([splits.shape[0] or 1], splits.dtype)
                for splits in like.nested_row_splits
            ],
            validate=False,
        )
    if isinstance(like, tf.SparseTensor) and like.shape.rank is not None:
        sizes = [size or 0 for size in like.shape]
        return tf.SparseTensor(
            _zeros(like.indices),
            _zeros(like.values),
            tf.constant(sizes, tf.int64),
        )
    if not isinstance(like, tf.Tensor):
        return tf.nest.map_structure(_zeros, like, expand_composites=True)
    sizes = [size or 0 for size in like.shape] if like.shape.rank else []
    return tf.zeros(sizes, like.dtype)


# By the graph of the step: threads of replicas trace into graphs in it, too.
_ATTEMPTS: weakref.WeakKeyDictionary[tf.Graph, UpdateAttempt] = (
    weakref.WeakKeyDictionary()
)


def current() -> UpdateAttempt | None:
    """What makes the updates of the step that is traced, if anything does."""
    if tf.executing_eagerly():
        return None
    graph = tf.compat.v1.get_default_graph()
    while graph is not None:
        if graph in _ATTEMPTS:
            return _ATTEMPTS[graph]
        graph = getattr(graph, "outer_graph", None)
    return None


@contextlib.contextmanager
def _making(attempt: UpdateAttempt) -> Iterator[None]:
    graph = tf.compat.v1.get_default_graph()
    _ATTEMPTS[graph] = attempt
    try:
        yield
    finally:
        del _ATTEMPTS[graph]
