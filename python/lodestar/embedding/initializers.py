"""Initializer names and Keras initializers -> attributes of the op."""

from typing import Any, NamedTuple

import keras

_SUPPORTED = (
    "zeros, ones, constant, uniform, normal, truncated_normal, or a Keras "
    "Zeros, Ones, Constant, RandomUniform, RandomNormal, TruncatedNormal"
)
_KERAS_NAMES = {
    "uniform": "random_uniform",
    "normal": "random_normal",
}


class InitializerAttrs(NamedTuple):
    """`initializer`, `initializer_a`, `initializer_b` of the variable op."""

    kind: str
    a: float
    b: float


def initializer_attrs(
    initializer: str | dict | keras.initializers.Initializer,
) -> InitializerAttrs:
    """Returns the op attributes of `initializer`.

    A Keras initializer gives its distribution only: rows are drawn from the
    table's own seed, by id, so the initializer's seed is not used.

    Args:
        initializer: A name, a Keras initializer or its config. Defaults of the
            names are Keras's: uniform in +-0.05, normal with stddev 0.05.

    Raises:
        ValueError: Any other initializer, or parameters that are not scalars.
    """
    found = initializer
    if isinstance(found, (str, dict)):
        name = (
            _KERAS_NAMES.get(found, found) if isinstance(found, str) else found
        )
        try:
            found = keras.initializers.get(name)
        except ValueError as error:
            raise _unsupported(initializer) from error
    kinds = keras.initializers
    if type(found) is kinds.Zeros:
        return InitializerAttrs("zeros", 0.0, 0.0)
    if type(found) is kinds.Ones:
        return InitializerAttrs("ones", 0.0, 0.0)
    if type(found) is kinds.Constant:
        value = _scalar(found.value, "value", initializer)
        return InitializerAttrs("constant", value, 0.0)
    if type(found) is kinds.RandomUniform:
        return InitializerAttrs(
            "uniform",
            _scalar(found.minval, "minval", initializer),
            _scalar(found.maxval, "maxval", initializer),
        )
    if type(found) in (kinds.RandomNormal, kinds.TruncatedNormal):
        normal = type(found) is kinds.RandomNormal
        return InitializerAttrs(
            "normal" if normal else "truncated_normal",
            _scalar(found.mean, "mean", initializer),
            _scalar(found.stddev, "stddev", initializer),
        )
    raise _unsupported(initializer)


def _scalar(value: Any, name: str, initializer: Any) -> float:
    try:
        return float(value)
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"`{name}`={value!r} of the initializer {initializer!r} is not a "
            "number: every row of a table starts from the same distribution."
        ) from error


def _unsupported(initializer: Any) -> ValueError:
    return ValueError(
        f"`initializer`={initializer!r} is not supported for a table whose "
        f"rows are made one by one; supported: {_SUPPORTED}."
    )
