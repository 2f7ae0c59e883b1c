"""Initializer names and Keras initializers -> attributes of the op."""

import warnings
from collections.abc import Mapping, Sequence
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


def first_value_words(seed: Any, name: str | None) -> tuple[int, int]:
    """Returns the seed and the salt of a table's initial values.

    The salt is a hash of the name, so the same name gives the same values
    wherever the table is made. A table without a name draws its seed as a Keras
    initializer does, which `keras.utils.set_random_seed` repeats: a count of
    tables would change when a notebook cell runs again.

    Args:
        seed: An integer, a pair (seed, salt), or None.
        name: The name that the user gave to the table, or None.

    Raises:
        ValueError: `seed` is none of these, or exceeds int64.
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


# Names of arguments in configs that were stored before they were renamed.
_OLD_NAMES = {
    "dim": "output_dim",
    "initializer": "embeddings_initializer",
    "missing": "default_row",
}


def current_names(config: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the config of a table or its layer with the current names."""
    config = {_OLD_NAMES.get(name, name): config[name] for name in config}
    if "init_salt" in config:
        config["seed"] = (config["seed"], config.pop("init_salt"))
    return config


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
                f"numbers for the same id: both have seed={words}. "
                "Give each a name or a seed of its own.",
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
        f"`embeddings_initializer`={initializer!r} is not supported for a "
        f"table whose rows are made one by one; supported: {_SUPPORTED}."
    )
