"""Optional dependencies."""

import importlib
from typing import Any


def import_optional(name: str, wanted_by: str) -> Any:
    """Returns the module `name`; ImportError tells how to install it."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise ImportError(
            f"{wanted_by} needs {name}: pip install {name} ({error})"
        ) from error
