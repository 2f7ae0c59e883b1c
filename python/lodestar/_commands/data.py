"""The command line of the data tool."""

from collections.abc import Mapping
from typing import Any

import click

from lodestar._commands.parsing import Command, comma_separated, group, option
from lodestar._formats import (
    CHECKS,
    FORMAT_NAMES,
    KEY_TYPES,
    LAYOUTS,
    WRITTEN_NAMES,
)

_positive = click.IntRange(min=1)
_count = click.IntRange(min=0)
_written = click.Choice(WRITTEN_NAMES)
_names = comma_separated()
_sizes = comma_separated(_positive)


def _nnz(text: str) -> list[int] | int:
    numbers = _sizes(text)
    return numbers[0] if len(numbers) == 1 else numbers


def _text(text: str) -> str:
    if not text:
        raise click.BadParameter("The delimiter is empty.")
    return {"tab": "\t", "\\t": "\t"}.get(text, text)


def _delimiter(flag: str, default: str) -> click.Option:
    return option(
        flag,
        f"csv, tsv: delimiter, e.g. ';' or tab.  [default: {default}]",
        _text,
        "TEXT",
    )


def _keys(prefix: str = "", default: str = "") -> list[click.Option]:
    return [
        option(
            f"--{prefix}key-type",
            f"norm, raw: type of the ids.  [default: {default or 'uint32'}]",
            click.Choice(KEY_TYPES),
        ),
        option(
            f"--{prefix}layout",
            f"raw: layout of an example.  [default: {default or 'float'}]",
            click.Choice(LAYOUTS),
        ),
        option(
            f"{prefix.replace('-', '_')}nnz_per_slot --{prefix}nnz",
            "raw: number of ids in every id column, or in each.  "
            f"[default: {default or '1'}]",
            _nnz,
            "N[,N]",
        ),
    ]


# Parameters have the names of the parameters of `open_dataset`.
READING = [
    option(
        "--format",
        "Format of IN.  [default: detected from the first bytes; raw and "
        "instant only from the extensions .raw, .bin and .instant]",
        click.Choice(FORMAT_NAMES),
    ),
    option(
        "--schema",
        "Schema of IN: YAML, or .pbtxt of Merlin.  [default: "
        "IN.schema.yaml or schema.yaml in the folder of IN, else inferred]",
        metavar="FILE",
    ),
    option(
        "--label",
        "The label: a column of numbers; or with POSITIVE, 1 where the column is "
        "POSITIVE and 0 elsewhere.  [default: label]",
        metavar="COLUMN[=POSITIVE]",
    ),
    option(
        "--categorical",
        "Columns of ids. Inference decides only where the values leave one "
        "meaning: columns of integers must be declared.",
        _names,
        "A,B",
    ),
    option("--numeric", "Columns of numbers.", _names, "A,B"),
    option("--ignore", "Columns to leave out.", _names, "A,B"),
    option(
        "--sample-weight",
        "The column with the weight of each example in the loss.",
        metavar="COLUMN",
    ),
    option(
        "na_values --na-value",
        "String that means missing; repeat for several.  [default: the "
        "defaults of pandas, ? and \\N]",
        metavar="TEXT",
        multiple=True,
    ),
    option(
        "--columns",
        "csv, tsv: names of all columns, without a header or instead of it.",
        _names,
        "A,B",
    ),
    option(
        "--header/--no-header",
        "csv, tsv: whether the first record is a header.  [default: if certain]",
        default=None,
    ),
    option(
        "--quote",
        "csv, tsv: quote character, or '' if none quotes.  [default: \" where "
        "certain]",
        metavar="TEXT",
    ),
    option(
        "--skip-lines",
        "csv, tsv: lines before the first record.  [default: 0]",
        _count,
        "N",
    ),
    option(
        "--encoding",
        "csv, tsv: character encoding.  [default: utf-8]",
        metavar="NAME",
    ),
    _delimiter("--delimiter", "detected"),
    *_keys(),
    option("--num-samples", "raw: examples per file.", _positive, "N"),
    option(
        "--slot-size-array",
        "parquet, raw: for each id column, its largest id plus 1. Ids are "
        "checked, and shifted past the ids of the columns before.",
        _sizes,
        "N,N",
    ),
]
WRITING = [
    option(
        "--batch-size",
        "instant: batch size with which Paddle reads OUT.  [default: 32]",
        _positive,
        "N",
    ),
    option("--check", "norm: checksums.  [default: sum]", click.Choice(CHECKS)),
    option(
        "--row-group-size", "parquet: examples per row group.", _positive, "N"
    ),
    option(
        "--compression", "parquet: zstd, snappy, none, ...", metavar="CODEC"
    ),
]
# For options that apply to both input and output.
OUT_WRITING = [
    _delimiter("--out-delimiter", "as for reading"),
    *_keys("out-", "as for reading"),
]


