"""The line that compiles a model with an optimizer for tables, for error messages."""

from typing import Any

import keras
import numpy as np
import tensorflow as tf

from lodestar import _private

# Keras optimizers with a subclass in lodestar.optimizers.
NAMES = (
    *("Adadelta", "Adagrad", "Adam", "AdamW", "Adamax", "Ftrl", "Lion"),
    *("Nadam", "RMSprop", "SGD"),
)


def compiled_optimizer(model: Any) -> keras.optimizers.Optimizer | None:
    """Returns the optimizer of `model`, or None if it is not compiled."""
    if not isinstance(model, keras.Model):
        return None
    return getattr(model, "optimizer", None)


def trains_tables(optimizer: Any) -> bool:
    """Returns whether `optimizer` is one of lodestar.optimizers."""
    return getattr(optimizer, "_trains_tables", False)


def awaits_first_step(model: Any) -> bool:
    """Returns whether an optimizer of tables has yet to train `model`."""
    optimizer = compiled_optimizer(model)
    return (
        optimizer is not None
        and trains_tables(optimizer)
        and not optimizer.built
    )


def compile_line(model: Any = None, scaled: bool = False) -> str:
    """Returns code that makes an optimizer for tables, and compiles `model` with it.

    It is the counterpart of the optimizer that is running or, outside of any, of the
    model's.
    """
    # Configs hold the values of variables, such as the learning rate.
    with tf.init_scope():
        compiled = compiled_optimizer(model)
        optimizer = _private.applying_optimizer() or compiled
        if optimizer is getattr(compiled, "inner_optimizer", None):
            optimizer = compiled
        owner = "model.optimizer" if optimizer is compiled else "optimizer"
        if isinstance(optimizer, keras.optimizers.LossScaleOptimizer):
            scaled = True
            optimizer = optimizer.inner_optimizer
        text = "lodestar.optimizers.Adam(1e-3)"
        if optimizer is not None:
            text = _optimizer_text(optimizer, owner)
        if scaled:
            text = f"lodestar.optimizers.LossScaleOptimizer({text})"
        if compiled is None or owner == "optimizer":
            return f"optimizer = {text}"
        return f"model.compile(optimizer={text}{_other_arguments(model)})"


def _optimizer_text(optimizer: keras.optimizers.Optimizer, name: str) -> str:
    cls = type(optimizer)
    config = optimizer.get_config()
    config.pop("nonfinite", None)
    if cls.__name__ not in NAMES or not isinstance(
        optimizer, getattr(keras.optimizers, cls.__name__)
    ):
        return (
            f"lodestar.optimizers.wrap(type({name}).from_config("
            f"{name}.get_config()))"
        )
    defaults = cls().get_config()
    arguments = [
        f"{name}={_value_text(value)}"
        for name, value in config.items()
        if name != "name" and value != defaults.get(name)
    ]
    if "learning_rate" in config and config["learning_rate"] == defaults.get(
        "learning_rate"
    ):
        rate = _value_text(config["learning_rate"])
        arguments.insert(0, f"learning_rate={rate}")
    return f"lodestar.optimizers.{cls.__name__}({', '.join(arguments)})"


def _value_text(value: Any) -> str:
    if isinstance(value, float):  # from a float32 variable
        return str(np.float32(value))
    if isinstance(value, dict):
        return f"keras.saving.deserialize_keras_object({value!r})"
    return repr(value)


def _other_arguments(model: keras.Model) -> str:
    arguments = ""
    if model.loss is not None:
        plain = isinstance(model.loss, str)
        arguments = f", loss={repr(model.loss) if plain else 'model.loss'}"
    metrics = (model.get_compile_config() or {}).get("metrics")
    if isinstance(metrics, list) and all(isinstance(m, str) for m in metrics):
        arguments += f", metrics={metrics!r}"
    if model.run_eagerly:
        arguments += ", run_eagerly=True"
    return arguments
