"""The command line of an installed package: `lodestar data|snapshot|train`.

`lodestar NAME ...` is `python -m lodestar.NAME ...`.
"""

import importlib
import sys

from lodestar import command_line
from lodestar.version import __version__

_COMMANDS = {
    "data": "convert, inspect, validate and generate files of training data",
    "snapshot": "list, verify, inspect and compact snapshots",
    "train": "a parameter server or a worker of a cluster",
}


def main(arguments: list[str] | None = None) -> int:
    """Runs the command and returns its exit code."""
    arguments = sys.argv[1:] if arguments is None else arguments
    parser = command_line.Parser(
        prog="lodestar", description="Sparse features for TensorFlow 2."
    )
    parser.add_argument(
        "--version", action="version", version=f"Lodestar {__version__}"
    )
    commands = parser.add_subparsers(
        required=True, metavar="COMMAND", dest="command"
    )
    for name, text in _COMMANDS.items():
        # --help behind a command is that command's own.
        commands.add_parser(name, help=text, add_help=False)
    chosen = parser.parse_args(arguments[:1]).command
    module = importlib.import_module(f"lodestar.{chosen}.__main__")
    return module.main(arguments[1:])


if __name__ == "__main__":
    sys.exit(main())
