"""The data tool: `python -m lodestar.data convert|inspect|validate|generate`.

The exit code is 0, or 2 with an error on stderr, in one line unless it lists
columns; `validate` returns 1 if it finds errors.
"""

import collections
import functools
import json
import os
import sys
import warnings
from collections.abc import Callable, Mapping
from typing import Any

import click

from lodestar import _command_line
from lodestar._commands.data import DATA, given_options
from lodestar._data_tool.click_log import generate_click_log
from lodestar._data_tool.convert import convert
from lodestar._data_tool.inspect_files import inspect_files, print_found
from lodestar._data_tool.output import Target, check_target
from lodestar._data_tool.progress import Progress
from lodestar._data_tool.sources import Source
from lodestar._data_tool.tool_options import (
    read_options,
    with_flags,
    write_options,
)
from lodestar._data_tool.validate_files import Validation
from lodestar._errors import DataError, describe_error
from lodestar.data.files.find_format import (
    expand_inputs,
    format_of_name,
    one_format,
)
from lodestar.data.files.formats import FORMATS, Format
from lodestar.data.files.schema_beside import schema_of, schema_path
from lodestar.data.skipped_records import SkippedRecords
from lodestar.hugectr.file_list import FILE_LIST, write_file_list
from lodestar.schema import as_schema
from lodestar.schema.infer import INFERRED
from lodestar.schema.sections import TEXT_OPTIONS

_NAME = "lodestar.data"


def main(
    arguments: list[str] | None = None, prog: str = f"python -m {_NAME}"
) -> int:
    """Runs the tool and returns its exit code."""
    return run(_command_line.parse(DATA, arguments, prog))


def run(context: click.Context) -> int:
    """Runs a parsed command and returns its exit code."""
    commands: dict[str, Callable[..., int]] = {
        "convert": _convert,
        "inspect": _inspect,
        "validate": _validate,
        "generate": _generate,
    }

    def command() -> int:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", UserWarning)
            code = commands[context.info_name or ""](**context.params)
        for warning in caught:
            print(f"{_NAME}: warning: {warning.message}", file=sys.stderr)
        return code

    return _command_line.run(
        _NAME, command, describe=lambda e: with_flags(describe_error(e))
    )


def _convert(
    files: tuple[str, ...],
    target: str,
    to: str | None,
    on_error: str,
    limit: int | None,
    num_files: int | None,
    **options: Any,
) -> int:
    name = to or format_of_name(target)
    if name is None:
        raise DataError(
            f"{target}: the format is unknown. Pass --to {'|'.join(FORMATS)}, or a "
            "name that ends in .txt, .norm, .raw, .parquet, .csv or .tsv."
        )
    target_format = FORMATS[name]
    if (
        name == "parquet"
        and num_files is None
        and not target.endswith(target_format.suffixes)
    ):
        raise DataError(
            f"{target}: the name must end in .parquet, or pass --files N for a "
            "folder."
        )
    skipped = SkippedRecords() if on_error == "skip" else None
    check_target(target, files, num_files is not None)
    with Progress() as progress:
        source, source_format = _open(
            files, options, skipped, progress, target_format
        )
        writing = write_options(options, target_format, source_format)
        count = convert(
            source,
            Target(target, target_format, writing, num_files),
            limit=limit,
            progress=progress,
        )
    for note in source.notes:
        print(f"{_NAME}: {with_flags(note)}", file=sys.stderr)
    _print_skipped(skipped)
    schema = f"{target}/schema.yaml"
    if num_files is None:
        schema = schema_path(target)
    kinds = collections.Counter(
        column.kind.replace("_", "-") for column in source.spec
    )
    columns = ", ".join(f"{n} {kind}" for kind, n in kinds.items())
    print(f"{target}: {count} samples; columns: {columns}; {schema}")
    return 0


