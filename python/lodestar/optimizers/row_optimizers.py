"""Translates Keras optimizers to update rules of the apply op.

Optimizers without a rule run unfused, or are rejected. The op computes Keras's
formulas per row in float32. Numbers that depend only on the step, such as Adam's
bias correction, are computed here once per step.
"""

from collections.abc import Callable
from typing import Any, NamedTuple, NoReturn

import keras
import tensorflow as tf

from lodestar.embedding.table_variable import TableVariable
from lodestar.optimizers.unfused import NotRowWiseError, UnfusedOptimizer


class RowWiseAdagrad(keras.optimizers.Adagrad):
    """The Keras class of `lodestar.optimizers.RowWiseAdagrad`.

    Only its rule for rows differs from Adagrad.
    """


class RowUpdate(NamedTuple):
    """Update rule of one apply.

    `hyperparameters`, float32 `[K]`, has the learning rate, the weight decay and the
    numbers of the rule.
    """

    optimizer: str
    slot_inits: list[float]
    hyperparameters: tf.Tensor

    @property
    def slot_names(self) -> list[str]:
        """Empty: the op has the names of its own slots."""
        return []


class Step(NamedTuple):
    """Inputs of a rule besides the optimizer, float32 scalars.

    `number` counts steps from 1. `u_product` is Nadam's product of this step.
    """

    rate: tf.Tensor
    number: tf.Tensor
    u_product: tf.Tensor | None


# Rule name, initial slot values, and the hyperparameters after learning rate and
# weight decay, in the order of the op's rule.
_Rule = tuple[str, list[float], dict[str, Any]]


def _sgd(optimizer: keras.optimizers.SGD, step: Step) -> _Rule:
    if not optimizer.momentum:
        return "sgd", [], {}
    numbers = {
        "momentum": optimizer.momentum,
        "nesterov": float(optimizer.nesterov),
    }
    return "sgd_momentum", [0.0], numbers


def _adagrad(optimizer: keras.optimizers.Adagrad, step: Step) -> _Rule:
    initial = optimizer.initial_accumulator_value
    if not initial >= 0:  # rows would become NaN
        raise ValueError(
            f"`initial_accumulator_value` of {optimizer.name} must be at least "
            f"0, got {initial!r}."
        )
    return "adagrad", [initial], {"epsilon": optimizer.epsilon}


def _row_wise_adagrad(optimizer: RowWiseAdagrad, step: Step) -> _Rule:
    name, initial, numbers = _adagrad(optimizer, step)
    return f"row_wise_{name}", initial, numbers


def _adam(optimizer: keras.optimizers.Adam, step: Step) -> _Rule:
    power_1 = _power(optimizer.beta_1, step.number)
    power_2 = _power(optimizer.beta_2, step.number)
    # 1 - beta in float64, as in Keras: float32 has an error of 1e-5.
    numbers = {
        "1 - beta_1": 1.0 - optimizer.beta_1,
        "1 - beta_2": 1.0 - optimizer.beta_2,
        "epsilon": optimizer.epsilon,
        "alpha": step.rate * tf.sqrt(1.0 - power_2) / (1.0 - power_1),
    }
    if optimizer.amsgrad:
        return "adam_amsgrad", [0.0, 0.0, 0.0], numbers
    return "adam", [0.0, 0.0], numbers


def _rmsprop(optimizer: keras.optimizers.RMSprop, step: Step) -> _Rule:
    name = "rmsprop"
    if optimizer.momentum > 0:
        name += "_momentum"
    if optimizer.centered:
        name += "_centered"
    numbers = {
        "rho": optimizer.rho,
        "1 - rho": 1.0 - optimizer.rho,
        "epsilon": optimizer.epsilon,
        "momentum": optimizer.momentum,
    }
    return name, [0.0] * len(name.split("_")), numbers


def _adadelta(optimizer: keras.optimizers.Adadelta, step: Step) -> _Rule:
    numbers = {
        "rho": optimizer.rho,
        "1 - rho": 1.0 - optimizer.rho,
        "epsilon": optimizer.epsilon,
    }
    return "adadelta", [0.0, 0.0], numbers


def _adamax(optimizer: keras.optimizers.Adamax, step: Step) -> _Rule:
    numbers = {
        "1 - beta_1": 1.0 - optimizer.beta_1,
        "beta_2": optimizer.beta_2,
        "epsilon": optimizer.epsilon,
        "1 - beta_1^t": 1.0 - _power(optimizer.beta_1, step.number),
    }
    return "adamax", [0.0, 0.0], numbers


def _nadam(optimizer: keras.optimizers.Nadam, step: Step) -> _Rule:
    beta_1 = tf.constant(optimizer.beta_1, tf.float32)
    beta_2 = tf.constant(optimizer.beta_2, tf.float32)
    numbers = {
        "1 - beta_1": 1.0 - beta_1,  # In float32, as in Keras's Nadam.
        "1 - beta_2": 1.0 - beta_2,
        "epsilon": optimizer.epsilon,
        "1 - beta_2^t": 1.0 - _power(beta_2, step.number),
        "u_t": beta_1 * _nadam_decay(step.number),
        "u_(t+1)": beta_1 * _nadam_decay(step.number + 1.0),
        "u_product": step.u_product,
    }
    return "nadam", [0.0, 0.0], numbers


