"""Errors for unknown and surplus arguments, which list the valid ones."""

import functools
import inspect
from collections.abc import Callable, Mapping
from typing import Any, ParamSpec, TypeVar

from lodestar._checks import did_you_mean

P = ParamSpec("P")
T = TypeVar("T")


def explained(
    refused: Mapping[str, str] | None = None,
    surplus: Callable[..., None] | None = None,
) -> Callable[[Callable[P, T]], Callable[P, T]]:
    """Makes a wrong argument of a function or constructor a helpful error.

    The function keeps its signature.

    Args:
        refused: Names that users may expect, and why there is no such argument.
            None and False are ignored.
        surplus: Called with all positional arguments if there are too many, to
            raise a TypeError.
    """
    refused = {} if refused is None else refused

    def decorate(function: Callable[P, T]) -> Callable[P, T]:
        signature = inspect.signature(function)
        parameters = signature.parameters
        names = [name for name in parameters if name != "self"]
        takes_self = "self" in parameters
        by_place = sum(
            p.kind is p.POSITIONAL_OR_KEYWORD for p in parameters.values()
        )
        title = function.__qualname__.removesuffix(".__init__")

        def check(args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
            if surplus is not None and len(args) > by_place:
                surplus(*args[takes_self:])
            for name in [name for name in kwargs if name not in parameters]:
                if name not in refused:
                    raise TypeError(
                        f"{title} has no argument `{name}`."
                        f"{did_you_mean(name, names)} Its arguments are "
                        f"{', '.join(names)}."
                    )
                value = kwargs.pop(name)
                if value is not None and value is not False:
                    raise ValueError(
                        f"`{name}` is not supported: {refused[name]}"
                    )

        @functools.wraps(function)
        def call(*args: P.args, **kwargs: P.kwargs) -> T:
            check(args, kwargs)
            return function(*args, **kwargs)

        # Keras inspects constructors of layers by a function that does not look
        # behind `wraps`.
        vars(call)["__signature__"] = signature
        return call

    return decorate


def explained_class(cls: type[T]) -> type[T]:
    """Applies `explained` to the constructor of a dataclass."""
    constructor: Callable[..., None] = vars(cls)["__init__"]
    type.__setattr__(cls, "__init__", explained()(constructor))
    return cls
