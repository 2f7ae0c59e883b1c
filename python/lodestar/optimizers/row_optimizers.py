"""Keras optimizers -> the update rule of the apply op and its numbers.

The op computes Keras's own formulas, row by row and in float32; what depends
on the step alone (Adam's bias correction) is computed here, once a step.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import keras
import tensorflow as tf


class RowUpdate(NamedTuple):
    """Attributes and numbers of one apply.

    Attributes:
        optimizer: Name of the op's update rule.
        slot_inits: What each optimizer slot of a new row starts with.
        hyperparameters: float32 `[K]`: learning rate, weight decay, and what
            the rule wants after them.
    """

    optimizer: str
    slot_inits: list[float]
    hyperparameters: tf.Tensor


# Rule name, slot initial values, and the numbers after learning rate and
# weight decay.
_Rule = tuple[str, list[float], list[Any]]


def _sgd(optimizer: keras.optimizers.SGD, rate: tf.Tensor, step: Any) -> _Rule:
    if not optimizer.momentum:
        return "sgd", [], []
    numbers = [optimizer.momentum, float(optimizer.nesterov)]
    return "sgd_momentum", [0.0], numbers


def _adagrad(
    optimizer: keras.optimizers.Adagrad, rate: tf.Tensor, step: Any
) -> _Rule:
    initial = optimizer.initial_accumulator_value
    return "adagrad", [initial], [optimizer.epsilon]


def _adam(
    optimizer: keras.optimizers.Adam, rate: tf.Tensor, step: Any
) -> _Rule:
    if optimizer.amsgrad:
        raise NotImplementedError(
            f"{_describe(optimizer)} has amsgrad=True, which has no row-wise "
            "update yet; use amsgrad=False."
        )
    step = tf.cast(step + 1, tf.float32)
    power_1 = tf.pow(tf.constant(optimizer.beta_1, tf.float32), step)
    power_2 = tf.pow(tf.constant(optimizer.beta_2, tf.float32), step)
    alpha = rate * tf.sqrt(1.0 - power_2) / (1.0 - power_1)
    # 1 - beta in double: in float32 it would be off by 1e-5.
    numbers = [
        1.0 - optimizer.beta_1,
        1.0 - optimizer.beta_2,
        optimizer.epsilon,
        alpha,
    ]
    return "adam", [0.0, 0.0], numbers


def _ftrl(
    optimizer: keras.optimizers.Ftrl, rate: tf.Tensor, step: Any
) -> _Rule:
    numbers = [
        optimizer.learning_rate_power,
        optimizer.l1_regularization_strength,
        optimizer.l2_regularization_strength,
        optimizer.l2_shrinkage_regularization_strength,
        optimizer.beta,
    ]
    return "ftrl", [optimizer.initial_accumulator_value, 0.0], numbers


# By exact type: a subclass may update differently.
_RULES: dict[type, Callable[..., _Rule]] = {
    keras.optimizers.Adagrad: _adagrad,
    keras.optimizers.Adam: _adam,
    keras.optimizers.AdamW: _adam,  # Adam with a default weight decay
    keras.optimizers.Ftrl: _ftrl,
    keras.optimizers.SGD: _sgd,
}


def _describe(optimizer: keras.optimizers.Optimizer) -> str:
    return f"keras.optimizers.{type(optimizer).__name__}"


def check_supported(optimizer: keras.optimizers.Optimizer) -> None:
    """Raises NotImplementedError unless rows can be updated by `optimizer`."""
    if type(optimizer) not in _RULES:
        supported = ", ".join(sorted(t.__name__ for t in _RULES))
        raise NotImplementedError(
            f"{_describe(optimizer)} has no row-wise update for dynamic "
            f"embeddings; supported: {supported}. A layer can have one of its "
            "own: DynamicEmbedding(..., optimizer='adagrad')."
        )
    if optimizer.use_ema:
        raise NotImplementedError(
            f"{_describe(optimizer)} has use_ema=True: a table keeps no moving "
            "average of its rows. Set use_ema=False, or give the layer an "
            "optimizer of its own without it."
        )
    if optimizer.gradient_accumulation_steps:
        raise NotImplementedError(
            f"{_describe(optimizer)} has gradient_accumulation_steps="
            f"{optimizer.gradient_accumulation_steps}, which tables do not "
            "support; use a larger batch, or sum gradients in a custom loop "
            "and apply them together."
        )


def row_update(
    optimizer: keras.optimizers.Optimizer,
    learning_rate: Any,
    step: Any,
    weight_decay: bool,
) -> RowUpdate:
    """Returns how `optimizer` updates the rows of a table in one step.

    Args:
        optimizer: A Keras optimizer.
        learning_rate: Scalar, of this step.
        step: Integer scalar, the number of steps already made.
        weight_decay: Whether the optimizer's weight decay is for this table.

    Raises:
        NotImplementedError: It has no row-wise update.
    """
    check_supported(optimizer)
    rate = tf.cast(learning_rate, tf.float32)
    name, slot_inits, numbers = _RULES[type(optimizer)](optimizer, rate, step)
    decay = optimizer.weight_decay if weight_decay else None
    return RowUpdate(
        name,
        slot_inits,
        tf.stack([rate, decay or 0.0, *numbers]),
    )
