"""Makes updates of tables on several tasks exactly once and atomically.

A worker may be lost in the middle of a step, which another worker then runs again.
The ops of tf_ops/ops/steps/update_log_ops.cc make tables apply such an update
once, and all of them or none.
"""

import contextlib
import dataclasses
import functools
import threading
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from lodestar import _servers
from lodestar._library import gen_ops
from lodestar._resource import SharedResource
from lodestar.embedding import strategies
from lodestar.embedding.table_parts import Job, run_all


class UpdateLogs:
    """The logs of table updates, one per device, and the servers of the devices."""

    def __init__(self, devices: Iterable[str | None]):
        self._next = 0
        self._finished = 0
        # A number must be scheduled before it may count as finished.
        self._lock = threading.Lock()
        devices = dict.fromkeys(devices)
        self.servers = _servers.Servers(map(_servers.claim, devices))
        # Keyed by TensorFlow's name, because a device has several names.
        with self.servers.naming_lost():
            self._logs = {
                log.device_name: log for log in map(_UpdateLog, devices)
            }

    @classmethod
    def of(
        cls, strategy: tf.distribute.ParameterServerStrategy
    ) -> "UpdateLogs":
        """Returns the logs on the parameter servers of `strategy`."""
        # Two sets of logs would number their updates alike.
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
        """Schedules a function that makes `count` updates.

        `function` is a `tf.function` of `arguments` and an int64 vector: the number
        of its first update, and a number below which all updates are finished.
        """
        with self._lock:
            # It raises the error of a step, but only after all others are done.
            if self.servers.run(coordinator.done):
                self._finished = self._next
            updates = tf.constant([self._next, self._finished], tf.int64)
            self._next += count
            return coordinator.schedule(function, (*arguments, updates))

    def begin(
        self, update: Any, finished: Any, jobs: Sequence[Job] = ()
    ) -> "UpdateAttempt":
        """Starts an attempt at an update, in a `tf.function`.

        All logs are asked at once, concurrently with the parts of the step that do
        not depend on the answer. All updates below `finished` are finished. `jobs`
        share the messages.
        """
        key = tf.stack([update, finished])
        attempts = {}

        def begin(log: _UpdateLog, key: tf.Tensor) -> list[tf.Tensor]:
            attempt, committed = log.call(gen_ops.lodestar_begin_update, key)
            attempts[log.device_name] = attempt
            return [attempt, committed]

        for log in self._logs.values():
            log.keep_for_graph()
        found = run_all(
            [*(log.job(begin, key) for log in self._logs.values()), *jobs]
        )
        begun = found[: len(self._logs)]
        return UpdateAttempt(
            self._logs,
            attempts,
            # The number that the first log gave it.
            name=begun[0][0][1],
            committed=tf.reduce_max([there for _, there in begun]),
            found=found[len(begun) :],
        )

    def settle(
        self, coordinator: tf.distribute.coordinator.ClusterCoordinator
    ) -> None:
        """Waits for all scheduled functions and ends all attempts.

        Updates that are committed on one device are then committed on all; others
        are dropped. Until then `schedule` blocks.
        """
        self.servers.run(lambda: self._settle(coordinator))

    def _settle(
        self, coordinator: tf.distribute.coordinator.ClusterCoordinator
    ) -> None:
        logs = self._logs.values()
        with self._lock:
            # Steps may raise errors other than OpError.
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
        """Waits for all scheduled functions, or until a server is lost."""
        self.servers.run(coordinator.join)


_LOGS: weakref.WeakKeyDictionary[Any, UpdateLogs] = weakref.WeakKeyDictionary()
_LOGS_LOCK = threading.Lock()


