"""The data tool: `python -m lodestar.data convert|inspect|validate|generate`.

Exit code 0, or 2 with one line on stderr that names what is wrong; `validate`
ends with 1 if it found errors.
"""

import argparse
import functools
import json
import os
import sys
import warnings

from lodestar import command_line
from lodestar._commands.data_parser import data_parser
from lodestar._errors import DataError
from lodestar.data.schema import as_schema
from lodestar.data.skipped_records import SkippedRecords
from lodestar.data.source import Source
from lodestar.data.tool.convert import convert
from lodestar.data.tool.find_format import (
    expand_inputs,
    format_of_name,
    one_format,
)
from lodestar.data.tool.formats import FORMATS, INFERRED, Format
from lodestar.data.tool.inspect_files import as_text, inspect_files
from lodestar.data.tool.output import (
    FILE_LIST,
    Target,
    check_target,
)
from lodestar.data.tool.progress import Progress
from lodestar.data.tool.schema_beside import schema_of, schema_path
from lodestar.data.tool.tool_options import read_options, write_options
from lodestar.data.tool.validate_files import Validation
from lodestar.hugectr.file_list import write_file_list
from lodestar.testing.click_log import generate_click_log

_NAME = "lodestar.data"


def main(
    arguments: list[str] | None = None, prog: str = f"python -m {_NAME}"
) -> int:
    """Runs the tool and returns its exit code."""
    commands = {
        "convert": _convert,
        "inspect": _inspect,
        "validate": _validate,
        "generate": _generate,
    }
    options = data_parser(prog).parse_args(arguments)

    def command() -> int:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", UserWarning)
            code = commands[options.command](options)
        for warning in caught:
            print(f"{_NAME}: warning: {warning.message}", file=sys.stderr)
        return code

    return command_line.run(_NAME, command)


def _convert(options: argparse.Namespace) -> int:
    if options.target_format is None:
        options.target_format = format_of_name(options.target)
        if options.target_format is None:
            raise DataError(
                f"{options.target}: which format? Give --to "
                f"{'|'.join(FORMATS)}, or a name that ends in .txt, .norm, "
                ".raw, .parquet, .csv or .tsv"
            )
    target_format = FORMATS[options.target_format]
    if (
        target_format.name == "parquet"
        and options.num_files is None
        and not options.target.endswith(target_format.suffixes)
    ):
        raise DataError(
            f"{options.target}: wanted a name that ends in .parquet, or --files "
            "N for a folder"
        )
    skipped = SkippedRecords() if options.on_error == "skip" else None
    check_target(options.target, options.files, options.num_files is not None)
    with Progress() as progress:
        source, source_format = _open(options, skipped, progress, target_format)
        target = Target(
            options.target,
            target_format,
            write_options(options, target_format, source_format),
            options.num_files,
        )
        count = convert(source, target, limit=options.limit, progress=progress)
    if skipped is not None:
        _print_skipped(skipped)
    schema = f"{options.target}/schema.yaml"
    if options.num_files is None:
        schema = schema_path(options.target)
    spec = source.spec
    kinds = ", ".join(
        f"{len(found)} {kind}"
        for kind, found in (
            ("label", spec.labels),
            ("dense", spec.dense),
            ("sparse", spec.sparse),
            ("one-hot", spec.one_hot),
        )
        if found
    )
    print(f"{options.target}: {count} samples; slots: {kinds}; {schema}")
    return 0


def _print_skipped(skipped: SkippedRecords) -> None:
    for message in skipped.messages:
        print(f"{_NAME}: skipped: {message}", file=sys.stderr)
    if skipped.count:
        print(
            f"{_NAME}: {skipped.count} records were skipped",
            file=sys.stderr,
        )


def _inspect(options: argparse.Namespace) -> int:
    skipped = SkippedRecords() if options.on_error == "skip" else None
    with Progress() as progress:
        source, _ = _open(options, skipped, progress)
        found = inspect_files(
            source, records=options.records, progress=progress
        )
    if skipped is not None:
        _print_skipped(skipped)
    if options.json:
        print(json.dumps(found, ensure_ascii=False, allow_nan=False))
        return 0
    for line in as_text(found):
        print(line)
    return 0


def _validate(options: argparse.Namespace) -> int:
    skipped = SkippedRecords()
    with Progress() as progress:
        source, source_format = _open(options, skipped, progress)
        validation = Validation(
            source,
            skipped,
            format_name=source_format.name,
            for_paddle=options.paddle,
            progress=progress,
        )
        for number, line in enumerate(validation.errors()):
            if number < options.max_errors:
                print(line)
    shared = validation.shared_ids()
    if shared is not None:
        print(shared)
    samples, errors = validation.num_samples, validation.num_errors
    print(
        f"{samples} good samples and {errors or 'no'} "
        f"error{'' if errors == 1 else 's'} in {len(source.paths)} "
        f"file{'' if len(source.paths) == 1 else 's'}"
    )
    return 1 if errors else 0


def _generate(options: argparse.Namespace) -> int:
    made = FORMATS[options.target_format]
    writer = functools.partial(made.make, **write_options(options, made, None))
    with Progress() as progress:
        progress.start("generating", options.samples)
        log = generate_click_log(
            options.directory,
            options.samples,
            options.num_files,
            seed=options.seed,
            one_id=options.one_id or made.name == "raw",
            writer=writer,
            suffix=made.suffixes[0],
            on_progress=progress.update,
        )
    if made.listed:
        write_file_list(os.path.join(options.directory, FILE_LIST), log.files)
    print(
        f"{options.directory}: {options.samples} samples in {len(log.files)} "
        f"files; best possible AUC {log.best_auc():.4f}; slots in "
        f"{log.schema_file}"
    )
    return 0


def _open(
    options: argparse.Namespace,
    skipped: SkippedRecords | None,
    progress: Progress,
    target_format: Format | None = None,
) -> tuple[Source, Format]:
    paths = expand_inputs(options.files)
    source_format = FORMATS[options.format or one_format(paths)]
    found = read_options(options, source_format, target_format)
    schema = None
    if options.schema is not None:
        schema = as_schema(options.schema)
    elif not any(name in found for name in INFERRED):
        schema = schema_of(paths)
    if schema is None and not source_format.finds_schema:
        raise DataError(
            f"{paths[0]}: which columns? Give a schema file (--schema); there is "
            f"no {schema_path(paths[0])}"
        )
    source = source_format.open(
        paths, schema, skipped, progress.update, **found
    )
    return source, source_format


if __name__ == "__main__":
    sys.exit(main())
