"""The front of the command `lodestar`, which needs no TensorFlow."""

import argparse
import sys
import types
from typing import NoReturn

from lodestar._startup import tool
from lodestar.version import __version__

_COMMANDS = {
    "data": "convert, inspect, validate and generate files of training data",
    "snapshot": "list, verify, inspect and compact snapshots",
    "train": "a parameter server or a worker of a cluster",
}


class Parser(argparse.ArgumentParser):
    """An `argparse.ArgumentParser` that says in one line what is wrong."""

    def error(self, message: str) -> NoReturn:
        """Ends the program with code 2."""
        self.exit(2, f"{self.prog}: {message}; see --help\n")


def choose(arguments: list[str]) -> str:
    """Returns the command that is named; ends the program at --help and the like.

    Args:
        arguments: Of `lodestar`, of which the first is read.
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
        # --help behind a command is that command's own.
        commands.add_parser(name, help=text, add_help=False)
    return str(parser.parse_args(arguments[:1]).command)


def begin() -> None:
    """At the start of a tool: what need not wait for TensorFlow.

    `lodestar --version` and `--help` are answered, which ends the program. An
    ImportError of ours that nothing catches is a line on stderr, with status 1.
    In any other process nothing happens.
    """
    module = tool()
    if module is None:
        return
    asked = {"-h", "--help", "--version"}.intersection(sys.argv[1:2])
    if module == "lodestar" and asked:
        choose(sys.argv[1:])
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