class _UpdateLog(SharedResource):
    """The log on one device."""

    def __init__(self, device: str | None):
        super().__init__("update_log", device)
        with tf.init_scope():
            self.device_name = self.resource_handle.device

    def _make_resource(self, shared_name: str, container: str) -> tf.Tensor:
        return gen_ops.lodestar_update_log(
            shared_name=shared_name, container=container
        )

    def job(
        self,
        function: Callable[..., Sequence[tf.Tensor]],
        *inputs: tf.Tensor,
    ) -> Job:
        """Returns `function(log, *inputs)`, to run on the device of the log."""
        # Each op has its own handle: TensorFlow serializes stateful ops without one.
        run = functools.partial(function, self)
        return Job(self.device_name, run, inputs)

    def call(self, op: Callable[..., Any], *inputs: Any, **attrs: Any) -> Any:
        """Runs `op` on the device of the log, with its handle as first input."""
        # Creating an input on the server would block while holding the GIL, so
        # that no thread could detect the loss of the server.
        tensors = [tf.convert_to_tensor(v, tf.int64) for v in inputs]
        with tf.device(self.device_name):
            return op(self.resource_handle, *tensors, **attrs)


class _Staged(NamedTuple):
    """A server that has staged its part of an update.

    Attributes:
        is_new: There, whether no attempt is committed.
        cargo: The attempt's cargo, there.
        committed: The operation that commits there.
    """

    is_new: tf.Tensor
    cargo: list[tf.Tensor]
    committed: tf.Operation


