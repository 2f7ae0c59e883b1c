"""The command line of the data tool."""

from collections.abc import Mapping
from typing import Any

import click

from lodestar._commands.parsing import Command, comma_separated, group
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
    return click.Option(
        [flag],
        type=_text,
        metavar="TEXT",
        help=f"csv, tsv: delimiter, e.g. ';' or tab.  [default: {default}]",
    )


def _keys(prefix: str = "", default: str = "") -> list[click.Option]:
    return [
        click.Option(
            [f"--{prefix}key-type"],
            type=click.Choice(KEY_TYPES),
            help=f"norm, raw: type of the ids.  [default: {default or 'uint32'}]",
        ),
        click.Option(
            [f"--{prefix}layout"],
            type=click.Choice(LAYOUTS),
            help=f"raw: layout of an example.  [default: {default or 'float'}]",
        ),
        click.Option(
            [f"{prefix}nnz_per_slot".replace("-", "_"), f"--{prefix}nnz"],
            type=_nnz,
            metavar="N[,N]",
            help="raw: number of ids in every id column, or in each.  "
            f"[default: {default or '1'}]",
        ),
    ]


# Each parameter is called as the parameter of `open_dataset`.
READING = [
    click.Option(
        ["--format"],
        type=click.Choice(FORMAT_NAMES),
        help="Format of IN.  [default: detected from the first bytes; raw only "
        "from the extension .raw or .bin]",
    ),
    click.Option(
        ["--schema"],
        metavar="FILE",
        help="Schema of IN: YAML, or .pbtxt of Merlin.  [default: "
        "IN.schema.yaml or schema.yaml in the folder of IN, else inferred]",
    ),
    click.Option(
        ["--label"],
        metavar="COLUMN[=POSITIVE]",
        help="The label, a column of numbers; or 1 where the column is POSITIVE "
        "and 0 elsewhere.  [default: label]",
    ),
    click.Option(
        ["--categorical"],
        type=_names,
        metavar="A,B",
        help="Columns of ids.  [default: inferred]",
    ),
    click.Option(
        ["--numeric"],
        type=_names,
        metavar="A,B",
        help="Columns of numbers.  [default: inferred]",
    ),
    click.Option(
        ["na_values", "--na-value"],
        multiple=True,
        metavar="TEXT",
        help="String that means missing; repeat for several.  [default: those "
        "of pandas, ? and \\N]",
    ),
    click.Option(
        ["--columns"],
        type=_names,
        metavar="A,B",
        help="csv, tsv: names of all columns of files without a header.",
    ),
    click.Option(
        ["--encoding"],
        metavar="NAME",
        help="csv, tsv: character encoding.  [default: utf-8]",
    ),
    _delimiter("--delimiter", "detected"),
    *_keys(),
    click.Option(
        ["--num-samples"],
        type=_positive,
        metavar="N",
        help="raw: examples per file.",
    ),
    click.Option(
        ["--slot-size-array"],
        type=_sizes,
        metavar="N,N",
        help="parquet, raw: for each id column, its largest id plus 1. Ids are "
        "checked, and shifted past the ids of the columns before.",
    ),
]
WRITING = [
    click.Option(
        ["--check"],
        type=click.Choice(CHECKS),
        help="norm: checksums.  [default: sum]",
    ),
    click.Option(
        ["--row-group-size"],
        type=_positive,
        metavar="N",
        help="parquet: examples per row group.",
    ),
    click.Option(
        ["--compression"],
        metavar="CODEC",
        help="parquet: zstd, snappy, none, ...",
    ),
]
# For options of both sides.
OUT_WRITING = [
    _delimiter("--out-delimiter", "as for reading"),
    *_keys("out-", "as for reading"),
]


def given_options(params: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the options for reading files that a command line has.

    Args:
        params: The parameters of a command that has `READING`.

    Returns:
        The values by name, as `open_dataset` takes them.
        Options that were not given are left out.
    """
    values = {option.name: params[option.name] for option in READING}
    return {n: v for n, v in values.items() if v not in (None, ())}


_FILES = click.Argument(["files"], nargs=-1, required=True, metavar="IN...")
_ON_ERROR = click.Option(
    ["--on-error"],
    type=click.Choice(["raise", "skip"]),
    default="raise",
    help="Stop at the first bad example, or skip and report bad examples.",
)
_ALL = "All IN are of one format; a folder or a file list stands for its files."

DATA = group(
    "data",
    "Convert, inspect, validate and generate training data. Formats: MultiSlot "
    "text, HugeCTR's Norm and Raw, Parquet, Arrow, TFRecord of tf.Example, CSV, TSV.",
    [
        Command(
            "convert",
            [
                *READING,
                _ON_ERROR,
                click.Option(
                    ["--to"],
                    type=_written,
                    help="Format of OUT.  [default: from the extension of OUT]",
                ),
                click.Option(
                    ["--limit"],
                    type=_positive,
                    metavar="N",
                    help="Stop after N examples.",
                ),
                click.Option(
                    ["num_files", "--files"],
                    type=_positive,
                    metavar="N",
                    help="Make OUT a folder of N files with schema.yaml and, "
                    "for norm and parquet, file_list.txt.",
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
                click.Option(
                    ["--records"],
                    type=_count,
                    default=0,
                    metavar="N",
                    help="Also print the first N examples.",
                ),
                click.Option(
                    ["as_json", "--json"], is_flag=True, help="Print JSON."
                ),
                _FILES,
            ],
            help="Print the schema and statistics of files. Reads every example."
            f"\n\n{_ALL}",
        ),
        Command(
            "validate",
            [
                *READING,
                click.Option(
                    ["--max-errors"],
                    type=_count,
                    default=20,
                    metavar="N",
                    help="Print at most N errors, and at most 100 of bad "
                    "examples.",
                ),
                click.Option(
                    ["--paddle"],
                    is_flag=True,
                    help="Also report empty columns, which Paddle refuses.",
                ),
                _FILES,
            ],
            help="Print every error of files, one per line. The exit code is 1 "
            f"if there are errors.\n\n{_ALL}",
        ),
        Command(
            "generate",
            [
                click.Option(
                    ["--format"],
                    type=_written,
                    default="multislot",
                    help="Format of the files.",
                ),
                click.Option(
                    ["--samples"],
                    type=_positive,
                    default=300_000,
                    metavar="N",
                    help="Examples of all files together.",
                ),
                click.Option(
                    ["num_files", "--files"],
                    type=_positive,
                    default=8,
                    metavar="N",
                    help="Number of files.",
                ),
                click.Option(
                    ["--seed"],
                    type=_count,
                    default=0,
                    metavar="N",
                    help="Seed of the random numbers.",
                ),
                click.Option(
                    ["--one-id"],
                    is_flag=True,
                    help="Exactly one id in each id column, as raw always has.",
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