def _print_skipped(skipped: SkippedRecords | None) -> None:
    if skipped is None:
        return
    for message in skipped.messages:
        print(f"{_NAME}: skipped: {message}", file=sys.stderr)
    if skipped.count:
        print(f"{_NAME}: {skipped.count} records were skipped", file=sys.stderr)


def _inspect(
    files: tuple[str, ...],
    on_error: str,
    records: int,
    as_json: bool,
    **options: Any,
) -> int:
    skipped = SkippedRecords() if on_error == "skip" else None
    with Progress() as progress:
        source, _ = _open(files, options, skipped, progress)
        found = inspect_files(source, records=records, progress=progress)
    found["notes"] = [with_flags(note) for note in source.notes]
    _print_skipped(skipped)
    if as_json:
        print(json.dumps(found, ensure_ascii=False, allow_nan=False))
    else:
        print_found(found)
    return 0


def _validate(
    files: tuple[str, ...], max_errors: int, paddle: bool, **options: Any
) -> int:
    skipped = SkippedRecords()
    with Progress() as progress:
        try:
            source, source_format = _open(files, options, skipped, progress)
        except DataError:
            if not skipped.messages:
                raise
            # No file can be opened; `skipped` has the reasons.
            for line in skipped.messages[:max_errors]:
                print(line)
            return _print_counts(0, skipped.count, len(files))
        validation = Validation(
            source,
            skipped,
            format_name=source_format.name,
            for_paddle=paddle,
            progress=progress,
        )
        for number, line in enumerate(validation.errors()):
            if number < max_errors:
                print(line)
    shared = validation.shared_ids()
    if shared is not None:
        print(shared)
    return _print_counts(
        validation.num_samples, validation.num_errors, len(source.paths)
    )


def _print_counts(samples: int, errors: int, files: int) -> int:
    """Prints the last line of `validate` and returns its exit code."""
    print(
        f"{samples} good samples and {errors or 'no'} "
        f"error{'' if errors == 1 else 's'} in {files} "
        f"file{'' if files == 1 else 's'}"
    )
    return 1 if errors else 0


def _generate(
    directory: str,
    format: str,
    samples: int,
    num_files: int,
    seed: int,
    one_id: bool,
    **options: Any,
) -> int:
    made = FORMATS[format]
    writer = functools.partial(made.make, **write_options(options, made))
    with Progress() as progress:
        progress.start("generating", samples)
        log = generate_click_log(
            directory,
            samples,
            num_files,
            seed=seed,
            one_id=one_id or made.name in ("raw", "instant"),
            writer=writer,
            suffix=made.suffixes[0],
            on_progress=progress.update,
        )
    if made.listed:
        write_file_list(os.path.join(directory, FILE_LIST), log.files)
    print(
        f"{directory}: {samples} samples in {len(log.files)} files; best "
        f"possible AUC {log.best_auc():.4f}; schema in {log.schema_file}"
    )
    return 0


def _open(
    files: tuple[str, ...],
    options: Mapping[str, Any],
    skipped: SkippedRecords | None,
    progress: Progress,
    target_format: Format | None = None,
) -> tuple[Source, Format]:
    paths = expand_inputs(files)
    # `--delimiter` may be an option of the output.
    given = set(given_options(options)) - {"delimiter"}
    source_format = FORMATS[
        options["format"]
        or one_format(
            paths, has_text_options=not given.isdisjoint(TEXT_OPTIONS)
        )
    ]
    found = read_options(options, source_format, target_format)
    schema = None
    if options["schema"] is not None:
        schema = as_schema(options["schema"])
    elif not any(name in found for name in INFERRED):
        schema = schema_of(paths)
    if schema is None and source_format.dataset is not None:
        raise DataError(
            f"{paths[0]}: the columns are unknown. Pass a schema file with "
            f"--schema; {schema_path(paths[0])} does not exist."
        )
    source = Source(
        source_format, paths, schema, skipped, progress.update, **found
    )
    return source, source_format
