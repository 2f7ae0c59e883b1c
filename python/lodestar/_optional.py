"""Packages that only some functions need."""

import importlib
from typing import Any

# What the wheel calls them; pip installs other packages by their own names.
_EXTRAS = {
    "pyarrow": "'tf-lodestar[parquet]'",
    "tqdm": "'tf-lodestar[progress]'",
    "yaml": "pyyaml",
}


def import_optional(name: str, wanted_by: str) -> Any:
    """The module `name`.

    Raises:
        ImportError: It is not installed; says who wants it and what to type.
    """
    try:
        return importlib.import_module(name)
    except ImportError as error:
        package = name.partition(".")[0]
        raise ImportError(
            f"{wanted_by} needs {package}: "
            f"pip install {_EXTRAS.get(package, package)} ({error})"
        ) from error
