"""The training step that a ClusterCoordinator schedules on workers."""

import contextvars
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import keras
import tensorflow as tf

from lodestar import _private
from lodestar.embedding.hook_variable import as_hook
from lodestar.optimizers.update_attempt import make_once
from lodestar.train.step import TrainingStep

# Metrics, or sums of gradients.
Tensors = Sequence[Any]


class ScheduledStep(TrainingStep):
    """Functions of a model for a ClusterCoordinator, each run on one worker.

    A function is called with a list of batches and their number, or with an
    iterator and how many batches to take of it, and with the updates that these
    are. It gives the state that metrics have then which had seen nothing; it may
    be run again after a worker was lost, and gives that once. Tables take each
    update once, dense weights at most once.

    `train` updates all weights after each batch. `push` reads dense weights
    once and updates them once, by the sum of gradients; tables are updated
    after each batch.
    """

    def _compile(self, iterator: Any) -> None:
        # Constants of the functions, and not tensors of a parameter server.
        self._zero = [v.numpy() for v in self._zero]
        self.train = _compiled(self._train)
        self.push = _compiled(self._push)
        self.test = _compiled(self._test)

    def sum(self, states: Iterable[Tensors]) -> list[Any]:
        """The state of metrics after what several calls have seen."""
        return [
            zero + sum(value - zero for value in values)
            for zero, *values in zip(self._zero, *states, strict=True)
        ]

    def _train(self, batches, steps, updates):
        once = self._once(updates, self._train_batch)
        return _each(batches, steps, once, self._constants())

    def _test(self, batches, steps, updates):
        def test(read, number, metrics):
            del number
            return _on_replica(self._test_batch, read(), metrics)

        return _each(batches, steps, test, self._constants())

    def _once(self, updates, function):
        """`function` of a batch and a state, but where its update was made."""
        run, first, finished = tf.unstack(updates)
        hooks = map(as_hook, self._model.trainable_variables)
        tables = [hook.table for hook in hooks if hook is not None]
        devices = [d for table in tables for d in table.devices or ()]

        def once(read, number, state):
            return make_once(
                lambda: _on_replica(function, read(), state),
                lambda: state,
                run=run,
                update=first + tf.cast(number, tf.int64),
                finished=finished,
                devices=devices,
            )

        return once

    def _constants(self):
        return [tf.constant(value) for value in self._zero]

    def _train_batch(self, batch, metrics):
        variables = self._model.trainable_variables
        with tf.GradientTape() as tape:
            loss, metrics, _ = self._forward(batch, metrics)
        gradients = tape.gradient(loss, variables)
        with _Counting(self._model.optimizer, 1):
            self._update(gradients)
        return metrics

    def _test_batch(self, batch, metrics):
        return self._forward(batch, metrics, training=False)[1]

    def _push(self, batches, steps, updates):
        model = self._model
        hooks = [v for v in model.trainable_variables if as_hook(v) is not None]
        dense = [v for v in model.trainable_variables if as_hook(v) is None]
        values = [tf.identity(v.value) for v in dense]
        mapping = list(zip(dense, values, strict=True))

        def batch_step(batch, state):
            metrics, sums = state[: len(self._zero)], state[len(self._zero) :]
            with (
                _Passing(mapping, collect_losses=True),
                tf.GradientTape() as tape,
            ):
                tape.watch(values)
                loss, metrics, _ = self._forward(batch, metrics)
            gradients, of_hooks = tape.gradient(loss, (values, hooks))
            sums = [
                total if g is None else total + tf.convert_to_tensor(g)
                for total, g in zip(sums, gradients, strict=True)
            ]
            if hooks:
                with _Counting(model.optimizer, 1):
                    model.optimizer.apply(of_hooks, hooks)
            return [*metrics, *sums]

        zeros = [*self._constants(), *map(tf.zeros_like, values)]
        once = self._once(updates, batch_step)
        state = _each(batches, steps, once, zeros)

        def update(sums):
            with _Counting(model.optimizer, 0 if hooks else steps):
                # A table's wrapper would miss the gradients of tables here.
                inner = getattr(
                    model.optimizer, "inner_optimizer", model.optimizer
                )
                # Of this replica, and not of the loop.
                inner.apply([tf.identity(total) for total in sums], dense)

        _on_replica(update, state[len(self._zero) :])
        return state[: len(self._zero)]


def _compiled(function: Callable) -> Any:
    # As Keras compiles a step, whose layers see to their own control flow.
    return tf.function(function, reduce_retracing=True, autograph=False)


def _on_replica(function: Callable, *arguments: Any) -> Any:
    # Where optimizers must be, but for the loops around. A replica has a thread
    # of its own, which does not know the context of this one.
    context = contextvars.copy_context()
    return tf.distribute.get_strategy().run(
        lambda *inputs: context.run(function, *inputs), arguments
    )


def _each(
    batches: Any,
    steps: tf.Tensor,
    function: Callable[[Callable[[], Any], Any, Tensors], Tensors],
    state: Tensors,
) -> Tensors:
    """What `function` makes of the state, batch by batch.

    Args:
        batches: A list, or an iterator.
        steps: How many they are, or how many to take.
        function: Of what reads a batch, the batch's number and the state.
        state: Before the first batch.
    """
    if isinstance(batches, list):
        for number, batch in enumerate(batches):
            state = function(lambda batch=batch: batch, number, state)
        return state

    def body(number, state):
        return number + 1, function(batches.get_next, number, state)

    return tf.while_loop(
        lambda number, _: number < steps, body, [tf.constant(0), list(state)]
    )[1]


class _Passing(keras.StatelessScope):
    """Gives variables other values; updates are made as without the scope."""

    def add_update(self, update: tuple[keras.Variable, Any]) -> None:
        """Makes it at once."""
        variable, value = update
        variable.value.assign(value)


class _Counting(_Passing):
    """Adds to the counters of an optimizer and of those in it in one piece.

    Keras reads a counter and writes what comes next, by which workers lose
    counts.
    """

    def __init__(self, optimizer: keras.optimizers.Optimizer, steps: Any):
        super().__init__()
        self._steps = steps
        self._counters = set()
        while optimizer is not None:
            self._counters.add(id(_private.raw_iterations(optimizer)))
            optimizer = getattr(optimizer, "inner_optimizer", None)

    def add_update(self, update: tuple[keras.Variable, Any]) -> None:
        """Makes it at once."""
        variable, _ = update
        if id(variable) not in self._counters:
            super().add_update(update)
        else:
            variable.value.assign_add(tf.cast(self._steps, variable.dtype))
