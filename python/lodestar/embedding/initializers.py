"""Converts initializer names and Keras initializers to op attributes."""

import warnings
from collections.abc import Sequence
from typing import Any, NamedTuple, TypeAlias

import keras

from lodestar._checks import check_integer, did_you_mean
from lodestar._typing import Configurable
from lodestar.ops.id_hash import stable_hash

_SUPPORTED = (
    "zeros, ones, constant, uniform, normal, truncated_normal, or a Keras "
    "Zeros, Ones, Constant, RandomUniform, RandomNormal, TruncatedNormal"
)
# Initializers that do not depend on the seed.
CONSTANTS = ("zeros", "ones", "constant")
# The op's name for each Keras initializer, and the attributes for `a` and `b`.
_KINDS = {
    keras.initializers.Zeros: ("zeros",),
    keras.initializers.Ones: ("ones",),
    keras.initializers.Constant: ("constant", "value"),
    keras.initializers.RandomUniform: ("uniform", "minval", "maxval"),
    keras.initializers.RandomNormal: ("normal", "mean", "stddev"),
    keras.initializers.TruncatedNormal: ("truncated_normal", "mean", "stddev"),
}
_KERAS_NAMES = {
    "uniform": "random_uniform",
    "normal": "random_normal",
}


_NAMES = ("zeros", "ones", "constant", "uniform", "normal", "truncated_normal")


# A Keras initializer, its name or its config.
Initializer: TypeAlias = str | dict[str, Any] | Configurable


class InitializerAttrs(NamedTuple):
    """`initializer`, `initializer_a` and `initializer_b` of the variable op."""

    kind: str
    a: float
    b: float


def initializer_attrs(
    initializer: Initializer,
) -> InitializerAttrs:
    """Returns the op attributes of a name, a Keras initializer or its config.

    Only the distribution of a Keras initializer is used. Rows are drawn by id from the
    table's own seed. Names have the defaults of Keras: uniform in +-0.05, normal with
    stddev 0.05.
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
    if type(found) not in _KINDS:
        raise _unsupported(initializer)
    kind, *names = _KINDS[type(found)]
    numbers = [_scalar(getattr(found, n), n, initializer) for n in names]
    a, b = [*numbers, 0.0, 0.0][:2]
    return InitializerAttrs(kind, a, b)


def serialize(initializer: Initializer) -> Any:
    """Returns `initializer` for a config."""
    if isinstance(initializer, keras.initializers.Initializer):
        return keras.initializers.serialize(initializer)
    return initializer


def first_value_words(seed: Any, name: str | None) -> tuple[int, int]:
    """Returns the seed and the salt of a table's initial values.

    The salt is a hash of the name, so equal names give equal values on all machines.
    A table without a name draws its seed as a Keras initializer does, which
    `keras.utils.set_random_seed` makes repeatable. A count of tables would change
    when a notebook cell runs again. A pair (seed, salt) replaces both.
    """
    salt = 0 if name is None else stable_hash(name)
    if isinstance(seed, Sequence) and not isinstance(seed, str):
        if len(seed) != 2:
            raise ValueError(
                f"`seed`={seed!r} must be an integer or a pair (seed, salt)."
            )
        seed, salt = seed
    elif seed is None:
        named = name is not None
        seed = 0 if named else keras.initializers.RandomUniform().seed
    return check_integer("seed", seed), check_integer("seed", salt)


def warn_of_equal_starts(tables: Sequence[Any]) -> None:
    """Warns about tables of one model with equal initial values."""
    seen: dict[tuple[int, int], Any] = {}
    for table in tables:
        words = table._seed, table._salt
        if table._attrs.kind in CONSTANTS:
            continue
        other = seen.setdefault(words, table)
        if other is not table:
            warnings.warn(
                f"{other!r} and {table!r} have the same initial values for "
                f"the same id: both have seed={words}. Give each its own name "
                "or seed.",
                stacklevel=2,
            )


def _scalar(value: Any, name: str, initializer: Any) -> float:
    try:
        return float(value)
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"`{name}`={value!r} of the initializer {initializer!r} is not a "
            "number. All rows of a table have the same distribution."
        ) from error


def _unsupported(initializer: Any) -> ValueError:
    return ValueError(
        f"`embeddings_initializer`={initializer!r} is not supported. Use "
        f"{_SUPPORTED}.{did_you_mean(initializer, _NAMES)}"
    )