def _lion(optimizer: keras.optimizers.Lion, step: Step) -> _Rule:
    beta_1 = tf.constant(optimizer.beta_1, tf.float32)
    beta_2 = tf.constant(optimizer.beta_2, tf.float32)
    numbers = {
        "beta_1": beta_1,
        "1 - beta_1": 1.0 - beta_1,
        "beta_2": beta_2,
        "1 - beta_2": 1.0 - beta_2,
    }
    return "lion", [0.0], numbers


def _ftrl(optimizer: keras.optimizers.Ftrl, step: Step) -> _Rule:
    numbers = {
        "learning_rate_power": optimizer.learning_rate_power,
        "l1": optimizer.l1_regularization_strength,
        "l2": optimizer.l2_regularization_strength,
        "l2_shrinkage": optimizer.l2_shrinkage_regularization_strength,
        "beta": optimizer.beta,
    }
    return "ftrl", [optimizer.initial_accumulator_value, 0.0], numbers


def _power(base: Any, exponent: tf.Tensor) -> tf.Tensor:
    return tf.pow(tf.cast(base, tf.float32), exponent)


def _nadam_decay(number: tf.Tensor) -> tf.Tensor:
    return 1.0 - 0.5 * _power(0.96, number)


_RULES: dict[type | None, Callable[[Any, Step], _Rule]] = {
    keras.optimizers.Adadelta: _adadelta,
    keras.optimizers.Adagrad: _adagrad,
    keras.optimizers.Adam: _adam,
    keras.optimizers.AdamW: _adam,  # Adam with a default weight decay.
    keras.optimizers.Adamax: _adamax,
    keras.optimizers.Ftrl: _ftrl,
    keras.optimizers.Lion: _lion,
    keras.optimizers.Nadam: _nadam,
    keras.optimizers.RMSprop: _rmsprop,
    keras.optimizers.SGD: _sgd,
    RowWiseAdagrad: _row_wise_adagrad,
}
# Reasons, by name, because some are not in every Keras release.
_NOT_ROW_WISE = {
    "Adafactor": "its second moments are factored over all rows of a matrix",
    "Lamb": "its step is scaled by the norm of the whole matrix",
    "LossScaleOptimizer": "it wraps another optimizer; use lodestar.optimizers."
    "LossScaleOptimizer instead",
    "MultiOptimizer": "it chooses an optimizer by variable; use `optimizer` of a "
    "layer for its table instead",
    "Muon": "it orthogonalizes the whole matrix",
    "ScheduleFreeAdamW": "its momentum starts as a copy of the whole matrix",
}
# Overrides that keep the fused update of the base class.
_HARMLESS = {"from_config", "get_config", "learning_rate"}
# Overrides that make an optimizer unfused; others are rejected.
_UNFUSED = {"assign", "assign_add", "assign_sub", "build", "update_step"}


def _describe(optimizer: keras.optimizers.Optimizer) -> str:
    cls = _classes(optimizer)[0]
    known = getattr(keras.optimizers, cls.__name__, None) is cls
    return f"keras.optimizers.{cls.__name__}" if known else cls.__name__


def _refuse(optimizer: keras.optimizers.Optimizer, why: str) -> NoReturn:
    supported = ", ".join(sorted(t.__name__ for t in _RULES if t))
    raise NotImplementedError(
        f"{_describe(optimizer)} has no row-wise update for dynamic "
        f"embeddings: {why}. Row-wise optimizers are {supported}, and your own "
        "optimizers that update each row independently. To keep it for the dense "
        "weights, give the table another optimizer: "
        "DynamicEmbedding(..., optimizer='adagrad')."
    )


def _classes(optimizer: keras.optimizers.Optimizer) -> list[type]:
    """Returns the bases, without those that only add the training of tables."""
    return [
        cls
        for cls in type(optimizer).__mro__
        if cls in _RULES or not cls.__module__.startswith("lodestar.")
    ]


