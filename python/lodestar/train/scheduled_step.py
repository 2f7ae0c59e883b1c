"""The training step that a ClusterCoordinator schedules on workers."""

import functools
from collections.abc import Callable, Iterable
from typing import Any

import keras
import tensorflow as tf

from lodestar import _private
from lodestar.embedding.table_parts import Job, run_all
from lodestar.embedding.table_variable import as_table
from lodestar.optimizers import finite_gradients, row_optimizers
from lodestar.optimizers.table_optimizer import TableOptimizer
from lodestar.optimizers.update_attempt import UpdateAttempt, UpdateLogs
from lodestar.train.server_weights import ServerWeights
from lodestar.train.step import TrainingStep, compiled

State = list[tf.Tensor]  # State of metrics.
Read = Callable[[], Any]  # Reads a batch.
# Gradients and weights by server.
ByServer = dict[str, list[tuple[Any, Any]]]
# Variables and the values that a step reads instead.
Given = Iterable[tuple[keras.Variable, tf.Tensor]]


class ScheduledStep(TrainingStep):
    """Functions of a model for a ClusterCoordinator, each run on one worker.

    Their arguments are a list of batches and its length, or an iterator and the
    number of batches to read, and the numbers of their updates. They return the
    state of metrics of these batches alone. A function may run again after a worker
    was lost: tables get each update once, dense weights at most once.

    `train` updates all weights after each batch. `push` reads dense weights once
    and updates them once by the sum of gradients, but tables after each batch.
    `test` updates nothing.
    """

    def _build(self, model: keras.Model, batch: Any) -> None:
        # `batch` is a spec: reading a batch would advance a shared reader.
        build = super()._build
        function = tf.function(lambda data: build(model, data), autograph=False)
        function.get_concrete_function(batch)

    def _compile(self, iterator: Any) -> None:
        # Constants in the functions instead of tensors on a parameter server.
        self._zero = [v.numpy() for v in self._zero]
        variables = self._model.trainable_variables
        self._tables = [v for v in variables if as_table(v) is not None]
        self._dense = ServerWeights(
            [v for v in variables if as_table(v) is None]
        )
        # Keras variables of the optimizer that each step reads.
        optimizer = self._model.optimizer
        rate = optimizer.learning_rate
        iterations = _private.raw_iterations(optimizer)
        self._counter = iterations.value
        self._hyper = [iterations]
        if isinstance(rate, keras.Variable):
            self._hyper.append(rate)
        self._read = ServerWeights([*self._dense.variables, *self._hyper])
        self.train = compiled(self._train)
        self.push = compiled(self._push)
        self.test = compiled(self._test)
        self.check_metrics("several workers")

    def metrics(self) -> list[Any]:
        """Returns the state of the model's metrics."""
        return [v.numpy() for v in self._metrics]

    def _train(self, batches: Any, steps: Any, updates: Any) -> State:
        def train(read: Read, number: tf.Tensor, metrics: State) -> State:
            attempt, values = self._begin(updates, number, self._read)
            dense = values[: len(self._dense.variables)]
            metrics, gradients, of_tables = _on_replica(
                self._gradients, read(), metrics, dense
            )
            by_server = self._by_server(attempt, gradients, of_tables)
            if by_server is None:
                _once(
                    attempt,
                    lambda: _on_replica(self._update, gradients, of_tables),
                )
            else:
                hyper = values[len(dense) :]
                self._update_by_server(
                    attempt,
                    self._checks(gradients),
                    by_server,
                    of_tables,
                    hyper,
                )
            return metrics

        return _each(batches, steps, train, self._constants())

    def _test(self, batches: Any, steps: Any, updates: Any) -> State:
        def test(read: Read, number: tf.Tensor, metrics: State) -> State:
            del number
            return self.metrics_after(metrics, read())

        return _each(batches, steps, test, self._constants())

    def _begin(
        self, updates: tf.Tensor, number: tf.Tensor, weights: ServerWeights
    ) -> tuple[UpdateAttempt | None, list[tf.Tensor]]:
        """Asks the servers about an update and for the values of `weights`.

        The attempt at the update is None without tables.
        """
        if not self._tables:
            return None, weights.values(run_all(weights.reads()))
        first, finished = tf.unstack(updates)
        attempt = UpdateLogs.of(self._model.distribute_strategy).begin(
            first + tf.cast(number, tf.int64), finished, weights.reads()
        )
        return attempt, weights.values(attempt.found)

    def _constants(self) -> State:
        return [tf.constant(value) for value in self._zero]

    def _gradients(
        self, batch: Any, metrics: State, values: list[tf.Tensor]
    ) -> tuple[State, list[Any], list[Any]]:
        """Returns the new metrics, and gradients of dense weights and tables.

        `values` has the values of the dense weights.
        """
        # The values of tables are empty, so that nobody needs to send them.
        empty = [tf.zeros([0, t.output_dim], t.dtype) for t in self._tables]
        mapping = [
            *zip(self._dense.variables, values, strict=True),
            *zip(self._tables, empty, strict=True),
        ]
        with (
            _Passing(mapping, collect_losses=True),
            tf.GradientTape() as tape,
        ):
            tape.watch([values, empty])
            loss, metrics, _ = self.forward(batch, metrics)
        gradients, of_tables = tape.gradient(loss, (values, empty))
        return metrics, gradients, of_tables

    def _checks(self, gradients: list[Any]) -> list[tf.Tensor]:
        """Returns checks that the gradients of dense weights are finite."""
        return finite_gradients.check_by(
            self._model.optimizer,
            zip(gradients, self._dense.variables, strict=True),
        )

    def _update(self, gradients: list[Any], of_tables: list[Any]) -> None:
        optimizer = self._model.optimizer
        with _Counting(optimizer, 1):
            optimizer.apply(
                [*gradients, *of_tables],
                [*self._dense.variables, *self._tables],
            )

    def _by_server(
        self,
        attempt: UpdateAttempt | None,
        gradients: list[Any],
        of_tables: list[Any],
    ) -> ByServer | None:
        """Returns dense gradients and their weights by server.

        None if one call of the optimizer must update all weights.
        """
        optimizer = self._model.optimizer
        if not _is_separable(optimizer):
            return None
        by_server = self._dense.by_server(gradients)
        if by_server is None:
            return None
        by_server.setdefault(self._counter.device, [])
        if attempt is None:
            return by_server
        # Without any gradient of a table, `apply` says which one is missing.
        if (
            all(g is None for g in of_tables)
            or row_optimizers.is_unfused(optimizer)
            or any(table.optimizer is not None for table in self._tables)
            or not attempt.covers(by_server, self._tables)
        ):
            return None
        return by_server

    def _update_by_server(
        self,
        attempt: UpdateAttempt | None,
        checks: list[tf.Tensor],
        by_server: ByServer,
        of_tables: list[Any],
        hyper: State,
    ) -> None:
        """Sends each server its gradients, and `hyper`, the values of `_hyper`.

        A server updates its dense weights after it has committed its tables. No
        server writes before `checks`.
        """
        with tf.control_dependencies(checks if attempt is None else ()):
            gradients = {
                device: [_shaped(gradient, v.shape) for gradient, v in pairs]
                for device, pairs in by_server.items()
            }
        cargo = {
            device: tf.nest.flatten([hyper, own], expand_composites=True)
            for device, own in gradients.items()
        }

        def update_dense(device: str, *sent: tf.Tensor) -> list[tf.Tensor]:
            if device not in by_server:
                return []
            own_hyper, own = tf.nest.pack_sequence_as(
                [hyper, gradients[device]], sent, expand_composites=True
            )
            if own:
                variables = [v for _, v in by_server[device]]
                self._apply(own, variables, own_hyper)
            if device == self._counter.device:
                self._counter.assign_add(1)
            return []

        if attempt is None:
            run_all(
                [
                    Job(device, functools.partial(update_dense, device), sent)
                    for device, sent in cargo.items()
                ]
            )
            return
        with attempt.making(cargo, checks):
            self._apply(of_tables, self._tables, hyper)
        attempt.then(update_dense)

    def _apply(
        self, gradients: list[Any], variables: list[Any], hyper: State
    ) -> None:
        """Calls `apply` without reading or changing variables of `_hyper`."""
        mapping = [*zip(self._hyper, hyper, strict=True)]
        optimizer = self._model.optimizer

        def apply() -> None:
            with _Counting(optimizer, 0, mapping):
                optimizer.apply(gradients, variables)

        # Keras updates weights in the thread of the caller, not in the replica's.
        with _Passing(mapping):
            _on_replica(apply)

    def metrics_after(self, metrics: State, batch: Any) -> State:
        """Returns the state of metrics after a batch."""
        return _on_replica(super().metrics_after, metrics, batch)

    def _push(self, batches: Any, steps: Any, updates: Any) -> State:
        model, tables = self._model, self._tables
        values = self._dense.values(run_all(self._dense.reads()))

        def gradients_of(batch: Any, metrics: State) -> tuple[Any, ...]:
            metrics, gradients, of_tables = self._gradients(
                batch, metrics, values
            )
            gradients = [
                tf.zeros_like(value) if g is None else tf.convert_to_tensor(g)
                for value, g in zip(values, gradients, strict=True)
            ]
            return metrics, gradients, of_tables

        def update_tables(of_tables: Any) -> None:
            if tables:
                with _Counting(model.optimizer, 1):
                    model.optimizer.apply(of_tables, tables)

        def batch_step(read: Read, number: tf.Tensor, state: Any) -> Any:
            metrics, sums, any_made = state
            attempt, _ = self._begin(updates, number, ServerWeights([]))
            metrics, gradients, of_tables = _on_replica(
                gradients_of, read(), metrics
            )
            with tf.control_dependencies(self._checks(gradients)):
                made = _once(
                    attempt, lambda: _on_replica(update_tables, of_tables)
                )
            # If the update was made before, the sums may be applied already.
            sums = [
                tf.where(made, total + gradient, total)
                for total, gradient in zip(sums, gradients, strict=True)
            ]
            return metrics, sums, any_made | made

        metrics, sums, any_made = _each(
            batches,
            steps,
            batch_step,
            (self._constants(), [*map(tf.zeros_like, values)], False),
        )

        def update() -> None:
            with _Counting(model.optimizer, 0 if tables else steps):
                # Tensors of this replica instead of the loop's.
                totals = [tf.identity(total) for total in sums]
                model.optimizer.apply(totals, self._dense.variables)

        def push() -> tf.Tensor:
            _on_replica(update)
            return tf.constant(True)

        # Even zeros would change weights, through moments of the optimizer.
        tf.cond(any_made, push, lambda: tf.constant(False))
        return metrics


