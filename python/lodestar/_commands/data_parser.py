"""The parser of the data tool."""

import argparse
from typing import Any

from lodestar._commands import arguments
from lodestar._commands.arguments import Parser
from lodestar._formats import (
    CHECKS,
    FORMAT_NAMES,
    ID_FORMS,
    KEY_TYPES,
    LAYOUTS,
)

_sizes = arguments.at_least_each(1)
_positive = arguments.at_least(1)


def data_parser(prog: str) -> argparse.ArgumentParser:
    """Returns the parser; it stores the name of the command in `command`."""
    parser = Parser(
        prog=prog,
        description="Click-log files: MultiSlot text, HugeCTR's Norm, Raw and "
        "Parquet, TFRecord of tf.Example, CSV and TSV.",
    )
    commands = parser.add_subparsers(
        required=True, metavar="COMMAND", dest="command"
    )
    _add_convert(commands)
    _add_inspect(commands)
    _add_validate(commands)
    _add_generate(commands)
    return parser


def _add_convert(commands: Any) -> None:
    convert = commands.add_parser(
        "convert",
        help="convert files to another format",
        description="Writes the samples of all IN files, in order, to OUT, and "
        "their slots to OUT.schema.yaml. OUT is replaced atomically.",
    )
    _add_reading(convert)
    _add_on_error(convert)
    convert.add_argument(
        "--to",
        dest="target_format",
        choices=FORMAT_NAMES,
        help="format of OUT (default: by the extension of OUT)",
    )
    convert.add_argument(
        "--limit",
        type=_positive,
        metavar="N",
        help="stop after N samples (default: convert all)",
    )
    convert.add_argument(
        "--files",
        dest="num_files",
        type=_positive,
        metavar="N",
        help="make OUT a folder of N files with schema.yaml and, for norm and "
        "parquet, file_list.txt",
    )
    writing = convert.add_argument_group("writing")
    _add_key_options(writing, "out-", "default: as for reading")
    writing.add_argument(
        "--out-delimiter",
        type=_delimiter,
        metavar="CHAR",
        help="csv: the delimiter of OUT (default: as for reading)",
    )
    _add_writing(writing)
    _add_input(convert)
    convert.add_argument(
        "target", metavar="OUT", help="the file to write; a folder with --files"
    )


def _add_inspect(commands: Any) -> None:
    inspect = commands.add_parser(
        "inspect",
        help="print what files hold",
        description="Reads every sample and prints a summary of each slot.",
    )
    _add_reading(inspect)
    _add_on_error(inspect)
    inspect.add_argument(
        "--records",
        type=_count,
        default=0,
        metavar="N",
        help="also print the first N samples (default 0)",
    )
    inspect.add_argument("--json", action="store_true", help="print JSON")
    _add_input(inspect)


def _add_validate(commands: Any) -> None:
    validate = commands.add_parser(
        "validate",
        help="find every error",
        description="Reads everything and prints one line per error. The exit "
        "code is 1 if there are errors.",
    )
    _add_reading(validate)
    validate.add_argument(
        "--max-errors",
        type=_count,
        default=20,
        metavar="N",
        help="print at most N errors, and at most 100 of bad samples "
        "(default 20)",
    )
    validate.add_argument(
        "--paddle",
        action="store_true",
        help="also report empty slots, which Paddle refuses",
    )
    _add_input(validate)


def _add_generate(commands: Any) -> None:
    generate = commands.add_parser(
        "generate",
        help="write a click log whose click probabilities are known",
        description="Writes files part-* in the order of time, their true "
        "probabilities and clicks as .npy, and schema.yaml.",
    )
    generate.add_argument(
        "--format",
        dest="target_format",
        choices=FORMAT_NAMES,
        default="multislot",
        help="format of the files (default multislot)",
    )
    generate.add_argument(
        "--samples",
        type=_positive,
        default=300_000,
        metavar="N",
        help="samples of all files together (default 300000)",
    )
    generate.add_argument(
        "--files",
        dest="num_files",
        type=_positive,
        default=8,
        metavar="N",
        help="how many files to write (default 8)",
    )
    generate.add_argument(
        "--seed",
        type=arguments.at_least(0),
        default=0,
        metavar="N",
        help="seed of the random numbers (default 0)",
    )
    generate.add_argument(
        "--one-id",
        action="store_true",
        help="exactly one id in each id slot, as raw always has",
    )
    writing = generate.add_argument_group("writing")
    _add_key_options(writing)
    writing.add_argument(
        "--delimiter",
        type=_delimiter,
        metavar="CHAR",
        help="csv: the delimiter (default: a comma)",
    )
    _add_writing(writing)
    generate.add_argument(
        "directory", metavar="DIR", help="the folder to write the files to"
    )


