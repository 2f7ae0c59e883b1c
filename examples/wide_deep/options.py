"""The command line of the example."""

import ast
import types
from typing import Any

import click

from lodestar import _command_line

_INFERENCE = ("label", "categorical", "numeric", "ignore")
# Options for the given files.
_OF_DATA = ("schema", "format", *_INFERENCE, "read", "eval_data", "keep_order")


def _option(flag, help, type=None, default=None, metavar="N", **more):
    return click.Option(
        [flag], type=type, default=default, metavar=metavar, help=help, **more
    )


def _named(text: str) -> tuple[str, Any]:
    """Returns the name and the value, a Python literal or else a string."""
    name, found, value = text.partition("=")
    if not found:
        raise click.BadParameter(f"Must be NAME=VALUE, got {text!r}.")
    try:
        return name, ast.literal_eval(value)
    except (SyntaxError, ValueError):
        return name, value


def _check(**params):
    for name in _OF_DATA:
        if params[name] and not params["data"]:
            raise click.UsageError(f"--{name.replace('_', '-')} needs a FILE.")


_COMMAND = _command_line.Command(
    "wide_deep",
    [
        click.Argument(
            ["data"],
            nargs=-1,
            type=_command_line.path,
            metavar="[FILE]...",
        ),
        _option(
            "--schema",
            "Schema of FILE.  [default: FILE.schema.yaml or schema.yaml in its "
            "folder, else inferred]",
            _command_line.path,
            metavar="YAML",
        ),
        _option(
            "--format",
            "Format of FILE.  [default: detected from the first bytes]",
            metavar="NAME",
        ),
        _option(
            "--label",
            "Without a schema: the label; or 1 where COLUMN is POSITIVE and 0 "
            "elsewhere.",
            metavar="COLUMN[=POSITIVE]",
        ),
        _option(
            "--categorical",
            "Without a schema: columns of ids.",
            _command_line.comma_separated(),
            metavar="A,B",
        ),
        _option(
            "--numeric",
            "Without a schema: columns of numbers.",
            _command_line.comma_separated(),
            metavar="A,B",
        ),
        _option(
            "--ignore",
            "Without a schema: columns to leave out.",
            _command_line.comma_separated(),
            metavar="A,B",
        ),
        _option(
            "--read",
            "Another option of lodestar.data.open_dataset, e.g. "
            "key_type=int64; repeat for several.",
            _named,
            metavar="NAME=VALUE",
            multiple=True,
        ),
        _option(
            "--eval-data",
            "Evaluate on this file; repeat for several.  [default: hold out a "
            "part of FILE]",
            _command_line.path,
            metavar="FILE",
            multiple=True,
        ),
        _option(
            "--eval-fraction",
            "Part of FILE to hold out.",
            click.FloatRange(0, 1, min_open=True, max_open=True),
            0.2,
            "X",
        ),
        click.Option(
            ["--keep-order"],
            is_flag=True,
            help="Train on the examples in the order of the files, without "
            "shuffling.",
        ),
        _option(
            "--examples",
            "Examples of the generated log, whose last sixth is for evaluation.",
            click.IntRange(1000),
            360_000,
        ),
        _option(
            "--epochs",
            "Epochs.  [default: 1 on the generated log, else 8]",
            click.IntRange(1),
        ),
        _option("--batch-size", "Examples per step.", click.IntRange(1), 512),
        _option(
            "--learning-rate",
            "Learning rate of Adagrad.",
            _command_line.positive,
            0.02,
            "X",
        ),
        _option(
            "--checkpoint-steps",
            "Steps between two checkpoints.",
            click.IntRange(1),
            200,
        ),
        # NumPy's maximum seed.
        _option(
            "--seed",
            "Seed of everything random.",
            click.IntRange(0, 2**32 - 1),
            0,
        ),
        click.Option(
            ["--baseline"],
            is_flag=True,
            help="Also train the same model on keras.layers.Embedding.",
        ),
        _option(
            "--output",
            "Folder for data, checkpoints and the exported model.",
            _command_line.path,
            "wide_deep_output",
            "DIR",
        ),
    ],
    help="Trains a wide-and-deep click model on dynamic embeddings, evaluates, "
    "exports and serves it. FILE is of any format that "
    "lodestar.data.open_dataset reads; a folder or a file list (.txt) stands for "
    "its files. Without FILE it generates a click log whose click probabilities "
    "are known. The same command with the same output folder resumes where the "
    "last one stopped.",
    callback=_check,
)


def parse(arguments: list[str] | None = None) -> types.SimpleNamespace:
    """Parses the command line; ends the process where it is not valid."""
    params = _command_line.parse(_COMMAND, arguments).params
    options = types.SimpleNamespace(**params)
    options.data = list(options.data) or None
    options.eval_data = list(options.eval_data) or None
    if options.epochs is None:
        options.epochs = 8 if options.data else 1
    options.read = dict(options.read)
    options.inference = {
        name: params[name] for name in _INFERENCE if params[name]
    }
    return options
