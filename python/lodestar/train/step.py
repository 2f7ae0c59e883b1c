"""The training step of threads: shared weights, metrics of each thread."""

import inspect
import weakref
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Self

import keras
import numpy as np
import tensorflow as tf

from lodestar import _private


class TrainingStep:
    """Keras's `train_step`, except that each caller keeps the state of its metrics.

    Weights, tables and optimizer variables are shared by all callers, and written
    without a lock. Updates of shared metrics would be lost, since a metric reads a
    variable, and then writes it.

    Args:
        model: Compiled. It is built here, with its metrics and its optimizer.
        iterator: One of the iterators that will be trained on.
        batch: One of its batches. Nothing is trained on it.
        fetch: Names of metrics, and of layers of a functional model. None is all
            metrics.

    Attributes:
        fetch: The names.

    Raises:
        ValueError: `fetch` names neither a metric nor a layer.
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
        # What model.compile() makes anew.
        self._compiled_with = _compiled_with(model)
        self._build(model, batch)
        model.reset_metrics()
        if not model.optimizer.built:
            model.optimizer.build(model.trainable_variables)
        # A layer's metrics are counted in its call, for all callers.
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
        """Makes the variables of the model and its metrics; trains nothing."""
        x, y, weight = keras.utils.unpack_x_y_sample_weight(batch)
        y_pred = call_model(model, x, training=False)
        before = [
            (v, tf.identity(v.value)) for v in model.non_trainable_variables
        ]
        model.compute_loss(x=x, y=y, y_pred=y_pred, sample_weight=weight)
        model.compute_metrics(x, y, y_pred, sample_weight=weight)
        for variable, value in before:
            variable.assign(value)

    def _compile(self, iterator: Any) -> None:
        self._compiled: Any = self.whole
        if not self._model.run_eagerly:
            self._compiled = compiled(self.whole)
            # On this thread, whose state of Keras and TensorFlow it has.
            self._compiled.get_concrete_function(iterator, self._zero)

    @classmethod
    def of(
        cls,
        model: keras.Model,
        first: Callable[[], tuple[Any, Any]],
        fetch: Sequence[str] | None,
    ) -> Self:
        """Returns the step of a model, the same one until it is compiled again.

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
        assert model is not None  # whoever calls a step holds the model
        return model

    def new_metrics(self) -> list[tf.Tensor]:
        """Returns the state of metrics that have seen nothing."""
        return list(self._zero)

    def __call__(
        self, iterator: Any, metrics: list[tf.Tensor]
    ) -> tuple[list[tf.Tensor], dict[str, tf.Tensor]]:
        """Trains on the next batch.

        Args:
            iterator: Iterator of `(features, label)` or `(features, label, weight)`.
            metrics: The caller's state of the metrics.

        Returns:
            The new state, and the means of fetched outputs.

        Raises:
            tf.errors.OutOfRangeError: The iterator has ended.
        """
        return self._compiled(iterator, metrics)

    def merge(
        self, states: Iterable[Sequence[tf.Tensor]]
    ) -> dict[str, np.ndarray]:
        """Sets the model's metrics to the sum of states; returns their results."""
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
        """Trains on the next batch, not compiled."""
        batch = iterator.get_next()
        # At the end of the data nothing runs, what needs no batch included:
        # without it `iterations` would count one step more.
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
        # Of the call; the others are computed by compute_loss.
        added = model.losses[: len(model.losses) - len(regularized)]
        # Copies, which no layer knows as its own beside the model.
        added = [tf.identity(loss) for loss in added]
        mapping = list(zip(self._metrics, metrics, strict=True))
        mapping += [(v, v.value) for v in regularized]
        # In the scope the metrics are the caller's, and losses of the call and
        # values of weights are out of sight.
        with keras.StatelessScope(mapping, collect_losses=True) as scope:
            if added:
                # That of a functional model itself takes none.
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
        for variable in model.non_trainable_variables:
            value = scope.get_current_value(variable)
            if id(variable) not in known and value is not None:
                variable.assign(value)  # by a compute_loss of the user's own
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
    """Compiles a step as Keras does, whose layers need no AutoGraph."""
    return tf.function(function, reduce_retracing=True, autograph=False)


def check_is_model(model: Any, compiled: bool = True) -> None:
    """Raises TypeError or ValueError unless `model` is a (compiled) Keras model."""
    if not isinstance(model, keras.Model):
        raise TypeError(
            f"`model` must be a keras.Model, found {type(model).__name__}."
        )
    if compiled and not model.compiled:
        raise ValueError(
            "the model has no optimizer; call model.compile() first."
        )


def check_train_step(model: keras.Model, by: str) -> None:
    """Raises ValueError unless it is Keras's; `by` says who runs it."""
    if type(model).train_step is not keras.Model.train_step:
        raise ValueError(
            f"{type(model).__name__} has a `train_step` of its own; {by} run "
            "Keras's, whose metrics can be added up."
        )
    if model.optimizer is None:
        raise ValueError("the model was compiled without an optimizer.")


def accumulates_gradients(model: keras.Model) -> bool:
    """Returns whether the optimizer adds up the gradients of several steps."""
    optimizer = model.optimizer
    while optimizer is not None:
        if optimizer.gradient_accumulation_steps:
            return True
        optimizer = getattr(optimizer, "inner_optimizer", None)
    return False


def call_model(model: keras.Model, x: Any, training: bool) -> Any:
    """Returns the outputs of a model."""
    # A `call` of the user's own may know no `training`.
    takes = "training" in inspect.signature(model.call).parameters
    return model(x, training=training) if takes else model(x)


def _compiled_with(model: keras.Model) -> list[Any]:
    return [model.optimizer, _private.loss_tracker(model)]


def _output(model: keras.Model, name: str, metrics: list[str]) -> Any:
    try:
        output = model.get_layer(name).output
        model.input  # noqa: B018  # only a functional model has one
    except (AttributeError, ValueError) as error:
        raise ValueError(
            f"`fetch` names {name!r}, which is neither one of the metrics "
            f"{metrics} nor a layer of a functional model with one output."
        ) from error
    if tf.nest.is_nested(output):
        raise ValueError(
            f"`fetch` names {name!r}, a layer with several outputs; wanted one."
        )
    return output


_STEPS: weakref.WeakKeyDictionary[keras.Model, TrainingStep] = (
    weakref.WeakKeyDictionary()
)
