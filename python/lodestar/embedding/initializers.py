"""Initializer names and Keras initializers -> attributes of the op."""

import warnings
from collections.abc import Sequence
from typing import Any, NamedTuple, TypeAlias

import keras

from lodestar._checks import check_integer
from lodestar.ops.id_hash import stable_hash

_SUPPORTED = (
    "zeros, ones, constant, uniform, normal, truncated_normal, or a Keras "
    "Zeros, Ones, Constant, RandomUniform, RandomNormal, TruncatedNormal"
)
# Kinds whose rows are equal in all tables.
CONSTANTS = ("zeros", "ones", "constant")
# The op's name of a Keras initializer, and its attributes that are a and b.
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


# A name of Keras, what it serializes one to, or one.
Initializer: TypeAlias = str | dict[str, Any] | keras.initializers.Initializer


class InitializerAttrs(NamedTuple):
    """`initializer`, `initializer_a`, `initializer_b` of the variable op."""

    kind: str
    a: float
    b: float


def initializer_attrs(
    initializer: Initializer,
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
    if type(found) not in _KINDS:
        raise _unsupported(initializer)
    kind, *names = _KINDS[type(found)]
    numbers = [_scalar(getattr(found, n), n, initializer) for n in names]
    a, b = [*numbers, 0.0, 0.0][:2]
    return InitializerAttrs(kind, a, b)


def first_value_words(
    seed: int | None, init_salt: int | None, name: str | None
) -> tuple[int, int]:
    """Returns seed and salt of a table, with what stands for those not given.

    A name that was given makes the first values, the same wherever the table is
    made. A table without one draws its seed as an initializer of Keras does,
    which `keras.utils.set_random_seed` repeats: numbers that count tables would
    be others when a notebook's cell is run again.

    Raises:
        ValueError: `seed` or `init_salt` is no int64.
    """
    if seed is None:
        known = name is not None or init_salt is not None
        seed = 0 if known else keras.initializers.RandomUniform().seed
    if init_salt is None:
        init_salt = 0 if name is None else stable_hash(name)
    return check_integer("seed", seed), check_integer("init_salt", init_salt)


def warn_of_equal_starts(tables: Sequence[Any]) -> None:
    """Warns of EmbeddingVariables of one model whose rows start alike."""
    seen: dict[tuple[int, int], Any] = {}
    for table in tables:
        words = table.first_value_words
        if words is None:
            continue
        other = seen.setdefault(words, table)
        if other is not table:
            warnings.warn(
                f"The rows of {other!r} and {table!r} start with the same "
                f"numbers for the same id: both have seed={words[0]} and "
                f"init_salt={words[1]}. Give each a name or a seed of its own.",
                stacklevel=2,
            )


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
