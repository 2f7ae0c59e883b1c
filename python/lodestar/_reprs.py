"""Representations that show what differs from the defaults."""

import inspect
from typing import Any

import tensorflow as tf


def short_repr(value: Any) -> str:
    """Returns the call that makes `value`, without arguments of default value.

    Each parameter of the constructor must be an attribute.
    """
    return _call(value, type(value))


def optimizer_repr(optimizer: Any, cls: Any) -> str:
    """As `short_repr`, for an optimizer with the arguments of `cls`.

    The learning rate is always shown, and a name never.
    """
    with tf.init_scope():  # The rate is a variable.
        rate: Any = cls.get_config(optimizer)["learning_rate"]
    if isinstance(rate, float):
        rate = float(f"{rate:.7g}")  # float32 has digits that nobody wrote.
    return _call(optimizer, cls, learning_rate=rate, name=None)


def _call(value: Any, cls: type, **given: Any) -> str:
    """Returns the call, with the attributes in `given` instead of the object's."""
    parameters = inspect.signature(cls).parameters
    for name in parameters:
        if name not in given and hasattr(value, name):
            given[name] = getattr(value, name)
    shown = ", ".join(
        f"{name}={_shown(x)}"
        for name, x in given.items()
        if name == "learning_rate"
        or (name in parameters and not _equal(x, parameters[name].default))
    )
    return f"{type(value).__name__}({shown})"


def _shown(value: Any) -> str:
    if not (isinstance(value, dict) and "class_name" in value):
        return repr(value)
    # A learning rate schedule.
    config = value["config"]
    options = [f"{name}={x!r}" for name, x in config.items() if name != "name"]
    return f"{value['class_name']}({', '.join(options)})"


def _equal(given: Any, default: Any) -> bool:
    # Arrays compare elementwise, and True equals 1.
    return given is default or (
        type(given) is type(default)
        and isinstance(given, (bool, int, float, str, tuple))
        and given == default
    )