def _once(
    attempt: UpdateAttempt | None, update: Callable[[], Any]
) -> tf.Tensor:
    """Calls `update` unless its update was made; returns whether it was called."""

    def make() -> tf.Tensor:
        update()
        return tf.constant(True)

    if attempt is None:
        return make()
    return attempt.once(make, lambda: tf.constant(False))


def _shaped(gradient: Any, shape: tf.TensorShape) -> Any:
    """Returns a gradient of a weight, with a shape that can be packed."""
    if isinstance(gradient, tf.IndexedSlices):
        return tf.IndexedSlices(
            tf.ensure_shape(gradient.values, [None, *shape[1:]]),
            gradient.indices,
            tf.constant(list(shape), tf.int32),
        )
    return tf.ensure_shape(gradient, shape)


def _is_separable(optimizer: keras.optimizers.Optimizer) -> bool:
    """Whether one call of `apply` equals calls for parts of the variables."""
    if (
        optimizer.global_clipnorm
        or optimizer.use_ema
        or optimizer.gradient_accumulation_steps
        # Each call advances its product.
        or isinstance(optimizer, keras.optimizers.Nadam)
    ):
        return False
    known = {TableOptimizer, *keras.optimizers.Optimizer.__mro__}
    return not any(
        "apply" in vars(base)
        for base in type(optimizer).__mro__
        if base not in known
    )


