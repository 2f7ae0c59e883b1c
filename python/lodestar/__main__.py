"""The command line of an installed package: `lodestar data|snapshot|train`.

`lodestar NAME ...` is `python -m lodestar.NAME ...`.
"""

import importlib
import sys

from lodestar._commands import choose


def main(arguments: list[str] | None = None) -> int:
    """Runs the command and returns its exit code."""
    arguments = sys.argv[1:] if arguments is None else arguments
    name = choose(arguments)
    module = importlib.import_module(f"lodestar.{name}.__main__")
    return module.main(arguments[1:], f"lodestar {name}")


if __name__ == "__main__":
    sys.exit(main())
