"""Finds gradients that are not finite, before a step writes anything.

The op that updates tables checks the gradients of rows and names the id. Here
are the gradients of dense weights, and those of rows that clipping or other
processes hide from the op.
"""

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import tensorflow as tf

from lodestar.embedding.table_variable import as_table
from lodestar.optimizers import gradients as gradients_lib
from lodestar.optimizers import replicas
from lodestar.optimizers.gradients import Gradient

# As in tf_ops/core/table/table.h.
_WHY = (
    "The loss or a gradient was NaN or infinite. Look for NaN in labels, "
    "sample weights and other inputs, and for a learning rate that is too "
    'high. Pass nonfinite="skip" to the optimizer to skip such {skipped}.'
)


class _Found(NamedTuple):
    values: tf.Tensor
    message: str


def _found(pairs: Iterable[tuple[Gradient, Any]]) -> list[_Found]:
    """Returns the gradients of variables that can be other than finite."""
    found = []
    for gradient, variable in pairs:
        if gradient is None:
            continue
        values = tf.convert_to_tensor(
            gradient.values
            if isinstance(gradient, tf.IndexedSlices)
            else gradient
        )
        if not values.dtype.is_floating:
            continue
        table = as_table(variable)
        what, skipped = f"weight '{_path(variable)}'", "gradients"
        if table is not None:
            what, skipped = f"table '{table.name}'", "rows"
        found.append(
            _Found(
                values,
                f"{what}: the gradient is not finite; no row and no weight was "
                f"changed. {_WHY.format(skipped=skipped)}",
            )
        )
    return found


def _path(variable: Any) -> str:
    path: str = getattr(variable, "path", variable.name)
    return path


def check(pairs: Iterable[tuple[Gradient, Any]]) -> list[tf.Tensor]:
    """Raises InvalidArgumentError if a gradient is not finite.

    In a graph, returns the operations to wait for before the step writes.
    """
    return [
        # A tenth of the time of check_numerics on the whole gradient.
        _refuse(~tf.reduce_all(tf.math.is_finite(x.values)), x.message)
        for x in _found(pairs)
    ]


def _refuse(wrong: tf.Tensor, message: str) -> tf.Tensor:
    return tf.debugging.check_numerics(
        tf.where(wrong, float("nan"), 0.0), message
    )


def check_by(
    optimizer: Any, pairs: Iterable[tuple[Gradient, Any]]
) -> list[tf.Tensor]:
    """As `check`, if `optimizer` raises such errors."""
    if getattr(optimizer, "nonfinite", "pass") != "raise":
        return []
    return check(pairs)


def check_in_all(
    pairs: Iterable[tuple[Gradient, Any]],
) -> list[tf.Tensor]:
    """As `check`, in all replicas if the gradient of any is not finite.

    All replicas must call it with gradients of the same variables.
    """
    found = _found(pairs)
    if not found:
        return []
    wrong = replicas.sum_of(
        tf.stack(
            [
                tf.reduce_sum(tf.cast(~tf.math.is_finite(x.values), tf.float32))
                for x in found
            ]
        )
    )
    return [
        _refuse(number > 0, x.message)
        for number, x in zip(
            tf.unstack(wrong, num=len(found)), found, strict=True
        )
    ]


def zero_others(gradients: Sequence[Gradient]) -> list[Gradient]:
    """Returns gradients with 0 for the numbers that are not finite."""
    return [
        gradients_lib.map_values(
            lambda g: tf.where(tf.math.is_finite(g), g, tf.zeros_like(g)), g
        )
        for g in gradients
    ]
