"""Makes custom Keras optimizers train tables."""

import functools
from typing import Any

import keras

from lodestar._typing import OptimizerLike
from lodestar.embedding.lookup_arguments import get_optimizer
from lodestar.ops.compile_line import NAMES
from lodestar.optimizers import keras_optimizers
from lodestar.optimizers.table_optimizer import (
    Nonfinite,
    TableOptimizer,
    check_nonfinite,
)

# Keras's classes and the classes that derive from them here.
_KNOWN: dict[type, type[TableOptimizer]] = {
    getattr(keras.optimizers, name): getattr(keras_optimizers, name)
    for name in NAMES
}


def wrap(
    optimizer: OptimizerLike, *, nonfinite: Nonfinite | None = None
) -> TableOptimizer:
    """Makes a Keras optimizer train tables as well as dense weights.

    Use it for your own optimizer classes; the optimizers of `lodestar.optimizers`
    need no wrapping. Its `update_step` updates the rows of a step, which requires
    that it treats each row independently.

    >>> class SignSGD(keras.optimizers.Optimizer):
    ...     def update_step(self, gradient, variable, learning_rate):
    ...         step = keras.ops.sign(gradient) * learning_rate
    ...         self.assign_sub(variable, step)
    >>> optimizer = lodestar.optimizers.wrap(SignSGD(0.01))
    >>> model.compile(optimizer, "binary_crossentropy")

    Args:
        optimizer: A Keras optimizer, its name, or its config.
        nonfinite: What to do with NaN and infinity in a gradient: `"raise"` an
            error before any table or variable is written, `"skip"` the rows and
            the numbers of dense gradients that contain it, or `"pass"` it on.
            Defaults to `"raise"`, or to the current setting of an optimizer that
            trains tables.

    Returns:
        `optimizer` itself, with its variables and hyperparameters; its class is
        now a subclass of its former class.

    Raises:
        ValueError: If `optimizer` is not an optimizer, is already built, or is a
            `LossScaleOptimizer`.
    """
    found: Any = get_optimizer("optimizer", optimizer)
    if isinstance(found, TableOptimizer):
        if nonfinite is not None:
            found.nonfinite = check_nonfinite(nonfinite)
        return found
    if isinstance(found, keras.optimizers.LossScaleOptimizer):
        raise ValueError(
            "`optimizer` is a LossScaleOptimizer, which cannot be wrapped. Use "
            "lodestar.optimizers.LossScaleOptimizer(lodestar.optimizers.wrap("
            "inner_optimizer))."
        )
    if found.built:
        raise ValueError(
            f"`optimizer` {found.name!r} is already built. Wrap it before "
            "it trains a model."
        )
    nonfinite = check_nonfinite("raise" if nonfinite is None else nonfinite)
    cls: Any = type(found)
    found.__class__ = _wrapped(cls)
    found._start(nonfinite)
    return found


# A config has the wrapped class, so one name serves all subclasses.
_register = keras.saving.register_keras_serializable(
    package="lodestar", name="Wrapped"
)


@functools.cache
def _wrapped(cls: type[keras.optimizers.Optimizer]) -> type[TableOptimizer]:
    """Returns the subclass of `cls` that trains tables."""
    if cls in _KNOWN:
        return _KNOWN[cls]
    made: type[TableOptimizer] = _register(
        type(
            cls.__name__,
            (Wrapped, cls),
            {
                "__module__": __name__,
                "__doc__": cls.__doc__,
                "wrapped_class": cls,
            },
        )
    )
    return made


@_register
class Wrapped(TableOptimizer):
    """An optimizer made by `wrap`; `wrapped_class` is its former class."""

    wrapped_class: type[keras.optimizers.Optimizer]

    def get_config(self) -> dict[str, Any]:
        cls = self.wrapped_class
        of_keras = getattr(keras.optimizers, cls.__name__, None) is cls
        return {
            "name": self.name,
            "inner": {
                "module": "keras.optimizers" if of_keras else cls.__module__,
                "class_name": cls.__name__,
                "config": cls.get_config(self),
                "registered_name": None
                if of_keras
                else keras.saving.get_registered_name(cls),
            },
            "nonfinite": self.nonfinite,
        }

    @classmethod
    def from_config(
        cls,
        config: dict[str, Any],
        custom_objects: dict[str, Any] | None = None,
    ) -> TableOptimizer:
        inner = keras.saving.deserialize_keras_object(
            config["inner"], custom_objects=custom_objects
        )
        return wrap(inner, nonfinite=config["nonfinite"])
