"""The command lines of the package, which are parsed without TensorFlow."""

import argparse
import sys
import types
from collections.abc import Callable

from lodestar._commands.arguments import Parser
from lodestar._commands.data_parser import data_parser
from lodestar._commands.snapshot_parser import snapshot_parser
from lodestar._commands.train_parser import train_parser
from lodestar._startup import tool
from lodestar.version import __version__

_COMMANDS = {
    "data": "convert, inspect, validate and generate files of training data",
    "snapshot": "list, verify, inspect and compact snapshots",
    "train": "run a parameter server or a worker of a cluster",
}
_PARSERS: dict[str, Callable[[str], argparse.ArgumentParser]] = {
    "data": data_parser,
    "snapshot": snapshot_parser,
    "train": train_parser,
}


def choose(arguments: list[str]) -> str:
    """Returns the name of the command; ends the program at --help and the like.

    Args:
        arguments: The arguments of `lodestar`; only the first one is read.
    """
    parser = Parser(
        prog="lodestar", description="Sparse features for TensorFlow 2."
    )
    parser.add_argument(
        "--version", action="version", version=f"Lodestar {__version__}"
    )
    commands = parser.add_subparsers(
        required=True, metavar="COMMAND", dest="command"
    )
    for name, text in _COMMANDS.items():
        # --help after a command is that command's own.
        commands.add_parser(name, help=text, add_help=False)
    return str(parser.parse_args(arguments[:1]).command)


def begin() -> None:
    """Parses the command line of a tool before TensorFlow is imported.

    --help, --version and arguments that are not understood end the program. An
    ImportError of ours that nothing catches becomes one line on stderr and
    status 1. In a process that is not a tool nothing happens.
    """
    module = tool()
    if module is None:
        return
    arguments = sys.argv[1:]
    if module == "lodestar":
        name = choose(arguments)
        _PARSERS[name](f"lodestar {name}").parse_args(arguments[1:])
    elif (name := module.removeprefix("lodestar.")) in _PARSERS:
        _PARSERS[name](f"python -m {module}").parse_args(arguments)
    sys.excepthook = _one_line


def _one_line(
    kind: type[BaseException],
    error: BaseException,
    trace: types.TracebackType | None,
) -> None:
    if issubclass(kind, ImportError) and str(error).startswith("lodestar: "):
        print(error, file=sys.stderr)
    else:
        sys.__excepthook__(kind, error, trace)
