"""The command line of an installed package: `lodestar data|snapshot|train`.

`lodestar NAME ...` is `python -m lodestar.NAME ...`.
"""

import importlib
import sys

from lodestar._command import choose


def main(arguments: list[str] | None = None) -> int:
    """Runs the command and returns its exit code."""
    arguments = sys.argv[1:] if arguments is None else arguments
    module = importlib.import_module(f"lodestar.{choose(arguments)}.__main__")
    return module.main(arguments[1:])


if __name__ == "__main__":
    sys.exit(main())
