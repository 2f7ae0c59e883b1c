"""Trains, evaluates, exports and serves a wide-and-deep click model.

bazel run //examples:wide_deep                  on a generated click log
bazel run //examples:wide_deep -- --data FILES  on your own examples
"""

import argparse
import os
import pathlib
import signal
import sys

# Before TensorFlow is imported: what its runtime logs is not for users.
os.environ.setdefault("LODESTAR_QUIET_START", "1")

from errors import InputError  # noqa: E402
from options import Options  # noqa: E402

_INTERRUPTED = 130  # as a shell says after Ctrl-C
_MAX_SEED = 2**32 - 1  # NumPy's
_FORMATS = ("multislot", "norm", "raw", "parquet", "csv", "tsv")
_OF_DATA = (
    "format",
    "slots",
    "label",
    "categorical",
    "numeric",
    "key_type",
    "layout",
    "nnz_per_slot",
    "num_samples",
    "slot_size_array",
    "eval_data",
    "keep_order",
)


class _Parser(argparse.ArgumentParser):
    """Says in one line what is wrong."""

    def error(self, message):
        self.exit(2, f"{self.prog}: {message}; see --help\n")


def parse(arguments: list[str] | None = None) -> Options:
    """Reads the command line; ends the process where it is wrong."""
    parser = _Parser(
        prog="wide_deep",
        description="Trains a wide-and-deep click model on dynamic embeddings,"
        " evaluates, exports and serves it. Without --data it generates a"
        " click log whose click probabilities are known. The same command on"
        " the same output folder goes on where the last one stopped.",
    )
    data = parser.add_argument_group("data")
    data.add_argument(
        "--data",
        nargs="+",
        type=_path,
        metavar="FILE",
        help="train on these: MultiSlot text, HugeCTR's Norm, Raw or Parquet,"
        " CSV or TSV; a folder or a file list (.txt) stands for its files",
    )
    data.add_argument(
        "--format",
        choices=_FORMATS,
        help="of the files (default: as they look; Raw is what ends in .raw or"
        " .bin)",
    )
    data.add_argument(
        "--slots",
        type=_path,
        metavar="YAML",
        help="slot file (default: FILE.slots.yaml or slots.yaml beside the"
        " files; CSV and Parquet do without)",
    )
    data.add_argument(
        "--label",
        metavar="COLUMN[=POSITIVE]",
        help="label column of CSV files: 0 and 1, or 1 where it says POSITIVE"
        " (default: label)",
    )
    data.add_argument(
        "--categorical",
        type=_names,
        metavar="A,B",
        help="columns of CSV files that are ids (default: texts, and whole"
        " numbers that look like ids; see docs/data.md)",
    )
    data.add_argument(
        "--numeric",
        type=_names,
        metavar="A,B",
        help="columns of CSV files that are numbers (default: the others)",
    )
    data.add_argument(
        "--key-type",
        choices=["uint32", "int32", "int64"],
        help="keys of Norm and Raw files (default: uint32)",
    )
    data.add_argument(
        "--layout",
        choices=["float", "int", "multi_hot_float", "multi_hot_int"],
        help="of Raw files (default: float)",
    )
    data.add_argument(
        "--nnz-per-slot",
        type=_counts,
        metavar="N,N,...",
        help="keys of each id slot in multi-hot Raw files (default: 1)",
    )
    data.add_argument(
        "--num-samples",
        type=_at_least(1),
        metavar="N",
        help="read the first N samples of each Raw file (default: all)",
    )
    data.add_argument(
        "--slot-size-array",
        type=_counts,
        metavar="N,N,...",
        help="of Raw and Parquet files: for each id slot, one more than its"
        " largest key; keys are shifted past those of the slots before",
    )
    data.add_argument(
        "--eval-data",
        nargs="+",
        type=_path,
        metavar="FILE",
        help="evaluate on these, of the same form as --data (default: a part"
        " of --data is held out)",
    )
    data.add_argument(
        "--eval-fraction",
        type=_fraction,
        default=0.2,
        metavar="X",
        help="part of --data to hold out (default: %(default)s)",
    )
    data.add_argument(
        "--keep-order",
        action="store_true",
        help="train on the examples in the order of the files, without"
        " shuffling",
    )
    data.add_argument(
        "--examples",
        type=_at_least(1000),
        default=360_000,
        metavar="N",
        help="size of the generated log, whose last sixth is for evaluation"
        " (default: %(default)s)",
    )
    training = parser.add_argument_group("training")
    training.add_argument(
        "--epochs",
        type=_at_least(1),
        metavar="N",
        help="passes over the data (default: 1 over the generated log, else 8)",
    )
    training.add_argument(
        "--batch-size",
        type=_at_least(1),
        default=512,
        metavar="N",
        help="examples a step (default: %(default)s)",
    )
    training.add_argument(
        "--learning-rate",
        type=_positive,
        default=0.02,
        metavar="X",
        help="of Adagrad (default: %(default)s)",
    )
    training.add_argument(
        "--checkpoint-steps",
        type=_at_least(1),
        default=200,
        metavar="N",
        help="steps between two checkpoints (default: %(default)s)",
    )
    training.add_argument(
        "--seed",
        type=_at_least(0, _MAX_SEED),
        default=0,
        metavar="N",
        help="of everything random (default: %(default)s)",
    )
    training.add_argument(
        "--baseline",
        action="store_true",
        help="train the same model on keras.layers.Embedding, too",
    )
    parser.add_argument(
        "--output",
        type=_path,
        default=_path("wide_deep_output"),
        metavar="DIR",
        help="folder for data, checkpoints and the exported model (default:"
        " wide_deep_output)",
    )
    options = parser.parse_args(arguments)
    if options.epochs is None:
        options.epochs = 8 if options.data else 1
    _check_data_options(parser, options)
    return Options(**vars(options))


