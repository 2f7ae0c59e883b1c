"""The training step of threads, with shared weights and separate metrics."""

import inspect
import weakref
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Self

import keras
import numpy as np
import tensorflow as tf

from lodestar import _private
from lodestar.embedding.table_variable import as_table
from lodestar.train import metric_sums


class TrainingStep:
    """Keras's `train_step`, except that each caller has its own metrics.

    All callers share weights, tables and optimizer variables and write them
    without a lock. That would lose updates of metrics, which read and then write a
    variable.

    The constructor builds the model, its metrics and its optimizer, for a batch of
    `iterator`, without training. `fetch` has names of metrics, and of layers of a
    functional model; None is all metrics.
    """

    def __init__(
        self,
        model: keras.Model,
        iterator: Any,
        batch: Any,
        fetch: Sequence[str] | None,
    ):
        # `_STEPS` must not keep its keys alive.
        self._model_ref = weakref.ref(model)
        self._wanted = fetch
        self._spec = getattr(iterator, "element_spec", batch)
        self._adds_up = False  # whether `check_metrics` has found so
        # model.compile() replaces these.
        self._compiled_with = _compiled_with(model)
        self._build(model, batch)
        model.reset_metrics()
        if not model.optimizer.built:
            model.optimizer.build(model.trainable_variables)
        # Metrics of layers are updated by their calls, jointly for all callers.
        of_layers = {id(m) for layer in model.layers for m in layer.metrics}
        self._metrics = [
            variable
            for metric in model.metrics
            if id(metric) not in of_layers
            for variable in metric.variables
        ]
        self._zero = [tf.identity(v.value) for v in self._metrics]
        results = list(model.get_metrics_result())
        self.fetch = results if fetch is None else list(fetch)
        outputs = {
            name: _output(model, name, results)
            for name in self.fetch
            if name not in results
        }
        self._with_tensors = (
            keras.Model(model.input, [model.output, outputs])
            if outputs
            else None
        )
        self._compile(iterator)

    def _build(self, model: keras.Model, batch: Any) -> None:
        """Creates the variables of the model and its metrics without training."""
        x, y, weight = keras.utils.unpack_x_y_sample_weight(batch)
        y_pred = call_model(model, x, training=False)
        before = [(v, tf.identity(v.value)) for v in _state_of(model)]
        model.compute_loss(x=x, y=y, y_pred=y_pred, sample_weight=weight)
        model.compute_metrics(x, y, y_pred, sample_weight=weight)
        for variable, value in before:
            variable.assign(value)

    def _compile(self, iterator: Any) -> None:
        self._compiled: Any = self.whole
        if not self._model.run_eagerly:
            self._compiled = compiled(self.whole)
            # In this thread, which has the right state of Keras and TensorFlow.
            self._compiled.get_concrete_function(iterator, self._zero)

    @classmethod
    def of(
        cls,
        model: keras.Model,
        first: Callable[[], tuple[Any, Any]],
        fetch: Sequence[str] | None,
    ) -> Self:
        """Returns the step of a model, cached until the model is recompiled.

        `first` returns an iterator and a batch for the constructor.
        """
        known = _STEPS.get(model)
        if (
            type(known) is not cls
            or known._wanted != fetch
            or known._compiled_with != _compiled_with(model)
        ):
            known = _STEPS[model] = cls(model, *first(), fetch)
        return known

    @property
    def _model(self) -> keras.Model:
        model = self._model_ref()
        assert model is not None  # The caller holds the model.
        return model

    def check_metrics(self, where: str) -> None:
        """Raises ValueError if `merge` cannot merge a metric; see metric_sums."""
        if not self._adds_up:
            metric_sums.check(
                *(self._model.metrics, self._metrics, self.metrics_after),
                *(self._spec, where),
            )
        self._adds_up = True

    def metrics_after(self, metrics: list[tf.Tensor], batch: Any) -> Any:
        """Returns the state of metrics after a batch."""
        return self.forward(batch, metrics, training=False)[1]

    def new_metrics(self) -> list[tf.Tensor]:
        """Returns the state of reset metrics."""
        return list(self._zero)

    def __call__(
        self, iterator: Any, metrics: list[tf.Tensor]
    ) -> tuple[list[tf.Tensor], dict[str, tf.Tensor]]:
        """Trains on the next batch of `(features, label[, weight])`.

        Returns the caller's new state of the metrics and the means of fetched
        outputs. Raises tf.errors.OutOfRangeError at the end.
        """
        return self._compiled(iterator, metrics)

    def merge(
        self, states: Iterable[Sequence[tf.Tensor]]
    ) -> dict[str, np.ndarray]:
        """Sets the model's metrics to the sum of states; returns the results."""
        states = list(states) or [self._zero]
        totals = list(states[0])
        for state in states[1:]:
            totals = [
                total + (value - zero)
                for total, value, zero in zip(
                    totals, state, self._zero, strict=True
                )
            ]
        for variable, total in zip(self._metrics, totals, strict=True):
            variable.assign(total)
        results = self._model.get_metrics_result()
        return {name: np.asarray(value) for name, value in results.items()}

    def whole(
        self, iterator: Any, metrics: list[tf.Tensor]
    ) -> tuple[list[tf.Tensor], dict[str, tf.Tensor]]:
        """Trains on the next batch; `_compile` compiles this."""
        batch = iterator.get_next()
        # Nothing must run at the end of the data, even if it needs no batch:
        # `iterations` would count one step too many.
        with tf.control_dependencies(
            tf.nest.flatten(batch, expand_composites=True)[:1]
        ):
            with tf.GradientTape() as tape:
                loss, metrics, fetched = self.forward(batch, metrics)
            self.update(tape.gradient(loss, self._model.trainable_variables))
        return metrics, fetched

    def forward(
        self, batch: Any, metrics: list[tf.Tensor], training: bool = True
    ) -> tuple[tf.Tensor, list[tf.Tensor], dict[str, tf.Tensor]]:
        """Returns the loss, the new metrics, and the means of fetched outputs."""
        model = self._model
        x, y, weight = keras.utils.unpack_x_y_sample_weight(batch)
        if self._with_tensors is None:
            y_pred, tensors = call_model(model, x, training), {}
        else:
            y_pred, tensors = self._with_tensors(x, training=training)
        regularized = [v for v in model.trainable_variables if v.regularizer]
        # Losses of the call; compute_loss computes the others.
        added = model.losses[: len(model.losses) - len(regularized)]
        # Copies, so that no layer also adds them as its own.
        added = [tf.identity(loss) for loss in added]
        mapping = list(zip(self._metrics, metrics, strict=True))
        mapping += [(v, v.value) for v in regularized]
        # In the scope, metrics are the caller's, and losses of the call and values
        # of weights are hidden.
        with keras.StatelessScope(mapping, collect_losses=True) as scope:
            if added:
                # A functional model's own add_loss does not accept them.
                keras.layers.Layer.add_loss(model, added)
            loss = model.compute_loss(
                x=x, y=y, y_pred=y_pred, sample_weight=weight
            )
            if (tracker := _private.loss_tracker(model)) is not None:
                tracker.update_state(
                    loss, sample_weight=tf.shape(tf.nest.flatten(x)[0])[0]
                )
            model.compute_metrics(x, y, y_pred, sample_weight=weight)
        known = {id(variable) for variable, _ in mapping}
        for variable in _state_of(model):
            value = scope.get_current_value(variable)
            if id(variable) not in known and value is not None:
                variable.assign(value)  # Changed by a custom compute_loss.
        return (
            model.optimizer.scale_loss(loss),
            [scope.get_current_value(v) for v in self._metrics],
            {
                name: tf.reduce_mean(tf.cast(value, tf.float32))
                for name, value in tensors.items()
            },
        )

    def update(self, gradients: Sequence[Any]) -> None:
        """Applies gradients to all trainable variables."""
        model = self._model
        model.optimizer.apply(gradients, model.trainable_variables)


