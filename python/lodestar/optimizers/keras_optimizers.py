"""Keras optimizers that train tables as well as dense weights.

They have the arguments of the Keras classes and `nonfinite`; see `wrap`.
"""

import inspect
from typing import Any, TypeVar

import keras

from lodestar._arguments import explained
from lodestar.optimizers import row_optimizers
from lodestar.optimizers.table_optimizer import Nonfinite, TableOptimizer

_Class = TypeVar("_Class", bound=type[Any])


# Types of Keras's arguments that their default values do not tell.
_TYPES: dict[str, Any] = {
    "self": inspect.Parameter.empty,
    "learning_rate": float | keras.optimizers.schedules.LearningRateSchedule,
    "name": str | None,
    "ema_overwrite_frequency": int | None,
    "gradient_accumulation_steps": int | None,
}


def _annotation(parameter: inspect.Parameter) -> Any:
    if parameter.name in _TYPES:
        return _TYPES[parameter.name]
    default = parameter.default
    return float | None if default is None else type(default)


def _optimizer(cls: _Class) -> _Class:
    """Registers a class and adds `nonfinite` to the arguments of Keras.

    The installed Keras decides on the other arguments. Its `**kwargs`, which accepts
    no name, is omitted.
    """
    base: Any = cls.__bases__[1]
    signature = inspect.signature(base.__init__)
    parameters = [
        parameter.replace(annotation=_annotation(parameter))
        for parameter in signature.parameters.values()
        if parameter.kind is not parameter.VAR_KEYWORD
    ]
    nonfinite = inspect.Parameter(
        "nonfinite",
        inspect.Parameter.KEYWORD_ONLY,
        default="raise",
        annotation=Nonfinite,
    )
    signature = signature.replace(parameters=[*parameters, nonfinite])

    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
        TableOptimizer.__init__(self, *args, **kwargs)

    vars(__init__)["__signature__"] = signature
    __init__.__qualname__ = f"{cls.__name__}.__init__"
    setattr(cls, "__init__", explained()(__init__))  # noqa: B010
    register = keras.saving.register_keras_serializable(package="lodestar")
    registered: _Class = register(cls)
    return registered


@_optimizer
class Adadelta(TableOptimizer, keras.optimizers.Adadelta):
    """`keras.optimizers.Adadelta` for models with tables.

    `wrap` describes `nonfinite`.

    >>> model.compile(lodestar.optimizers.Adadelta(1.0), "mse")
    """


@_optimizer
class Adagrad(TableOptimizer, keras.optimizers.Adagrad):
    """`keras.optimizers.Adagrad` for models with tables.

    The step of each row shrinks as its own gradients accumulate, which makes it
    the usual choice for embeddings. `wrap` describes `nonfinite`.

    >>> model.compile(lodestar.optimizers.Adagrad(0.1), "mse")
    """


@_optimizer
class Adam(TableOptimizer, keras.optimizers.Adam):
    """`keras.optimizers.Adam` for models with tables.

    Rows without a gradient keep their moments, as in LazyAdam: the moments of a
    row decay only in the steps that train it. `wrap` describes `nonfinite`.

    >>> model.compile(lodestar.optimizers.Adam(1e-3), "mse")
    """


@_optimizer
class AdamW(TableOptimizer, keras.optimizers.AdamW):
    """`keras.optimizers.AdamW` for models with tables.

    Weight decay affects only the rows of the step. `wrap` describes `nonfinite`.

    >>> model.compile(lodestar.optimizers.AdamW(1e-3, weight_decay=1e-4), "mse")
    """


@_optimizer
class Adamax(TableOptimizer, keras.optimizers.Adamax):
    """`keras.optimizers.Adamax` for models with tables.

    `wrap` describes `nonfinite`.

    >>> model.compile(lodestar.optimizers.Adamax(1e-3), "mse")
    """


@_optimizer
class Ftrl(TableOptimizer, keras.optimizers.Ftrl):
    """`keras.optimizers.Ftrl` for models with tables.

    `wrap` describes `nonfinite`.

    >>> model.compile(lodestar.optimizers.Ftrl(0.05), "mse")
    """


@_optimizer
class Lion(TableOptimizer, keras.optimizers.Lion):
    """`keras.optimizers.Lion` for models with tables.

    `wrap` describes `nonfinite`.

    >>> model.compile(lodestar.optimizers.Lion(1e-4), "mse")
    """


@_optimizer
class Nadam(TableOptimizer, keras.optimizers.Nadam):
    """`keras.optimizers.Nadam` for models with tables.

    `wrap` describes `nonfinite`.

    >>> model.compile(lodestar.optimizers.Nadam(1e-3), "mse")
    """


@_optimizer
class RMSprop(TableOptimizer, keras.optimizers.RMSprop):
    """`keras.optimizers.RMSprop` for models with tables.

    `wrap` describes `nonfinite`.

    >>> model.compile(lodestar.optimizers.RMSprop(1e-3), "mse")
    """


@_optimizer
class RowWiseAdagrad(TableOptimizer, row_optimizers.RowWiseAdagrad):
    """Adagrad with one accumulator per row, which takes 4 bytes instead of 4 * dim.

    It is the exact row-wise Adagrad of
    [FBGEMM](https://docs.pytorch.org/FBGEMM/) and
    [DLRM](https://github.com/facebookresearch/dlrm). For the gradient g of a row:

        accumulator += mean(g ** 2)
        row -= learning_rate * g / (sqrt(accumulator) + epsilon)

    Dense weights are trained by `keras.optimizers.Adagrad`, with an accumulator
    per element, as in DLRM. The arguments and defaults are its, and a subclass
    with another `update_step` cannot train tables. As the optimizer of a table,
    its name is `"RowWiseAdagrad"`. `wrap` describes `nonfinite`.

    >>> model.compile(lodestar.optimizers.RowWiseAdagrad(0.1), "mse")
    """


@_optimizer
class SGD(TableOptimizer, keras.optimizers.SGD):
    """`keras.optimizers.SGD` for models with tables.

    `wrap` describes `nonfinite`.

    >>> model.compile(lodestar.optimizers.SGD(0.1, momentum=0.9), "mse")
    """
