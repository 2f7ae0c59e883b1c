"""The signature `evaluate`: metrics of a batch with labels, without state."""

import inspect
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, TypeAlias

import keras
import tensorflow as tf

from lodestar._checks import after
from lodestar.export.input_parts import argument_names, unused
from lodestar.export.signatures import PlainTensors

Metrics: TypeAlias = Mapping[
    str, keras.metrics.Metric | Mapping[str, keras.metrics.Metric]
]
Labels: TypeAlias = tf.TensorSpec | Mapping[str, tf.TensorSpec]

# Metrics whose labels are class numbers, with one axis less than the output.
_OF_CLASS_NUMBERS = (
    keras.metrics.SparseCategoricalAccuracy,
    keras.metrics.SparseCategoricalCrossentropy,
    keras.metrics.SparseTopKCategoricalAccuracy,
)


class Evaluation(NamedTuple):
    """The signature `evaluate` of an export.

    Attributes:
        function: Takes the arguments of `serving_default` and labels, and
            returns metrics.
        specs: Argument -> type.
        labels: Argument -> name of the output whose labels it takes.
    """

    function: Any
    specs: dict[str, tf.TensorSpec]
    labels: dict[str, str]


class _Group(NamedTuple):
    """The metrics of an output.

    Attributes:
        output: Name of the output.
        argument: Argument with its labels.
        labels: Type of its labels.
        metrics: Name in the signature -> metric.
    """

    output: str
    argument: str
    labels: tf.TensorSpec
    metrics: dict[str, keras.metrics.Metric]


def trace_evaluate(
    serve: Callable[[Mapping[str, Any]], Mapping[str, Any]],
    plain: PlainTensors,
    outputs: Mapping[str, Any],
    metrics: Metrics | None,
    labels: Labels | None = None,
) -> Evaluation | None:
    """Returns the signature `evaluate`, or None if `metrics` is None.

    Each call computes the metrics from their initial state, so calls do not
    affect each other.

    Args:
        serve: Converts name -> input to name -> output.
        plain: The arguments of `serving_default`.
        outputs: Name -> output of `serve`, or its type.
        metrics: Name -> metric; by output if there are several.
        labels: Type of the labels; by output if `metrics` is.

    Raises:
        ValueError: As in `save`.
    """
    if metrics is None:
        if labels is not None:
            raise ValueError("`labels` requires `metrics`.")
        return None
    groups = _groups(metrics, labels, outputs, plain)

    @tf.function(autograph=False)
    def evaluate(**tensors: Any) -> dict[str, tf.Tensor]:
        given = {group.output: tensors.pop(group.argument) for group in groups}
        served = serve(plain.unflatten(tensors))
        results = {}
        for group in groups:
            output = served[group.output]
            check = tf.debugging.assert_equal(
                tf.shape(given[group.output])[0],
                tf.shape(output)[0],
                f"`{group.argument}` must have a row for each example",
            )
            y_true = after(check, given[group.output])
            for name, metric in group.metrics.items():
                results[name] = _result(name, metric, group, y_true, output)
        return results

    specs = plain.specs | {
        group.argument: tf.TensorSpec(
            group.labels.shape, group.labels.dtype, name=group.argument
        )
        for group in groups
    }
    return Evaluation(
        evaluate.get_concrete_function(**specs),
        specs,
        {group.argument: group.output for group in groups},
    )


def _groups(
    metrics: Metrics,
    labels: Labels | None,
    outputs: Mapping[str, Any],
    plain: PlainTensors,
) -> list[_Group]:
    """Returns the checked metrics and labels by output."""
    if not isinstance(metrics, Mapping) or not metrics:
        raise ValueError(
            "`metrics` must map names to metrics, such as {'auc': "
            f"keras.metrics.AUC()}}, got {metrics!r}."
        )
    flat = len(outputs) == 1 and not any(
        isinstance(x, Mapping) for x in metrics.values()
    )
    if flat:
        (output,) = outputs
        metrics = {output: metrics}
        labels = {} if labels is None else {output: labels}
    else:
        _check_by_output(metrics, labels, outputs)
    given = dict(labels or {})
    arguments = argument_names(
        "labels" if flat else f"labels_{output}" for output in metrics
    )
    groups: list[_Group] = []
    taken: list[str] = [*plain.specs]
    names: set[str] = set()
    for (output, of_output), argument in zip(
        metrics.items(), arguments.values(), strict=True
    ):
        named = {}
        for name, metric in of_output.items():
            _check_metric(name, metric)
            full = name if flat else f"{output}_{name}"
            if full in names:
                raise ValueError(
                    f"`metrics` has two metrics {full!r}. Rename one of them."
                )
            names.add(full)
            named[full] = metric
        spec = _default_labels(output, outputs[output], named)
        if output in given:
            spec = _checked_labels(output, given[output])
        taken.append(unused(argument, taken))
        groups.append(_Group(output, taken[-1], spec, named))
    return groups


