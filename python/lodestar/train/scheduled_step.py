"""The training step that a ClusterCoordinator schedules on workers."""

from collections.abc import Callable
from typing import Any

import keras
import tensorflow as tf

from lodestar import _private
from lodestar.embedding.table_variable import as_table
from lodestar.optimizers.table_optimizer import TableOptimizer
from lodestar.optimizers.update_attempt import UpdateLogs
from lodestar.train.server_weights import ServerWeights
from lodestar.train.step import TrainingStep, compiled

State = list[tf.Tensor]  # State of metrics.
Read = Callable[[], Any]  # Reads a batch.


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
        self.train = compiled(self._train)
        self.push = compiled(self._push)
        self.test = compiled(self._test)

    def metrics(self) -> list[Any]:
        """Returns the state of the model's metrics."""
        return [v.numpy() for v in self._metrics]

    def _train(self, batches: Any, steps: Any, updates: Any) -> State:
        def train(read: Read, number: tf.Tensor, metrics: State) -> State:
            make = self._once(updates, number)
            values = self._dense.read()
            metrics, gradients, of_tables = _on_replica(
                self._gradients, read(), metrics, values
            )
            make(lambda: _on_replica(self._update, gradients, of_tables))
            return metrics

        return _each(batches, steps, train, self._constants())

    def _test(self, batches: Any, steps: Any, updates: Any) -> State:
        def test(read: Read, number: tf.Tensor, metrics: State) -> State:
            del number
            return _on_replica(self._test_batch, read(), metrics)

        return _each(batches, steps, test, self._constants())

    def _once(
        self, updates: tf.Tensor, number: tf.Tensor
    ) -> Callable[[Callable[[], Any]], tf.Tensor]:
        """Returns `make`, which calls a function unless its update was made.

        `make` returns whether it called the function. The servers are asked
        immediately.
        """
        if not self._tables:
            return lambda update: [update(), tf.constant(True)][1]
        first, finished = tf.unstack(updates)
        attempt = UpdateLogs.of(self._model.distribute_strategy).begin(
            first + tf.cast(number, tf.int64), finished
        )

        def make(update: Callable[[], Any]) -> tf.Tensor:
            def made() -> tf.Tensor:
                update()
                return tf.constant(True)

            return attempt.once(made, lambda: tf.constant(False))

        return make

    def _constants(self) -> State:
        return [tf.constant(value) for value in self._zero]

    def _gradients(
        self, batch: Any, metrics: State, values: list[tf.Tensor]
    ) -> tuple[State, list[Any], list[Any]]:
        """Returns the new metrics, and gradients of dense weights and tables.

        `values` has the values of the dense weights.
        """
        mapping = list(zip(self._dense.variables, values, strict=True))
        with (
            _Passing(mapping, collect_losses=True),
            tf.GradientTape() as tape,
        ):
            tape.watch(values)
            loss, metrics, _ = self.forward(batch, metrics)
        gradients, of_tables = tape.gradient(loss, (values, self._tables))
        return metrics, gradients, of_tables

    def _update(self, gradients: list[Any], of_tables: list[Any]) -> None:
        optimizer, dense = self._model.optimizer, self._dense
        # Without any gradient of a table, `apply` says which one is missing.
        if not _is_separable(optimizer) or (
            self._tables and all(g is None for g in of_tables)
        ):
            with _Counting(optimizer, 1):
                optimizer.apply(
                    [*gradients, *of_tables], [*dense.variables, *self._tables]
                )
            return
        trains_dense = any(g is not None for g in gradients)
        # Tables first: a step that a table rejects must not change dense weights.
        applied = []
        if self._tables:
            counting = _Counting(optimizer, int(not trains_dense))
            with counting:
                optimizer.apply(of_tables, self._tables)
            applied = counting.counted
        with tf.control_dependencies(applied):
            parts = dense.sent(gradients)
        for i, (device, *given) in enumerate(parts, 1):
            # All calls see the same number of iterations.
            steps = int(i == len(parts))
            with (
                tf.device(device),
                tf.control_dependencies(applied),
                _Counting(optimizer, steps),
            ):
                optimizer.apply(*given)

    def _test_batch(self, batch: Any, metrics: State) -> State:
        return self.forward(batch, metrics, training=False)[1]

    def _push(self, batches: Any, steps: Any, updates: Any) -> State:
        model, tables = self._model, self._tables
        values = self._dense.read()

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
            make = self._once(updates, number)
            metrics, gradients, of_tables = _on_replica(
                gradients_of, read(), metrics
            )
            made = make(lambda: _on_replica(update_tables, of_tables))
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


def _is_separable(optimizer: keras.optimizers.Optimizer) -> bool:
    """Whether one call of `apply` equals calls for parts of the variables."""
    if (
        optimizer.global_clipnorm
        or optimizer.use_ema
        or optimizer.gradient_accumulation_steps
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

    def add_update(self, update: tuple[keras.Variable, Any]) -> None:
        """Makes an update immediately."""
        variable, value = update
        variable.value.assign(value)


class _Counting(_Passing):
    """Increments the counter of an optimizer atomically.

    Keras reads and then writes it, which would lose counts of other workers.
    """

    def __init__(self, optimizer: keras.optimizers.Optimizer, steps: Any):
        super().__init__()
        self._steps = steps
        # Operations that run after the update of a call.
        self.counted: list[tf.Operation] = []
        self._counter = _private.raw_iterations(optimizer)

    def add_update(self, update: tuple[keras.Variable, Any]) -> None:
        """Makes an update immediately."""
        variable, _ = update
        if variable is not self._counter:
            super().add_update(update)
        elif isinstance(self._steps, int) and self._steps == 0:
            self.counted.append(tf.no_op())
        else:
            variable.value.assign_add(tf.cast(self._steps, variable.dtype))