def main(arguments: list[str] | None = None) -> int:
    """Runs the command line; returns the exit code."""
    # `bazel run` starts elsewhere than where the user stands.
    os.chdir(os.environ.get("BUILD_WORKING_DIRECTORY", "."))
    options = parse(arguments)
    interrupt = _Interrupt()
    try:
        # TensorFlow takes seconds to import; --help does not wait for it.
        import job

        return job.run(options)
    except InputError as error:
        print(f"wide_deep: {error}", file=sys.stderr)
        return 2
    except BaseException:
        if not interrupt.seen:
            raise
        print(
            "\nInterrupted. The same command goes on from the last checkpoint "
            f"in {options.output}, if there is one.",
            file=sys.stderr,
        )
        return _INTERRUPTED


class _Interrupt:
    """Raises KeyboardInterrupt at Ctrl-C, and keeps in mind that it did.

    Libraries turn the exception into another one now and then.
    """

    def __init__(self):
        self.seen = False
        signal.signal(signal.SIGINT, self._raise)

    def _raise(self, number, frame):
        self.seen = True
        raise KeyboardInterrupt


def _check_data_options(parser, options) -> None:
    if not options.data:
        for name in _OF_DATA:
            if getattr(options, name):
                flag = "--" + name.replace("_", "-")
                parser.error(f"{flag} needs --data")


def _path(text: str) -> pathlib.Path:
    if not text:
        raise argparse.ArgumentTypeError("a path is empty")
    return pathlib.Path(text)


def _at_least(least: int, most: int = 2**63 - 1):
    def integer(text: str) -> int:
        value = int(text)
        if value < least:
            raise argparse.ArgumentTypeError(f"{text} is not at least {least}")
        if value > most:
            raise argparse.ArgumentTypeError(f"{text} is more than {most}")
        return value

    return integer


def _names(text: str) -> list[str]:
    return [name.strip() for name in text.split(",") if name.strip()]


def _counts(text: str) -> list[int]:
    return [_at_least(1)(part) for part in text.split(",")]


def _positive(text: str) -> float:
    value = float(text)
    if not 0 < value < float("inf"):
        raise argparse.ArgumentTypeError(f"{text} is not positive")
    return value


def _fraction(text: str) -> float:
    value = float(text)
    if not 0 < value < 1:
        raise argparse.ArgumentTypeError(f"{text} is not between 0 and 1")
    return value


if __name__ == "__main__":
    sys.exit(main())
