"""The command line of the snapshot tool."""

from typing import Any

import click

from lodestar._commands.parsing import Command, group, option

_count = click.IntRange(min=1)


def _id(text: str) -> int:
    try:
        number = int(text, 0)
    except ValueError:
        raise click.BadParameter(f"{text!r} is not an integer.") from None
    if not -(2**63) <= number < 2**64:
        raise click.BadParameter(f"{text} has more than 64 bits.")
    # A table stores the bits of a uint64 as an int64.
    return number if number < 2**63 else number - 2**64


def _check_inspect(id: Any, top: Any, diff: Any, **others: Any) -> None:
    if sum(option is not None for option in (id, top, diff)) > 1:
        raise click.UsageError(
            "Give only one of --id, --top and --diff.",
            click.get_current_context(),
        )


_PATH = click.Argument(["path"], metavar="PATH")
_VERSION = option(
    "--version", "The version.  [default: the newest]", _count, "V"
)

SNAPSHOT = group(
    "snapshot",
    "List, verify, inspect, compact and copy snapshots in a folder PATH.",
    [
        Command(
            "list", [_PATH], help="List the versions in PATH, the newest last."
        ),
        Command(
            "verify",
            [_PATH, _VERSION],
            help="Verify the checksum of every byte that a version needs.",
        ),
        Command(
            "inspect",
            [
                _PATH,
                _VERSION,
                option(
                    "--table",
                    "Only this table.  [default: all]",
                    metavar="NAME",
                ),
                option(
                    "--id",
                    "Print the row of one id and the version that wrote it.",
                    _id,
                    "N",
                ),
                option(
                    "--top",
                    "Print the rows with the highest frequency.",
                    click.Choice(["frequency"]),
                ),
                option(
                    "--diff",
                    "Count the rows that differ from another version of "
                    "PATH, or from the newest version of another folder. Rows "
                    "that OTHER lacks count as added.",
                    metavar="OTHER",
                ),
                option(
                    "-n", "How many rows --top prints.", _count, "N", default=20
                ),
            ],
            help="Print the contents of a version, or some of its rows.",
            callback=_check_inspect,
        ),
        Command(
            "compact",
            [
                _PATH,
                option(
                    "--keep",
                    "How many of the newest versions to keep, including "
                    "the new one.",
                    _count,
                    "N",
                    default=1,
                ),
            ],
            help="Replace the newest chain by one full version and remove old "
            "versions.",
        ),
        Command(
            "copy",
            [_PATH, click.Argument(["target"], metavar="TARGET"), _VERSION],
            help="Copy a version, and all that it needs, to a folder on "
            "another file system, or from there.",
        ),
    ],
)
