"""The parser of the servers of a cluster."""

import argparse

from lodestar._commands import arguments
from lodestar._commands.arguments import Parser


def train_parser(prog: str) -> argparse.ArgumentParser:
    """Returns the parser; it stores the name of the command in `command`."""
    parser = Parser(prog=prog, description="Runs the servers of a cluster.")
    commands = parser.add_subparsers(
        required=True, metavar="COMMAND", dest="command"
    )
    server = commands.add_parser(
        "server",
        help="run a parameter server or a worker until SIGTERM or Ctrl-C",
        description="Runs a parameter server or a worker until SIGTERM or "
        "Ctrl-C. TF_CONFIG says which one; the options replace its parts.",
    )
    server.add_argument(
        "--cluster",
        metavar="JSON",
        help='all tasks: {"ps": ["HOST:PORT", ...], "worker": ["HOST:PORT", '
        "...]}",
    )
    server.add_argument(
        "--job", metavar="JOB", help="the job of this task: ps or worker"
    )
    server.add_argument(
        "--task",
        type=arguments.at_least(0),
        metavar="N",
        help="the index of this task in its job, from 0",
    )
    return parser
