"""Representations that show what differs from the defaults."""

import inspect
from typing import Any


def short_repr(value: Any) -> str:
    """Returns the call that makes `value`, without arguments of default value.

    Each parameter of the constructor must be an attribute.
    """
    parameters = inspect.signature(type(value)).parameters
    given = {name: getattr(value, name) for name in parameters}
    shown = ", ".join(
        f"{name}={given[name]!r}"
        for name, parameter in parameters.items()
        if not _equal(given[name], parameter.default)
    )
    return f"{type(value).__name__}({shown})"


def _equal(given: Any, default: Any) -> bool:
    # Arrays compare elementwise, and True equals 1.
    return given is default or (
        type(given) is type(default)
        and isinstance(given, (bool, int, float, str, tuple))
        and given == default
    )
