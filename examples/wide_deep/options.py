"""The command line of the example."""

import argparse
import ast
from typing import Any

from lodestar.command_line import (
    Parser,
    at_least,
    fraction,
    names,
    path,
    positive,
)


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    """Reads the command line; ends the process where it is wrong."""
    parser = Parser(
        prog="wide_deep",
        description="Trains a wide-and-deep click model on dynamic embeddings,"
        " evaluates, exports and serves it. Without --data it generates a"
        " click log whose click probabilities are known. The same command on"
        " the same output folder goes on where the last one stopped.",
    )

    def add(group, flag, type, help, default=None, metavar="N", **more):
        if default is not None:
            help += " (default: %(default)s)"
        group.add_argument(
            flag, type=type, help=help, default=default, metavar=metavar, **more
        )

    data = parser.add_argument_group("data")
    text = (
        "train on these: MultiSlot text, HugeCTR's Norm, Raw or Parquet, CSV or"
        " TSV; a folder or a file list (.txt) stands for its files"
    )
    add(data, "--data", path, text, nargs="+", metavar="FILE")
    text = "schema file (default: FILE.schema.yaml or schema.yaml beside it)"
    add(data, "--schema", path, text, metavar="YAML")
    text = "format of the files (default: found by their first bytes)"
    add(data, "--format", str, text, metavar="NAME")
    text = "without a schema: the label, or 1 where COLUMN is POSITIVE and 0 elsewhere"
    add(data, "--label", str, text, metavar="COLUMN[=POSITIVE]")
    text = "without a schema: columns of ids"
    add(data, "--categorical", names, text, metavar="A,B")
    text = "without a schema: columns of numbers"
    add(data, "--numeric", names, text, metavar="A,B")
    text = (
        "another option of lodestar.data.open_dataset, such as key_type=int64"
    )
    add(data, "--read", _option, text, None, "NAME=VALUE", action="append")
    text = "evaluate on these (default: a part of --data is held out)"
    add(data, "--eval-data", path, text, nargs="+", metavar="FILE")
    text = "part of --data to hold out"
    add(data, "--eval-fraction", fraction, text, 0.2, "X")
    text = "train on the examples in the order of the files, without shuffling"
    data.add_argument("--keep-order", action="store_true", help=text)
    text = "size of the generated log, whose last sixth is for evaluation"
    add(data, "--examples", at_least(1000), text, 360_000)

    training = parser.add_argument_group("training")
    text = "passes over the data (default: 1 over the generated log, else 8)"
    add(training, "--epochs", at_least(1), text)
    add(training, "--batch-size", at_least(1), "examples a step", 512)
    add(training, "--learning-rate", positive, "of Adagrad", 0.02, "X")
    text = "steps between two checkpoints"
    add(training, "--checkpoint-steps", at_least(1), text, 200)
    # NumPy takes no larger seed.
    add(training, "--seed", at_least(0, 2**32 - 1), "of everything random", 0)
    text = "train the same model on keras.layers.Embedding, too"
    training.add_argument("--baseline", action="store_true", help=text)
    text = "folder for data, checkpoints and the exported model"
    add(parser, "--output", path, text, path("wide_deep_output"), "DIR")

    options = parser.parse_args(arguments)
    if options.epochs is None:
        options.epochs = 8 if options.data else 1
    given = {
        name: getattr(options, name)
        for name in (
            *("schema", "format", "label", "categorical", "numeric", "read"),
            *("eval_data", "keep_order"),
        )
    }
    for name, value in given.items():
        if value and not options.data:
            parser.error(f"--{name.replace('_', '-')} needs --data")
    options.read = dict(options.read or ())
    options.inference = {
        name: given[name]
        for name in ("label", "categorical", "numeric")
        if given[name]
    }
    return options


def _option(text: str) -> tuple[str, Any]:
    """Returns the name and the value, a Python literal or else a string."""
    name, found, value = text.partition("=")
    if not found:
        raise argparse.ArgumentTypeError(f"must be NAME=VALUE, got {text!r}")
    try:
        return name, ast.literal_eval(value)
    except (SyntaxError, ValueError):
        return name, value
