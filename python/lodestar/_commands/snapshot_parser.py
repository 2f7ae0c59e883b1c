"""The parser of the snapshot tool."""

import argparse

from lodestar._commands import arguments
from lodestar._commands.arguments import Parser


def snapshot_parser(prog: str) -> argparse.ArgumentParser:
    """Returns the parser; it stores the name of the command in `command`."""
    parser = Parser(
        prog=prog, description="Lists, checks and compacts snapshots."
    )
    commands = parser.add_subparsers(
        required=True, metavar="COMMAND", dest="command"
    )
    for name, text in (
        ("list", "list the versions, the newest last"),
        ("verify", "check every byte that a version needs by its checksum"),
        ("inspect", "print what a version holds, or some of its rows"),
        (
            "compact",
            "replace the newest chain by one full version and remove old ones",
        ),
    ):
        command = commands.add_parser(name, help=text, description=text)
        command.add_argument(
            "path", metavar="PATH", help="the folder of snapshots"
        )
        if name in ("verify", "inspect"):
            command.add_argument(
                "--version",
                type=arguments.count,
                metavar="V",
                help="the version (default: the newest)",
            )
        if name == "inspect":
            _add_inspect(command)
        if name == "compact":
            command.add_argument(
                "--keep",
                type=arguments.count,
                default=1,
                metavar="N",
                help="how many of the newest versions to keep, including the "
                "new one (default 1)",
            )
    return parser


def _add_inspect(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--table", metavar="NAME", help="only this table (default: all)"
    )
    what = command.add_mutually_exclusive_group()
    what.add_argument(
        "--id",
        type=_id,
        metavar="N",
        help="print the row of one id and the version that wrote it",
    )
    what.add_argument(
        "--top",
        choices=["frequency"],
        help="print the rows with the highest frequency",
    )
    what.add_argument(
        "--diff",
        metavar="OTHER",
        help="count the rows that differ from another version of PATH, or from "
        "the newest version of another folder; rows that OTHER lacks count as "
        "added",
    )
    command.add_argument(
        "-n",
        type=arguments.count,
        default=20,
        metavar="N",
        help="how many rows --top prints (default 20)",
    )


def _id(text: str) -> int:
    number = arguments.integer(text, 0)
    if not -(2**63) <= number < 2**64:
        raise argparse.ArgumentTypeError(f"{text} has more than 64 bits")
    # A table stores the bits of a uint64 as an int64.
    return number if number < 2**63 else number - 2**64
