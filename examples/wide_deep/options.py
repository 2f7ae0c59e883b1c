"""The command line of the example."""

import argparse

import lodestar
from lodestar.command_line import Parser, at_least, fraction, path, positive


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
    lodestar.data.add_read_arguments(data)
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
        **lodestar.data.given_options(options),
        "eval_data": options.eval_data,
        "keep_order": options.keep_order,
    }
    for name, value in given.items():
        if value and not options.data:
            parser.error(f"--{name.replace('_', '-')} needs --data")
    return options
