"""The command line of the example."""

import argparse

import lodestar
from lodestar import command_line

_MAX_SEED = 2**32 - 1  # NumPy's


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    """Reads the command line; ends the process where it is wrong."""
    parser = command_line.Parser(
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
    path, at_least = command_line.path, command_line.at_least
    add(
        data, "--data", path, "train on these: MultiSlot text, HugeCTR's Norm,"
        " Raw or Parquet, CSV or TSV; a folder or a file list (.txt) stands for"
        " its files", nargs="+", metavar="FILE",
    )  # fmt: skip
    lodestar.data.add_read_arguments(data)
    add(
        data, "--eval-data", path, "evaluate on these, of the same form as"
        " --data (default: a part of --data is held out)",
        nargs="+", metavar="FILE",
    )  # fmt: skip
    add(
        data, "--eval-fraction", command_line.fraction, "part of --data to hold"
        " out", default=0.2, metavar="X",
    )  # fmt: skip
    data.add_argument(
        "--keep-order",
        action="store_true",
        help="train on the examples in the order of the files",
    )
    add(
        data, "--examples", at_least(1000), "size of the generated log, whose"
        " last sixth is for evaluation", default=360_000,
    )  # fmt: skip
    training = parser.add_argument_group("training")
    add(
        training, "--epochs", at_least(1), "passes over the data (default: 1"
        " over the generated log, else 8)",
    )  # fmt: skip
    add(training, "--batch-size", at_least(1), "examples a step", default=512)
    add(
        training, "--learning-rate", command_line.positive, "of Adagrad",
        default=0.02, metavar="X",
    )  # fmt: skip
    add(
        training, "--checkpoint-steps", at_least(1), "steps between two"
        " checkpoints", default=200,
    )  # fmt: skip
    add(
        training, "--seed", at_least(0, _MAX_SEED), "of everything random",
        default=0,
    )  # fmt: skip
    training.add_argument(
        "--baseline",
        action="store_true",
        help="train the same model on keras.layers.Embedding, too",
    )
    add(
        parser, "--output", path, "folder for data, checkpoints and the"
        " exported model", default=path("wide_deep_output"), metavar="DIR",
    )  # fmt: skip
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
