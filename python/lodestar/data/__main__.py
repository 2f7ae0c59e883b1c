"""The data tool: `python -m lodestar.data convert|generate|inspect`.

Exit code 0, or 2 with one line on stderr that names what is wrong.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
import warnings

import tensorflow as tf
import tqdm

from lodestar.data.click_log import generate_click_log
from lodestar.data.csv_convert import convert_csv, slots_path
from lodestar.data.errors import DataError, describe_error
from lodestar.data.inspect_files import inspect_files


def main(arguments: list[str] | None = None) -> int:
    """Runs the tool and returns its exit code."""
    options = _parser().parse_args(arguments)
    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", UserWarning)
            options.run(options)
        for warning in caught:
            print(f"lodestar.data: warning: {warning.message}", file=sys.stderr)
    except KeyboardInterrupt:
        print("lodestar.data: interrupted", file=sys.stderr)
        return 130
    except BrokenPipeError:
        # The reader of our output has gone, as in `... | head`.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except (DataError, ValueError, OSError, tf.errors.OpError) as error:
        print(f"lodestar.data: {describe_error(error)}", file=sys.stderr)
        return 2
    return 0


class _Parser(argparse.ArgumentParser):
    """Says in one line what is wrong."""

    def error(self, message):
        self.exit(2, f"{self.prog}: {message}; see --help\n")


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="python -m lodestar.data", description="Click-log files."
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    convert = commands.add_parser(
        "convert",
        help="convert a file to another format",
        description="Converts a CSV file with a header to MultiSlot text: "
        "numeric columns become float slots, others id slots. Also writes "
        "OUT.slots.yaml.",
    )
    convert.add_argument(
        "--from", dest="source_format", choices=["csv"], required=True
    )
    convert.add_argument(
        "--to", dest="target_format", choices=["multislot"], required=True
    )
    convert.add_argument(
        "--label",
        required=True,
        metavar="COLUMN[=POSITIVE]",
        help="a column of 0 and 1, or 1 where it is POSITIVE and 0 elsewhere",
    )
    convert.add_argument(
        "--categorical",
        type=_names,
        default=[],
        metavar="A,B",
        help="columns that are id slots even if they look numeric",
    )
    convert.add_argument(
        "--numeric",
        type=_names,
        default=[],
        metavar="A,B",
        help="columns whose values must be numbers",
    )
    convert.add_argument(
        "--missing",
        action="append",
        metavar="TEXT",
        help="a text that stands for a missing value; may be repeated "
        "(default: the empty text and ?)",
    )
    convert.add_argument("--delimiter", help="default: found in the header")
    convert.add_argument("source", metavar="IN")
    convert.add_argument("target", metavar="OUT")
    convert.set_defaults(run=_convert)

    generate = commands.add_parser(
        "generate",
        help="write a click log whose click probabilities are known",
        description="Writes MultiSlot files part-*.txt in the order of time, "
        "the true probabilities and clicks beside them as .npy, and slots.yaml.",
    )
    generate.add_argument("--samples", type=int, default=300_000)
    generate.add_argument("--files", type=int, default=8)
    generate.add_argument("--seed", type=int, default=0)
    generate.add_argument("directory", metavar="DIR")
    generate.set_defaults(run=_generate)

    inspect = commands.add_parser(
        "inspect",
        help="check MultiSlot files and print what they hold",
        description="Reads every line of MultiSlot files and prints, for each "
        "slot, what it holds.",
    )
    inspect.add_argument(
        "--slots", metavar="YAML", help="the slot file (default: IN.slots.yaml)"
    )
    inspect.add_argument("files", nargs="+", metavar="IN")
    inspect.set_defaults(run=_inspect)
    return parser


def _names(text: str) -> list[str]:
    return [name.strip() for name in text.split(",") if name.strip()]


def _convert(options: argparse.Namespace) -> None:
    missing = ("", "?") if options.missing is None else tuple(options.missing)
    with _Progress(unit="B", unit_scale=True, unit_divisor=1024) as progress:
        spec = convert_csv(
            options.source,
            options.target,
            label=options.label,
            delimiter=options.delimiter,
            categorical=options.categorical,
            numeric=options.numeric,
            missing=missing,
            on_start=progress.start,
            on_progress=progress.update,
        )
    print(
        f"{options.target}: {len(spec.dense)} float slots, {len(spec.sparse)} "
        f"id slots; slots in {slots_path(options.target)}"
    )


def _generate(options: argparse.Namespace) -> None:
    with _Progress(unit=" samples", unit_scale=True) as progress:
        progress.start("generating", options.samples)
        log = generate_click_log(
            options.directory,
            options.samples,
            options.files,
            seed=options.seed,
            on_progress=progress.update,
        )
    print(
        f"{options.directory}: {options.samples} samples in {len(log.files)} "
        f"files; best possible AUC {log.best_auc():.4f}; slots in "
        f"{log.slots_file}"
    )


def _inspect(options: argparse.Namespace) -> None:
    slots = options.slots or slots_path(options.files[0])
    for line in inspect_files(options.files, slots):
        print(line)


class _Progress(contextlib.AbstractContextManager):
    """One bar after another on stderr; none where stderr is no terminal."""

    def __init__(self, **options):
        self._options = options
        self._bar = None

    def start(self, text: str, total: int) -> None:
        self._close()
        self._bar = tqdm.tqdm(
            desc=text, total=total, disable=None, leave=False, **self._options
        )

    def update(self, count: int) -> None:
        # The header is read before the first bar starts.
        if self._bar is not None:
            self._bar.update(count)

    def _close(self) -> None:
        if self._bar is not None:
            self._bar.close()

    def __exit__(self, exc_type, exc_value, traceback) -> None:
        self._close()


if __name__ == "__main__":
    sys.exit(main())
