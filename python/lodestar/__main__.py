"""The command of an installed package: `lodestar data|snapshot|train`.

`lodestar NAME ...` is `python -m lodestar.NAME ...`.
"""

import importlib
import sys

from lodestar._commands.groups import LODESTAR
from lodestar._commands.parsing import parse


def main(arguments: list[str] | None = None) -> int:
    """Runs the command and returns its exit code."""
    context = parse(LODESTAR, arguments)
    assert context.parent is not None
    group = context.parent.command.name
    module = importlib.import_module(f"lodestar.{group}.__main__")
    return module.run(context)


if __name__ == "__main__":
    sys.exit(main())
