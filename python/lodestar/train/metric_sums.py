"""Finds metrics that cannot be merged by adding the states of threads or workers.

Keras merges the variables of metrics by adding them, whatever a metric does with
them. That is right for variables to which each batch adds a number that does not
depend on the batches before, which the graph of an update shows.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import keras
import tensorflow as tf

_SAME = ("Identity", "Cast", "EnsureShape", "CheckNumerics", "Snapshot")
_SUMS = ("Add", "AddV2", "AddN")


def check(
    metrics: Sequence[keras.metrics.Metric],
    variables: Sequence[keras.Variable],
    update: Callable[[list[tf.Tensor], Any], Sequence[tf.Tensor]],
    batch: Any,
    where: str,
) -> None:
    """Raises ValueError unless all metrics are sums over batches.

    Args:
        metrics: The metrics.
        variables: Their variables.
        update: Returns the values of `variables` after a batch from those before.
        batch: Its specs.
        where: What several threads or workers are called in errors.
    """
    function = tf.function(
        lambda state, batch: list(update(state, batch)), autograph=False
    )
    made = function.get_concrete_function(
        [tf.TensorSpec(v.shape, v.dtype) for v in variables], batch
    )
    given = made.inputs[: len(variables)]
    updated = made.structured_outputs
    graph = _Graph(given)
    for variable, before, after in zip(variables, given, updated, strict=True):
        if variable.aggregation in ("none", "sum") and graph.adds(
            before, after
        ):
            continue
        metric = _owner(metrics, variable)
        raise ValueError(
            f"The metric '{metric.name}' ({type(metric).__name__}) cannot be used "
            f"with {where}, which add up what each of them has counted: its "
            f"variable '{variable.path}' is not a sum over batches. Use a metric "
            "whose update only adds to its variables (self.total.assign_add), "
            "such as a keras.metrics.Mean, or remove it from `compile` and "
            "evaluate it in one process afterwards."
        )


def _owner(
    metrics: Iterable[keras.metrics.Metric], variable: keras.Variable
) -> keras.metrics.Metric:
    """Returns the innermost metric with `variable`."""
    for metric in metrics:
        if any(v is variable for v in metric.variables):
            inner = getattr(metric, "metrics", ())
            if any(v is variable for m in inner for v in m.variables):
                return _owner(inner, variable)
            return metric
    raise AssertionError(variable.path)


class _Graph:
    """How tensors of a graph depend on some of its inputs."""

    def __init__(self, inputs: Sequence[tf.Tensor]):
        self._depends = {x.ref(): True for x in inputs}

    def depends(self, tensor: tf.Tensor) -> bool:
        """Whether a tensor depends on any of the inputs."""
        waiting = [tensor]
        while waiting:
            top = waiting[-1]
            inputs = top.op.inputs
            unknown = [x for x in inputs if x.ref() not in self._depends]
            if top.ref() in self._depends or not unknown:
                self._depends.setdefault(
                    top.ref(), any(self._depends[x.ref()] for x in inputs)
                )
                waiting.pop()
            else:
                waiting += unknown
        return self._depends[tensor.ref()]

    def adds(self, before: tf.Tensor, after: tf.Tensor) -> bool:
        """Whether `after` is `before` plus a term that depends on no input."""
        if after is before:
            return True
        kind, inputs = after.op.type, list(after.op.inputs)
        if kind in _SAME:
            return self.adds(before, inputs[0])
        if kind in ("Select", "SelectV2"):
            condition, *values = inputs
            return not self.depends(condition) and all(
                self.adds(before, x) for x in values
            )
        if kind in ("Sub", "TensorScatterAdd"):
            first, *others = inputs
        elif kind in _SUMS:
            first = next((x for x in inputs if self.depends(x)), inputs[0])
            others = [x for x in inputs if x is not first]
            if len(others) != len(inputs) - 1:  # twice the same
                return False
        else:
            return False
        return not any(map(self.depends, others)) and self.adds(before, first)