def given_options(params: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the reading options that a command line has, for `open_dataset`."""
    values = {option.name: params[option.name] for option in READING}
    return {n: v for n, v in values.items() if v not in (None, ())}


_FILES = click.Argument(["files"], nargs=-1, required=True, metavar="IN...")
_ON_ERROR = option(
    "--on-error",
    "Stop at the first bad example, or skip and report bad examples.",
    click.Choice(["raise", "skip"]),
    default="raise",
)
_ALL = "All IN are of one format; a folder or a file list stands for its files."

DATA = group(
    "data",
    "Convert, inspect, validate and generate training data. Formats: Paddle's "
    "MultiSlot text and FileInstant, HugeCTR's Norm and Raw, Parquet, Arrow, "
    "TFRecord of tf.Example, CSV, TSV, JSON lines.",
    [
        Command(
            "convert",
            [
                *READING,
                _ON_ERROR,
                option(
                    "--to",
                    "Format of OUT.  [default: from the extension of OUT]",
                    _written,
                ),
                option("--limit", "Stop after N examples.", _positive, "N"),
                option(
                    "num_files --files",
                    "Make OUT a folder of N files with schema.yaml and, "
                    "for norm and parquet, file_list.txt.",
                    _positive,
                    "N",
                ),
                *OUT_WRITING,
                *WRITING,
                _FILES,
                click.Argument(["target"], metavar="OUT"),
            ],
            help="Convert files to another format. Writes the examples of all "
            "IN, in order, to OUT, and their schema to OUT.schema.yaml. OUT is "
            f"replaced atomically.\n\n{_ALL}",
        ),
        Command(
            "inspect",
            [
                *READING,
                _ON_ERROR,
                option(
                    "--records",
                    "Also print the first N examples.",
                    _count,
                    "N",
                    default=0,
                ),
                option("as_json --json", "Print JSON.", is_flag=True),
                _FILES,
            ],
            help="Print the schema and statistics of files. Reads every example."
            f"\n\n{_ALL}",
        ),
        Command(
            "validate",
            [
                *READING,
                option(
                    "--max-errors",
                    "Print at most N errors, and at most 100 of bad examples.",
                    _count,
                    "N",
                    default=20,
                ),
                option(
                    "--paddle",
                    "Also report empty columns, which Paddle refuses.",
                    is_flag=True,
                ),
                _FILES,
            ],
            help="Print every error of files, one per line. The exit code is 1 "
            f"if there are errors.\n\n{_ALL}",
        ),
        Command(
            "generate",
            [
                option(
                    "--format",
                    "Format of the files.",
                    _written,
                    default="multislot",
                ),
                option(
                    "--samples",
                    "Examples of all files together.",
                    _positive,
                    "N",
                    default=300_000,
                ),
                option(
                    "num_files --files",
                    "Number of files.",
                    _positive,
                    "N",
                    default=8,
                ),
                option(
                    "--seed",
                    "Seed of the random numbers.",
                    _count,
                    "N",
                    default=0,
                ),
                option(
                    "--one-id",
                    "Exactly one id in each id column, as raw and instant always have.",
                    is_flag=True,
                ),
                _delimiter("--delimiter", "comma for csv, tab for tsv"),
                *_keys(),
                *WRITING,
                click.Argument(["directory"], metavar="DIR"),
            ],
            help="Generate a click log with known click probabilities. Writes "
            "files part-* to DIR in the order of time, their true "
            "probabilities and clicks as .npy, and schema.yaml.",
        ),
    ],
)
