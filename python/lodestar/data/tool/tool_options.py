"""The command line of the data tool, and which option is for which format."""

import argparse
from typing import Any

from lodestar import command_line
from lodestar._errors import DataError
from lodestar.data.csv.csv_table import ID_FORMS
from lodestar.data.hugectr.key_records import KEY_DTYPES
from lodestar.data.hugectr.norm_writer import CHECKS
from lodestar.data.hugectr.raw_writer import LAYOUTS
from lodestar.data.tool.formats import FORMATS, Format

_OUT = "out_"
_sizes = command_line.at_least_each(1)


def build_parser() -> argparse.ArgumentParser:
    """The parser; `command` of what it returns is the command's name."""
    parser = command_line.Parser(
        prog="python -m lodestar.data",
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


def given_options(options: argparse.Namespace) -> dict[str, Any]:
    """What was given of the arguments that `add_read_arguments` has added.

    Args:
        options: What the parser returned.

    Returns:
        `format` and `slots`, None where not given, and the options of a format's
        reader, only those given: all as `open_source` and `prepare_files` take
        them.
    """
    reads = dict.fromkeys(n for f in FORMATS.values() for n in f.reads)
    given = {name: getattr(options, name) for name in reads}
    return {
        "format": options.format,
        "slots": options.slots,
        **{n: value for n, value in given.items() if value is not None},
    }


def read_options(
    options: argparse.Namespace, source: Format, target: Format | None
) -> dict[str, Any]:
    """The options of reading that were given.

    Raises:
        DataError: One is for another format.
    """
    found = given_options(options)
    del found["format"], found["slots"]
    for name in list(found):
        if name in source.reads:
            continue
        if target is None or name not in target.writes:
            formats = [f.name for f in FORMATS.values() if name in f.reads]
            raise _misplaced(name, formats, source)
        del found[name]
    return found


def write_options(
    options: argparse.Namespace, target: Format, source: Format | None
) -> dict[str, Any]:
    """The options of writing that were given.

    One that is for both sides is the output's too, unless `--out-...` says
    otherwise.

    Raises:
        DataError: One is for another format.
    """
    found = {}
    for name in dict.fromkeys(n for f in FORMATS.values() for n in f.writes):
        own = getattr(options, _OUT + name, None)
        value = getattr(options, name, None) if own is None else own
        if value is None:
            continue
        if name in target.writes:
            found[name] = value
        elif own is not None or source is None or name not in source.reads:
            formats = [f.name for f in FORMATS.values() if name in f.writes]
            raise _misplaced(_OUT + name if own else name, formats, target)
    return found


def option_name(name: str) -> str:
    """What an option is called on the command line."""
    plain = name.removeprefix(_OUT)
    spelled = {"nnz_per_slot": "nnz"}.get(plain, plain)
    prefix = "out-" if name != plain else ""
    return f"--{prefix}{spelled.replace('_', '-')}"


def _misplaced(name: str, formats: list[str], found: Format) -> DataError:
    return DataError(
        f"{option_name(name)} is for {', '.join(formats)}, and not for "
        f"{found.name}"
    )


def _add_convert(commands: Any) -> None:
    convert = commands.add_parser(
        "convert",
        help="convert files to another format",
        description="Writes the samples of all IN, in order, to OUT, and their "
        "slots to OUT.slots.yaml. OUT appears whole or not at all.",
    )
    _add_reading(convert)
    _add_on_error(convert)
    convert.add_argument(
        "--to",
        dest="target_format",
        choices=list(FORMATS),
        help="default: as OUT's name ends",
    )
    convert.add_argument("--limit", type=int, help="stop after so many samples")
    convert.add_argument(
        "--files",
        dest="num_files",
        type=int,
        metavar="N",
        help="make OUT a folder of N files, with slots.yaml and, for norm and "
        "parquet, file_list.txt",
    )
    writing = convert.add_argument_group("writing")
    _add_key_options(writing, "out-", "default: as for reading")
    writing.add_argument("--out-delimiter", type=_delimiter)
    _add_writing(writing)
    convert.add_argument("files", nargs="+", metavar="IN")
    convert.add_argument("target", metavar="OUT")


def _add_inspect(commands: Any) -> None:
    inspect = commands.add_parser(
        "inspect",
        help="print what files hold",
        description="Reads every sample and prints, for each slot, what it "
        "holds.",
    )
    _add_reading(inspect)
    _add_on_error(inspect)
    inspect.add_argument(
        "--records",
        type=_count,
        default=0,
        metavar="N",
        help="print the first N samples, too",
    )
    inspect.add_argument("--json", action="store_true", help="print JSON")
    inspect.add_argument("files", nargs="+", metavar="IN")


def _add_validate(commands: Any) -> None:
    validate = commands.add_parser(
        "validate",
        help="find every error",
        description="Reads everything and prints a line for each error. Ends "
        "with 1 if there was any.",
    )
    _add_reading(validate)
    validate.add_argument(
        "--max-errors",
        type=_count,
        default=20,
        metavar="N",
        help="print so many, at most 100 of bad samples (default 20)",
    )
    validate.add_argument(
        "--paddle",
        action="store_true",
        help="empty slots, which Paddle refuses, are errors, too",
    )
    validate.add_argument("files", nargs="+", metavar="IN")


def _add_generate(commands: Any) -> None:
    generate = commands.add_parser(
        "generate",
        help="write a click log whose click probabilities are known",
        description="Writes files part-* in the order of time, the true "
        "probabilities and clicks beside them as .npy, and slots.yaml.",
    )
    generate.add_argument(
        "--format",
        dest="target_format",
        choices=list(FORMATS),
        default="multislot",
    )
    generate.add_argument("--samples", type=int, default=300_000)
    generate.add_argument("--files", dest="num_files", type=int, default=8)
    generate.add_argument("--seed", type=int, default=0)
    generate.add_argument(
        "--one-id",
        action="store_true",
        help="exactly one id in each id slot, as raw always has",
    )
    writing = generate.add_argument_group("writing")
    _add_key_options(writing)
    writing.add_argument("--delimiter", type=_delimiter)
    _add_writing(writing)
    generate.add_argument("directory", metavar="DIR")


def _add_on_error(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--on-error",
        choices=["raise", "skip"],
        default="raise",
        help="skip leaves bad samples out, and says which",
    )


def _add_reading(parser: argparse.ArgumentParser) -> None:
    add_read_arguments(parser.add_argument_group("reading"))


def add_read_arguments(reading: Any) -> None:
    """Adds the arguments that say how files are read, as the data tool has them.

    They are `--format` (or `--from`), `--slots` and an option for each of the
    readers' own; `given_options` says which were given.

    Args:
        reading: An `argparse.ArgumentParser`, or a group of one.
    """
    reading.add_argument(
        "--from",
        "--format",
        dest="format",
        choices=list(FORMATS),
        help="default: as the files begin; needed for raw unless they end in "
        ".raw",
    )
    reading.add_argument(
        "--slots",
        metavar="YAML",
        help="the slot file (default: IN.slots.yaml or slots.yaml beside IN; "
        "CSV and Parquet may do without)",
    )
    reading.add_argument(
        "--label",
        metavar="COLUMN[=POSITIVE]",
        help="csv: a column of 0 and 1, or 1 where it is POSITIVE and 0 "
        "elsewhere (default: label)",
    )
    reading.add_argument(
        "--categorical",
        type=command_line.names,
        metavar="A,B",
        help="csv: columns that are ids (default: texts, and whole numbers "
        "that look like ids; see docs/data.md)",
    )
    reading.add_argument(
        "--numeric",
        type=command_line.names,
        metavar="A,B",
        help="csv: columns that are numbers (default: the others)",
    )
    reading.add_argument(
        "--ids",
        choices=ID_FORMS,
        help="csv: a cell of an id slot is a text to hash, or hexadecimal or "
        "decimal ids (default: hash, or int with a slot file)",
    )
    reading.add_argument(
        "--missing",
        action="append",
        metavar="TEXT",
        help="csv: a text that stands for a missing value; may be repeated "
        "(default: the empty text and ?)",
    )
    reading.add_argument(
        "--delimiter", type=_delimiter, help="csv: default: found in the header"
    )
    reading.add_argument(
        "--texts",
        type=command_line.names,
        metavar="A,B",
        help="tfrecord: id slots of bytes, to hash (default: as the first "
        "records have them)",
    )
    _add_key_options(reading)
    reading.add_argument(
        "--num-samples",
        type=command_line.at_least(1),
        metavar="N",
        help="raw: samples a file has",
    )
    reading.add_argument(
        "--slot-size-array",
        type=_sizes,
        metavar="N,N",
        help="parquet, raw: for each id slot one more than its largest id; ids "
        "are checked, and shifted past those of the slots before",
    )


def _add_key_options(
    group: Any, prefix: str = "", text: str | None = None
) -> None:
    suffix = f"; {text}" if text else ""
    group.add_argument(
        f"--{prefix}key-type",
        choices=list(KEY_DTYPES),
        help=f"norm, raw: of the ids (default uint32){suffix}",
    )
    group.add_argument(
        f"--{prefix}layout",
        choices=LAYOUTS,
        help=f"raw: what its words are (default float){suffix}",
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
        "--check", choices=CHECKS, help="norm: check sums (default sum)"
    )
    group.add_argument(
        "--row-group-size", type=int, metavar="N", help="parquet: in samples"
    )
    group.add_argument("--compression", help="parquet: zstd, snappy, none, ...")


def _integers(text: str) -> list[int] | int:
    numbers = _sizes(text)
    return numbers[0] if len(numbers) == 1 else numbers


def _count(text: str) -> int:
    return command_line.count(text, 0)


def _delimiter(text: str) -> str:
    return {"tab": "\t", "\\t": "\t"}.get(text, text)
