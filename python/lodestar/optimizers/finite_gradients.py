"""Finds gradients that are not finite, before a step writes anything.

The op that updates tables checks the gradients of rows and names the id. This
module checks the gradients of dense weights, and row gradients that the op
does not see because of clipping or other processes.
"""

from collections.abc import Iterable, Sequence
from typing import Any

import tensorflow as tf

from lodestar.embedding.table_variable import TableVariable
from lodestar.optimizers import gradients as gradients_lib
from lodestar.optimizers import replicas
from lodestar.optimizers.gradients import Gradient

# As in tf_ops/core/table/table.h.
_WHY = (
    "The loss or a gradient was NaN or infinite. Look for NaN in labels, "
    "sample weights and other inputs, and for a learning rate that is too "
    'high. Pass nonfinite="skip" to the optimizer to skip such {skipped}.'
)


def check_by(
    optimizer: Any,
    pairs: Iterable[tuple[Gradient, Any]],
    in_all: bool = False,
) -> list[tf.Tensor]:
    """Raises InvalidArgumentError if a gradient is not finite, if `optimizer` does so.

    In a graph, returns the operations to wait for before the step writes.

    Args:
        optimizer: The optimizer of the step.
        pairs: Gradients and their variables or tables.
        in_all: Whether all replicas raise if the gradient of any is not finite.
            They must call this with gradients of the same variables.
    """
    if getattr(optimizer, "nonfinite", "pass") != "raise":
        return []
    wrong, messages = [], []
    for gradient, variable in pairs:
        if gradient is None:
            continue
        if isinstance(gradient, tf.IndexedSlices):
            gradient = gradient.values
        values = tf.convert_to_tensor(gradient)
        if values.dtype.is_floating:
            # A tenth of the time of check_numerics on the whole gradient.
            wrong.append(~tf.reduce_all(tf.math.is_finite(values)))
            messages.append(_message(variable))
    if in_all and wrong:
        numbers = replicas.sum_of(tf.cast(tf.stack(wrong), tf.float32))
        wrong = tf.unstack(numbers > 0, num=len(wrong))
    return [
        tf.debugging.check_numerics(tf.where(x, float("nan"), 0.0), message)
        for x, message in zip(wrong, messages, strict=True)
    ]


def _message(variable: Any) -> str:
    what, skipped = f"table '{variable.name}'", "rows"
    if not isinstance(variable, TableVariable):
        path = getattr(variable, "path", variable.name)
        what, skipped = f"weight '{path}'", "gradients"
    return (
        f"{what}: the gradient is not finite; no row and no weight was "
        f"changed. {_WHY.format(skipped=skipped)}"
    )


def zero_others(gradients: Sequence[Gradient]) -> list[Gradient]:
    """Returns gradients with 0 for the numbers that are not finite."""
    return [
        gradients_lib.map_values(
            lambda g: tf.where(tf.math.is_finite(g), g, tf.zeros_like(g)), g
        )
        for g in gradients
    ]