def compiled(function: Callable[..., Any]) -> Any:
    """Compiles a step like Keras, whose layers do not need AutoGraph."""
    return tf.function(function, reduce_retracing=True, autograph=False)


def check_is_model(model: Any, compiled: bool = True) -> None:
    """Raises TypeError or ValueError unless `model` is a (compiled) Keras model."""
    if not isinstance(model, keras.Model):
        raise TypeError(
            f"`model` must be a keras.Model, got {type(model).__name__}."
        )
    if compiled and not model.compiled:
        raise ValueError(
            "The model has no optimizer. Call model.compile() first."
        )


def check_train_step(model: keras.Model, by: str) -> None:
    """Raises ValueError unless `train_step` is Keras's; `by` names who runs it."""
    if type(model).train_step is not keras.Model.train_step:
        raise ValueError(
            f"{type(model).__name__} must not override `train_step`: {by} run "
            "Keras's, whose metrics can be summed."
        )
    if model.optimizer is None:
        raise ValueError("The model was compiled without an optimizer.")


def accumulates_gradients(model: keras.Model) -> bool:
    """Returns whether the optimizer accumulates gradients over steps."""
    optimizer = model.optimizer
    while optimizer is not None:
        if optimizer.gradient_accumulation_steps:
            return True
        optimizer = getattr(optimizer, "inner_optimizer", None)
    return False


def call_model(model: keras.Model, x: Any, training: bool) -> Any:
    """Returns the outputs of a model."""
    # A custom `call` may lack `training`.
    takes = "training" in inspect.signature(model.call).parameters
    return model(x, training=training) if takes else model(x)


def _state_of(model: keras.Model) -> list[keras.Variable]:
    """Returns the variables that calls may set, such as moving averages."""
    # A table may be frozen.
    return [v for v in model.non_trainable_variables if as_table(v) is None]


def _compiled_with(model: keras.Model) -> list[Any]:
    return [model.optimizer, _private.loss_tracker(model)]


def _output(model: keras.Model, name: str, metrics: list[str]) -> Any:
    try:
        output = model.get_layer(name).output
        model.input  # noqa: B018  # Only functional models have it.
    except (AttributeError, ValueError) as error:
        raise ValueError(
            f"`fetch` has {name!r}, which is neither one of the metrics {metrics} "
            "nor a layer of a functional model with one output."
        ) from error
    if tf.nest.is_nested(output):
        raise ValueError(
            f"`fetch` must have layers with one output; {name!r} has several."
        )
    return output


_STEPS: weakref.WeakKeyDictionary[keras.Model, TrainingStep] = (
    weakref.WeakKeyDictionary()
)