@dataclasses.dataclass
class UpdateAttempt:
    """An attempt at an update.

    Attributes:
        logs: The log of each device.
        attempts: The logs' numbers of this attempt, on their devices.
        name: The number that all logs call it.
        committed: The name of an attempt that is committed on some device but perhaps
            not on all, or 0.
        found: The results of the jobs that `UpdateLogs.begin` got.
        cargo: Tensors to send to devices together with staged updates.
        checks: Operations to wait for before the attempt is committed.
        staged: The servers, once updates are staged and committed.
        made: Whether the step commits this attempt.
    """

    logs: Mapping[str, _UpdateLog]
    attempts: Mapping[str, tf.Tensor]
    name: tf.Tensor
    committed: tf.Tensor
    found: list[list[tf.Tensor]]
    cargo: Mapping[str, Sequence[tf.Tensor]] = dataclasses.field(
        default_factory=dict
    )
    checks: Sequence[Any] = ()
    staged: dict[str, _Staged] = dataclasses.field(default_factory=dict)
    made: bool = False

    def device_of(self, part: SharedResource) -> str | None:
        """Returns TensorFlow's name of a part's device if it has a log, or None."""
        device: str = part.resource_handle.device
        return device if device in self.logs else None

    def covers(self, devices: Iterable[str], tables: Sequence[Any]) -> bool:
        """Whether devices, and the devices of all rows of tables, have logs."""
        parts = [part for table in tables for part in table._parts]
        return {*devices} <= {*self.logs} and None not in map(
            self.device_of, parts
        )

    def commit(
        self, stages: Mapping[str, Job], checks: Sequence[Any]
    ) -> list[tf.Operation]:
        """Stages updates on all devices after `checks`, then commits them on all.

        Unless an attempt is committed: then it is committed on all devices. Returns
        the operations that commit.

        Args:
            stages: Functions by device, which stage updates there under the name
                that is their first argument.
            checks: Operations which find errors of other updates.
        """
        if self.made:
            raise ValueError(
                "A step that may run again must call `apply` of the optimizer "
                "once, with the gradients of all variables, but it applies "
                "gradients of tables twice."
            )
        self.made = True
        is_new = self.committed <= 0
        name = tf.where(is_new, self.name, self.committed)
        there: dict[str, tuple[tf.Tensor, ...]] = {}

        def stage(
            device: str, is_new: tf.Tensor, name: tf.Tensor, *given: tf.Tensor
        ) -> list[tf.Tensor]:
            job = stages.get(device)
            count = len(job.inputs) if job else 0
            there[device] = (is_new, name, *given[count:])
            if job is None:
                return []
            return [
                tf.cond(
                    is_new,
                    lambda: job.run(name, *given[:count])[0],
                    lambda: tf.constant(True),
                )
            ]

        found = run_all(
            [
                Job(
                    device,
                    functools.partial(stage, device),
                    [
                        *(is_new, name),
                        *(stages[device].inputs if device in stages else ()),
                        *self.cargo.get(device, ()),
                    ],
                )
                for device in self.logs
            ]
        )
        # A single meeting point, instead of edges between all pairs of tasks.
        with tf.control_dependencies(
            [*checks, *self.checks, *(x for x in found for x in x)]
        ):
            all_staged = tf.no_op()
        for device, (is_new, name, *cargo) in there.items():
            with tf.control_dependencies([all_staged]):
                committed = self._commit(device, name)
            self.staged[device] = _Staged(is_new, cargo, committed)
        return [staged.committed for staged in self.staged.values()]

    def _commit(self, device: str, name: tf.Tensor) -> tf.Operation:
        return self.logs[device].call(
            gen_ops.lodestar_commit_update, self.attempts[device], name
        )

    def _commit_there(
        self, log: _UpdateLog, name: tf.Tensor
    ) -> list[tf.Tensor]:
        with tf.control_dependencies([self._commit(log.device_name, name)]):
            return [tf.constant(True)]

    @contextlib.contextmanager
    def making(
        self,
        cargo: Mapping[str, Sequence[tf.Tensor]],
        checks: Sequence[Any] = (),
    ) -> Iterator[None]:
        """Makes the updates of tables in the block part of this attempt.

        `cargo` is sent to servers with them, and `checks` run before a commit.
        """
        self.cargo, self.checks = cargo, checks
        with _making(self):
            yield

    def then(self, function: Callable[..., Any]) -> None:
        """Calls `function(device, *cargo)` on each server after it has committed.

        Unless an attempt was committed before.
        """
        for device, staged in self.staged.items():

            def run(
                device: str = device, staged: _Staged = staged
            ) -> tf.Tensor:
                function(device, *staged.cargo)
                return tf.constant(True)

            with (
                tf.device(device),
                tf.control_dependencies([staged.committed]),
            ):
                tf.cond(staged.is_new, run, lambda: tf.constant(False))

    def once(
        self,
        step: Callable[[], Any],
        otherwise: Callable[[], Any] | None = None,
    ) -> Any:
        """Runs a step whose update of tables must be made exactly once.

        `step` must call `apply` of an optimizer once. If the update is committed on
        any device, it is committed on all, and `otherwise` is called instead of
        `step`. It defaults to zeros, of size 0 where a size is unknown.
        """
        results = []

        def make() -> Any:
            with _making(self):
                results.append(step())
            if not self.made:
                _check_makes_no_other_update()
            return results[0]

        def finish() -> Any:
            commits = [
                log.job(self._commit_there, self.committed)
                for log in self.logs.values()
            ]
            with tf.control_dependencies(
                [done for (done,) in run_all(commits)]
            ):
                if otherwise is None:
                    return tf.nest.map_structure(_zeros, results[0])
                return tf.nest.map_structure(
                    tf.identity, otherwise(), expand_composites=True
                )

        # tf.cond traces `make` first.
        return tf.cond(self.committed <= 0, make, finish)


# The last is of a function that was traced in another trace of the step.
_UPDATES = (
    "Lodestar>EmbeddingApply",
    "Lodestar>EmbeddingApplyAll",
    "Lodestar>CommitUpdate",
)


def _check_makes_no_other_update() -> None:
    library = tf.compat.v1.get_default_graph().as_graph_def().library
    for function in library.function:
        if any(n.op in _UPDATES for n in function.node_def):
            raise ValueError(
                "A step that may run again applies gradients of tables in the "
                f"tf.function {function.signature.name}, which was traced before. "
                "Call a plain Python function instead."
            )


def _zeros(like: Any) -> Any:
    if like is None:
        return None
    if isinstance(like, tf.RaggedTensor):
        # The splits of no rows are [0].
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


# By graph, because threads of replicas trace into inner graphs of the step.
_ATTEMPTS: weakref.WeakKeyDictionary[tf.Graph, UpdateAttempt] = (
    weakref.WeakKeyDictionary()
)


def current() -> UpdateAttempt | None:
    """Returns the attempt of the step that is being traced, if any."""
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