def _rule_type(optimizer: keras.optimizers.Optimizer) -> type | None:
    """Returns the key of `optimizer` in _RULES, or None if it is unfused."""
    classes = _classes(optimizer)
    for cls in classes:
        if getattr(keras.optimizers, cls.__name__, None) is cls:
            if cls.__name__ in _NOT_ROW_WISE:
                _refuse(optimizer, _NOT_ROW_WISE[cls.__name__])
    base = next(
        c for c in classes if c in _RULES or c is keras.optimizers.Optimizer
    )
    changed = {
        name
        for subclass in classes[: classes.index(base)]
        for name in vars(subclass)
        if hasattr(base, name)
        and not name.startswith("__")
        and name not in _HARMLESS
    }
    lost = [
        name
        for name in changed - _UNFUSED
        if hasattr(keras.optimizers.Optimizer, name)
    ] + [
        name
        for name, value in vars(optimizer).items()
        if callable(value) and callable(getattr(type(optimizer), name, None))
    ]
    if lost:
        names = ", ".join(f"`{name}`" for name in sorted(lost))
        _refuse(
            optimizer,
            f"it overrides {names} of {base.__name__}, which applies to variables "
            "only; a subclass may override `build` and `update_step`",
        )
    if changed and base is RowWiseAdagrad:
        names = ", ".join(f"`{name}`" for name in sorted(changed))
        _refuse(
            optimizer,
            f"it overrides {names}, but the rows of RowWiseAdagrad have one "
            "accumulator each, which only its own update can train",
        )
    return base if base in _RULES and not changed else None


def is_unfused(optimizer: keras.optimizers.Optimizer) -> bool:
    """Returns whether the optimizer's own `update_step` updates rows."""
    return _rule_type(optimizer) is None


def make_unfused(
    optimizer: keras.optimizers.Optimizer, table: TableVariable
) -> UnfusedOptimizer:
    """Returns `optimizer` for the rows of one table."""
    try:
        return UnfusedOptimizer(optimizer, table)
    except NotRowWiseError as error:
        _refuse(optimizer, str(error))


def check_supported(
    optimizer: keras.optimizers.Optimizer, own: bool = False
) -> None:
    """Raises NotImplementedError if `optimizer` cannot update rows.

    `own` is whether it is the optimizer of one table instead of the model's.
    """
    _rule_type(optimizer)
    if optimizer.use_ema:
        raise NotImplementedError(
            f"{_describe(optimizer)} has use_ema=True, but a table has no moving "
            "averages of its rows. Set use_ema=False, or give the table another "
            "optimizer without it."
        )
    clipping = [
        name
        for name in ("clipnorm", "clipvalue", "global_clipnorm")
        if getattr(optimizer, name)
    ]
    steps = optimizer.gradient_accumulation_steps
    if own:
        given = clipping + [
            name
            for name in ("loss_scale_factor", "gradient_accumulation_steps")
            if getattr(optimizer, name)
        ]
        if given:
            raise NotImplementedError(
                f"{_describe(optimizer)}, the optimizer of a table, has "
                f"{given[0]}={getattr(optimizer, given[0])}. Set it on the "
                "model's optimizer, one of lodestar.optimizers, which clips, "
                "unscales and accumulates the gradients of all layers."
            )
    elif steps and clipping:
        raise NotImplementedError(
            f"{_describe(optimizer)} has gradient_accumulation_steps={steps} "
            f"and {clipping[0]}={getattr(optimizer, clipping[0])}, but tables "
            "accumulate gradients only without clipping. Use a larger batch "
            "instead of accumulation, or clip each gradient yourself with "
            "lodestar.optimizers.clip_by_global_norm."
        )


def has_u_product(optimizer: keras.optimizers.Optimizer) -> bool:
    """Returns whether `optimizer` has a product that each step advances."""
    return _rule_type(optimizer) is keras.optimizers.Nadam


def next_u_product(
    optimizer: keras.optimizers.Nadam, u_product: tf.Tensor, step: Any
) -> tf.Tensor:
    """Returns Nadam's product after step number `step` + 1."""
    number = tf.cast(step + 1, tf.float32)
    return u_product * optimizer.beta_1 * _nadam_decay(number)


def row_update(
    optimizer: keras.optimizers.Optimizer,
    step: Any,
    weight_decay: bool,
    u_product: tf.Tensor | None = None,
) -> RowUpdate:
    """Returns the update rule of a table after `step` steps.

    It has the current learning rate, the weight decay if `weight_decay` is set, and
    the result of `next_u_product` if `has_u_product`.
    """
    rule = _RULES[_rule_type(optimizer)]
    rate = current_learning_rate(optimizer)
    number = tf.cast(step + 1, tf.float32)
    name, slot_inits, numbers = rule(optimizer, Step(rate, number, u_product))
    decay = optimizer.weight_decay if weight_decay else None
    return RowUpdate(
        name,
        [float(init) for init in slot_inits],
        tf.stack([rate, decay or 0.0, *numbers.values()]),
    )


def fused_slots(
    optimizer: keras.optimizers.Optimizer,
) -> tuple[str, list[float]]:
    """Returns the name of an optimizer in the op and its initial slot values."""
    # The numbers of the step do not matter here.
    one = tf.constant(1.0)
    rule = _RULES[_rule_type(optimizer)]
    name, slot_inits, _ = rule(optimizer, Step(one, one, one))
    return name, [float(init) for init in slot_inits]


def current_learning_rate(optimizer: keras.optimizers.Optimizer) -> tf.Tensor:
    """Returns the learning rate of this step, a float32 scalar."""
    return tf.cast(tf.convert_to_tensor(optimizer.learning_rate), tf.float32)