def _on_replica(function: Callable[..., Any], *arguments: Any) -> Any:
    # Optimizers must run in a replica, but loops need not.
    return tf.distribute.get_strategy().run(function, arguments)


def _each(
    batches: Any,
    steps: tf.Tensor,
    function: Callable[[Read, Any, Any], Any],
    state: Any,
) -> Any:
    """Calls `function(read, number, state)` for each batch; returns the state.

    `batches` is a list, or an iterator from which to read `steps` batches.
    """
    if isinstance(batches, list):
        for number, batch in enumerate(batches):
            state = function(lambda batch=batch: batch, number, state)  # type: ignore[misc]
        return state

    def body(number: tf.Tensor, state: Any) -> Any:
        return number + 1, function(batches.get_next, number, state)

    return tf.while_loop(
        lambda number, _: number < steps, body, (tf.constant(0), state)
    )[1]


class _Passing(keras.StatelessScope):
    """Replaces values of variables; updates are made as without the scope."""

    def __init__(self, mapping: Given = (), **options: Any):
        super().__init__(**options)
        for replaced in mapping:
            # Unlike the constructor, this ignores the shape of a table's value.
            super().add_update(replaced)

    def add_update(self, update: tuple[keras.Variable, Any]) -> None:
        """Makes an update immediately."""
        variable, value = update
        variable.value.assign(value)


class _Counting(_Passing):
    """Increments the counter of an optimizer atomically.

    Keras reads and then writes it, which would lose counts of other workers.
    """

    def __init__(
        self,
        optimizer: keras.optimizers.Optimizer,
        steps: Any,
        mapping: Given = (),
    ):
        super().__init__(mapping)
        self._steps = steps
        self._counter = _private.raw_iterations(optimizer)

    def add_update(self, update: tuple[keras.Variable, Any]) -> None:
        """Makes an update immediately."""
        variable, _ = update
        if variable is not self._counter:
            super().add_update(update)
        elif not isinstance(self._steps, int) or self._steps:
            variable.value.assign_add(tf.cast(self._steps, variable.dtype))
