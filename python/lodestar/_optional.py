"""Packages that only some functions need."""

import importlib
from typing import Any


def import_optional(name: str, wanted_by: str) -> Any:
    """Returns the module `name`.

    Raises:
        ImportError: It is not installed; says who needs it and what to type.
    """
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise ImportError(
            f"{wanted_by} needs {name}: pip install {name} ({error})"
        ) from error