def _check_by_output(
    metrics: Metrics, labels: Any, outputs: Mapping[str, Any]
) -> None:
    """Raises ValueError unless `metrics` and `labels` are by output."""
    known = sorted(outputs)
    if not all(isinstance(x, Mapping) for x in metrics.values()):
        raise ValueError(
            f"`metrics` must map each of the outputs {known} that has metrics "
            "to a mapping of names to metrics, such as "
            f"{{{known[0]!r}: {{'auc': keras.metrics.AUC()}}}}, got "
            f"{dict(metrics)!r}."
        )
    for output, of_output in metrics.items():
        if output not in outputs:
            raise ValueError(
                f"`metrics` has the output {output!r}, but the model has "
                f"{known}."
            )
        if not of_output:
            raise ValueError(f"`metrics[{output!r}]` must not be empty.")
    if not isinstance(labels, Mapping | None):
        raise ValueError(
            "`labels` must map outputs to types, as `metrics` does, got "
            f"{labels!r}."
        )
    if unknown := sorted(set(labels or {}) - set(metrics)):
        raise ValueError(
            f"`labels` has {unknown}, but `metrics` has the outputs "
            f"{sorted(metrics)}."
        )


def _check_metric(name: Any, metric: Any) -> None:
    identifier = (
        isinstance(name, str) and name.isascii() and name.isidentifier()
    )
    if not identifier:
        raise ValueError(
            "A name in `metrics` must consist of ASCII letters, digits and `_`, "
            f"and start with a letter or `_`, got {name!r}."
        )
    if not isinstance(metric, keras.metrics.Metric):
        raise ValueError(
            f"The metric {name!r} must be a keras.metrics.Metric, got "
            f"{metric!r}."
        )
    parameters = list(inspect.signature(metric.update_state).parameters)
    if parameters[1:2] == ["sample_weight"]:
        raise ValueError(
            f"The metric {name!r}, a {type(metric).__name__}, does not compare "
            "outputs with labels. Use a metric whose `update_state` takes both."
        )


def _default_labels(
    name: str, output: Any, metrics: Mapping[str, keras.metrics.Metric]
) -> tf.TensorSpec:
    """Returns the type of the labels of an output."""
    spec = output
    if not isinstance(spec, tf.TensorSpec):
        spec = tf.type_spec_from_value(output)
    if not isinstance(spec, tf.TensorSpec) or not spec.shape.rank:
        raise ValueError(
            f"The output {name!r} must be a dense tensor with a batch axis to "
            f"have metrics, got {spec}."
        )
    if any(isinstance(x, _OF_CLASS_NUMBERS) for x in metrics.values()):
        return tf.TensorSpec(spec.shape[:-1], tf.int64)
    return tf.TensorSpec(spec.shape, tf.float32)


def _checked_labels(output: str, spec: Any) -> tf.TensorSpec:
    if not isinstance(spec, tf.TensorSpec) or not spec.shape.rank:
        raise ValueError(
            f"The labels of {output!r} must be a tf.TensorSpec with a batch "
            f"axis, such as tf.TensorSpec([None], tf.int64), got {spec!r}."
        )
    return spec


def _result(
    name: str,
    metric: keras.metrics.Metric,
    group: _Group,
    y_true: tf.Tensor,
    y_pred: tf.Tensor,
) -> tf.Tensor:
    """Returns a metric of a batch alone."""
    graph = tf.compat.v1.get_default_graph()
    before = len(graph.captures)
    try:
        state = metric.stateless_reset_state()
        state = metric.stateless_update_state(state, y_true, y_pred)
        result = metric.stateless_result(state)
    except Exception as error:
        raise ValueError(
            f"The metric {name!r} does not accept the output {group.output!r}, "
            f"{y_pred.dtype.name} {y_pred.shape}, with labels "
            f"{y_true.dtype.name} {y_true.shape}. Set `labels` to the type of "
            f"the labels. The error was: {error}"
        ) from error
    if any(
        outer.dtype in (tf.resource, tf.variant)
        for outer, _ in graph.captures[before:]
    ):
        raise ValueError(
            f"The metric {name!r}, a {type(metric).__name__}, has state that "
            "its `reset_state` does not set, so calls would affect each other. "
            "Compute it outside of the export."
        )
    if not isinstance(result, tf.Tensor):
        raise ValueError(
            f"The metric {name!r} must return a tensor, got a "
            f"{type(result).__name__}."
        )
    return result