def _add_input(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "files",
        nargs="+",
        metavar="IN",
        help="files to read, all of one format; a folder or a file list stands "
        "for its files",
    )


def _add_on_error(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--on-error",
        choices=["raise", "skip"],
        default="raise",
        help="stop at the first bad sample, or skip bad samples and print each "
        "(default raise)",
    )


def _add_reading(parser: argparse.ArgumentParser) -> None:
    reading = parser.add_argument_group("reading")
    reading.add_argument(
        "--from",
        "--format",
        dest="format",
        choices=FORMAT_NAMES,
        help="format of IN (default: by how the files begin; needed for raw "
        "unless they end in .raw)",
    )
    reading.add_argument(
        "--schema",
        metavar="YAML",
        help="the schema file (default: IN.schema.yaml or schema.yaml in the folder "
        "of IN; CSV and Parquet do not need one)",
    )
    reading.add_argument(
        "--label",
        metavar="COLUMN[=POSITIVE]",
        help="csv: the label, a column of numbers, or 1 where the column is "
        "POSITIVE and 0 elsewhere (default: label)",
    )
    reading.add_argument(
        "--categorical",
        type=arguments.names,
        metavar="A,B",
        help="csv: columns of ids (default: strings, and whole numbers that "
        "look like ids; see docs/data.md)",
    )
    reading.add_argument(
        "--numeric",
        type=arguments.names,
        metavar="A,B",
        help="csv: columns that are numbers (default: the others)",
    )
    reading.add_argument(
        "--ids",
        choices=ID_FORMS,
        help="csv: a cell of an id slot is a string to hash, or hexadecimal or "
        "decimal ids (default: hash, or int with a schema file)",
    )
    reading.add_argument(
        "--missing",
        action="append",
        metavar="TEXT",
        help="csv: a string that stands for a missing value; may be repeated "
        "(default: the empty text and ?)",
    )
    reading.add_argument(
        "--delimiter",
        type=_delimiter,
        metavar="CHAR",
        help="csv: the delimiter (default: found in the header)",
    )
    reading.add_argument(
        "--texts",
        type=arguments.names,
        metavar="A,B",
        help="tfrecord: id slots of bytes, to hash (default: as the first "
        "records have them)",
    )
    _add_key_options(reading)
    reading.add_argument(
        "--num-samples",
        type=_positive,
        metavar="N",
        help="raw: samples per file",
    )
    reading.add_argument(
        "--slot-size-array",
        type=_sizes,
        metavar="N,N",
        help="parquet, raw: for each id slot one more than its largest id; ids "
        "are checked, and shifted past the ids of the slots before",
    )


def _add_key_options(
    group: Any, prefix: str = "", text: str | None = None
) -> None:
    suffix = f"; {text}" if text else ""
    group.add_argument(
        f"--{prefix}key-type",
        choices=KEY_TYPES,
        help=f"norm, raw: type of the ids (default uint32){suffix}",
    )
    group.add_argument(
        f"--{prefix}layout",
        choices=LAYOUTS,
        help=f"raw: layout of a sample (default float){suffix}",
    )
    group.add_argument(
        f"--{prefix}nnz",
        f"--{prefix}nnz-per-slot",
        dest=f"{prefix}nnz_per_slot".replace("-", "_"),
        type=_integers,
        metavar="N[,N]",
        help=f"raw: ids of every id slot, or of each (default 1){suffix}",
    )


def _add_writing(group: Any) -> None:
    group.add_argument(
        "--check", choices=CHECKS, help="norm: checksums (default sum)"
    )
    group.add_argument(
        "--row-group-size",
        type=_positive,
        metavar="N",
        help="parquet: samples per row group",
    )
    group.add_argument(
        "--compression",
        metavar="CODEC",
        help="parquet: zstd, snappy, none, ...",
    )


def _integers(text: str) -> list[int] | int:
    numbers = _sizes(text)
    return numbers[0] if len(numbers) == 1 else numbers


def _count(text: str) -> int:
    return arguments.count(text, 0)


def _delimiter(text: str) -> str:
    text = {"tab": "\t", "\\t": "\t"}.get(text, text)
    if len(text) != 1:
        raise argparse.ArgumentTypeError(
            f"must be one character or tab, found {text!r}"
        )
    return text
