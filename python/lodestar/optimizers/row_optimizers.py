"""Keras optimizers -> the update rule of the apply op and its numbers.

Optimizers without a rule are replayed, or refused.

The op computes Keras's own formulas, row by row and in float32; what depends
on the step alone (Adam's bias correction) is computed here, once a step.
"""

from collections.abc import Callable
from typing import Any, NamedTuple, NoReturn

import keras
import tensorflow as tf

from lodestar.embedding.table_variable import TableVariable
from lodestar.optimizers.replay import NotRowWiseError, Replay


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

    @property
    def slot_names(self) -> list[str]:
        """None given: the op knows those of its rules."""
        return []


class Step(NamedTuple):
    """What a rule may depend on besides the optimizer.

    Attributes:
        rate: float32 scalar, the learning rate.
        number: float32 scalar, 1 in the first step.
        u_product: float32 scalar, Nadam's product of this step; else None.
    """

    rate: tf.Tensor
    number: tf.Tensor
    u_product: tf.Tensor | None


# Rule name, slot initial values, and the hyperparameters after learning rate
# and weight decay, in the order and by the names of the op's rule.
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
    return "adagrad", [initial], {"epsilon": optimizer.epsilon}


def _adam(optimizer: keras.optimizers.Adam, step: Step) -> _Rule:
    power_1 = _power(optimizer.beta_1, step.number)
    power_2 = _power(optimizer.beta_2, step.number)
    # 1 - beta in double, as Keras has it: in float32 it is off by 1e-5.
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
        "1 - beta_1": 1.0 - beta_1,  # in float32, as Keras has it here
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
    keras.optimizers.AdamW: _adam,  # Adam with a default weight decay
    keras.optimizers.Adamax: _adamax,
    keras.optimizers.Ftrl: _ftrl,
    keras.optimizers.Lion: _lion,
    keras.optimizers.Nadam: _nadam,
    keras.optimizers.RMSprop: _rmsprop,
    keras.optimizers.SGD: _sgd,
}
# Why they are not row-wise. By name: some are not in every Keras release.
_NOT_ROW_WISE = {
    "Adafactor": "its second moments are factored over all rows of a matrix",
    "Lamb": "its step is scaled by the norm of the whole matrix",
    "LossScaleOptimizer": "it wraps another optimizer; use lodestar.optimizers."
    "LossScaleOptimizer instead",
    "MultiOptimizer": "it chooses an optimizer by variable; a layer's own "
    "`optimizer` does that for tables",
    "Muon": "it orthogonalises the whole matrix",
    "ScheduleFreeAdamW": "its momentum starts as a copy of the whole matrix",
}
# What a subclass may change and still update rows as its base does.
_HARMLESS = {"from_config", "get_config", "learning_rate"}
# What it may change besides, to be replayed.
_REPLAYED = {"assign", "assign_add", "assign_sub", "build", "update_step"}


def _describe(optimizer: keras.optimizers.Optimizer) -> str:
    cls = next(c for c in type(optimizer).__mro__ if not _is_ours(c))
    known = getattr(keras.optimizers, cls.__name__, None) is cls
    return f"keras.optimizers.{cls.__name__}" if known else cls.__name__


def _refuse(optimizer: keras.optimizers.Optimizer, why: str) -> NoReturn:
    supported = ", ".join(sorted(t.__name__ for t in _RULES if t))
    raise NotImplementedError(
        f"{_describe(optimizer)} has no row-wise update for dynamic "
        f"embeddings: {why}. Row-wise are {supported}, and optimizers of your "
        "own that update each row by itself. To keep it for the dense "
        "weights, give the table an optimizer of its own: "
        "DynamicEmbedding(..., optimizer='adagrad')."
    )


def _is_ours(cls: type) -> bool:
    """Whether a class only adds the training of tables to a Keras class."""
    return cls.__module__.startswith("lodestar.")


def _rule_type(optimizer: keras.optimizers.Optimizer) -> type | None:
    """The key of _RULES that `optimizer` updates rows like; None: replay."""
    classes = [c for c in type(optimizer).__mro__ if not _is_ours(c)]
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
        for name in changed - _REPLAYED
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
            f"it replaces {names} of {base.__name__}, which is for variables "
            "only; a subclass may replace `build` and `update_step`",
        )
    return base if base in _RULES and not changed else None


def is_replayed(optimizer: keras.optimizers.Optimizer) -> bool:
    """Returns whether its own `update_step` runs on the rows of a step.

    Raises:
        NotImplementedError: It has no row-wise update.
    """
    return _rule_type(optimizer) is None


def make_replay(
    optimizer: keras.optimizers.Optimizer, table: TableVariable
) -> Replay:
    """Returns how `optimizer` is replayed on the rows of one table.

    Raises:
        NotImplementedError: `optimizer` cannot be replayed; says why.
    """
    try:
        return Replay(optimizer, table)
    except NotRowWiseError as error:
        _refuse(optimizer, str(error))


def check_supported(
    optimizer: keras.optimizers.Optimizer, own: bool = False
) -> None:
    """Raises NotImplementedError unless rows can be updated by `optimizer`.

    `own`: it is the optimizer of one table, not the model's.
    """
    _rule_type(optimizer)
    if optimizer.use_ema:
        raise NotImplementedError(
            f"{_describe(optimizer)} has use_ema=True: a table keeps no moving "
            "average of its rows. Set use_ema=False, or give the table an "
            "optimizer of its own without it."
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
                "optimizer that the model is compiled with, one of "
                "lodestar.optimizers, which clips, unscales and accumulates "
                "the gradients of all layers."
            )
    elif steps and clipping:
        raise NotImplementedError(
            f"{_describe(optimizer)} has gradient_accumulation_steps={steps} "
            f"and {clipping[0]}={getattr(optimizer, clipping[0])}: tables "
            "accumulate without clipping only. Use a larger batch in place of "
            "accumulation, or clip each gradient yourself in a custom loop: "
            "lodestar.optimizers.clip_by_global_norm."
        )


def has_u_product(optimizer: keras.optimizers.Optimizer) -> bool:
    """Returns whether `optimizer` keeps a number that each step advances."""
    return _rule_type(optimizer) is keras.optimizers.Nadam


def next_u_product(
    optimizer: keras.optimizers.Nadam, u_product: tf.Tensor, step: Any
) -> tf.Tensor:
    """Returns Nadam's product over all steps, after step number `step` + 1."""
    number = tf.cast(step + 1, tf.float32)
    return u_product * optimizer.beta_1 * _nadam_decay(number)


def row_update(
    optimizer: keras.optimizers.Optimizer,
    step: Any,
    weight_decay: bool,
    u_product: tf.Tensor | None = None,
) -> RowUpdate:
    """Returns how `optimizer` updates the rows of a table after `step` steps.

    By its learning rate of now, with its weight decay if that is for this table,
    and with what `next_u_product` gave, if `has_u_product`.

    Raises:
        NotImplementedError: It has no row-wise update.
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
    """Returns the op's name of an optimizer, and its slots' initial values.

    Raises:
        NotImplementedError: It has no row-wise update.
    """
    # What a rule computes of the step does not matter here.
    one = tf.constant(1.0)
    rule = _RULES[_rule_type(optimizer)]
    name, slot_inits, _ = rule(optimizer, Step(one, one, one))
    return name, [float(init) for init in slot_inits]


def current_learning_rate(optimizer: keras.optimizers.Optimizer) -> tf.Tensor:
    """Returns the learning rate of this step, a float32 scalar."""
    return tf.cast(tf.convert_to_tensor(optimizer.learning_rate), tf.float32)
