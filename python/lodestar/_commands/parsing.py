"""Parses Click commands that run elsewhere, and defines types of parameters."""

import csv
import pathlib
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import click

SETTINGS = {
    "help_option_names": ["-h", "--help"],
    "max_content_width": 100,
    "show_default": True,
}


class Command(click.Command):
    """A Click command whose invocation returns its context with `params`."""

    def __init__(
        self, name: str, params: Iterable[click.Parameter], **settings: Any
    ):
        super().__init__(
            name, params=list(params), context_settings=SETTINGS, **settings
        )

    def invoke(self, ctx: click.Context) -> click.Context:
        """Returns `ctx`, after an optional callback has checked it."""
        super().invoke(ctx)
        return ctx


def option(
    names: str,
    help: str,
    type: Callable[[str], Any] | None = None,
    metavar: str | None = None,
    **settings: Any,
) -> click.Option:
    """Returns a `click.Option`; `names` are flags, optionally after a name."""
    return click.Option(
        names.split(), type=type, metavar=metavar, help=help, **settings
    )


def group(
    name: str, help: str, commands: Sequence[click.Command]
) -> click.Group:
    """Returns a command whose first argument selects one of `commands`."""
    return click.Group(
        name,
        help=help,
        commands=commands,
        context_settings=SETTINGS,
        # Print an error of one line instead.
        no_args_is_help=False,
    )


def parse(
    command: click.Command,
    arguments: Sequence[str] | None = None,
    prog: str | None = None,
) -> click.Context:
    """Parses a command line; returns the context of the `Command`.

    --help, --version and shell completion end the process with exit code 0, an
    invalid argument with exit code 2 and one line on stderr.
    """
    try:
        context = command.main(
            arguments, prog or command.name, standalone_mode=False
        )
    except click.UsageError as error:
        where = error.ctx.command_path if error.ctx else prog or command.name
        message = " ".join(error.format_message().split())
        click.echo(f"{where}: {message} See --help.", err=True)
        sys.exit(2)
    if not isinstance(context, click.Context):
        sys.exit(context)
    return context


def path(text: str) -> pathlib.Path:
    """Type of parameters that are paths."""
    if not text:
        raise click.BadParameter("The path is empty.")
    return pathlib.Path(text)


def positive(text: str) -> float:
    """Type of parameters that are finite numbers above 0."""
    number = click.FLOAT(text)
    if not 0 < number < float("inf"):
        raise click.BadParameter(f"{text} is not a positive number.")
    return float(number)


def comma_separated(
    item: Callable[[str], Any] = str,
) -> Callable[[str], list[Any]]:
    """Returns the type of parameters that are lists of `item`, e.g. `A,B`.

    Double quotes around an item that contains a comma are removed, as in CSV.
    """

    def items(text: str) -> list[Any]:
        try:
            (parts,) = csv.reader([text], skipinitialspace=True, strict=True)
        except (csv.Error, ValueError):
            raise click.BadParameter(f"{text!r} is not a list.") from None
        parts = [part.strip() for part in parts] or [""]
        if not all(parts):
            raise click.BadParameter(f"{text!r} has an empty item.")
        return [item(part) for part in parts]

    return items
