"""Files of any format: as a dataset, or as a source of columns."""

import os
from collections.abc import Callable, Sequence
from types import MappingProxyType
from typing import Any

import tensorflow as tf

from lodestar._errors import DataError
from lodestar._typing import StrPaths
from lodestar.data.csv.csv_table import parse_label
from lodestar.data.record_dataset import as_paths
from lodestar.data.schema import Schema, SchemaLike, as_schema
from lodestar.data.skipped_records import SkippedRecords
from lodestar.data.source import Source
from lodestar.data.table.table_dataset import TableDataset, is_table
from lodestar.data.tool.find_format import expand_inputs, one_format
from lodestar.data.tool.formats import FORMATS, Format, Options
from lodestar.data.tool.output import FOLDER_SCHEMA, schema_path

# With one of these, the slots of CSV files are found in the files.
_INFERRING = ("label", "categorical", "numeric")


def open_dataset(
    files: Any,
    schema: SchemaLike | None = None,
    batch_size: int | None = None,
    *,
    format: str | None = None,
    **options: Any,
) -> tf.data.Dataset:
    """Batches of `(features, label)` from files of whichever format, or a table.

    `MultiSlotDataset`, `NormDataset`, `RawDataset`, `ParquetDataset`,
    `ExampleDataset` or `CsvDataset`, as the files are; `TableDataset` of a table
    in memory.

    >>> dataset = open_dataset("clicks.parquet", batch_size=1024)
    >>> model.fit(dataset)

    Args:
        files: One path or several, all of one format; folders and file lists
            stand for the files in them. Or a pandas or polars DataFrame, or a
            pyarrow Table.
        schema: A `Schema`, the path of a schema file, or a list of `Column`s. None
            takes the schema file beside the files, `PATH.schema.yaml` or
            `schema.yaml`; Parquet and CSV do without.
        batch_size: Samples a batch.
        format: `"multislot"`, `"norm"`, `"raw"`, `"parquet"`, `"tfrecord"`,
            `"csv"` or `"tsv"`; None finds it by the files' first bytes, Raw by the
            name's end, `.raw` or `.bin`.
        **options: Those of the format's own dataset function. With `open_command`
            nothing is looked for: it needs `schema` and `format`, and each path is
            a file.

    Raises:
        DataError: The format or the slots cannot be found, or the files are of
            different formats.
        ValueError, tf.errors.OpError: As the format's own dataset function.
    """
    if batch_size is None:
        raise ValueError("`batch_size` is missing.")
    if is_table(files):
        if format is not None:
            raise ValueError(f"`format`={format!r} is no option of a table.")
        return TableDataset(files, schema, batch_size, **options)
    if opens_by_command(schema, format, options):
        paths, found = as_paths(files), _format_called(format)
    else:
        paths, found = _format(as_paths(files), format)
    _check_format(paths, found, options)
    spec = schema_of(paths, found, schema, options)
    return found.dataset(paths, spec, batch_size, **options)


def opens_by_command(
    schema: SchemaLike | None, format: str | None, options: Options
) -> bool:
    """Whether there is an `open_command`: nothing is looked for in files then."""
    if options.get("open_command") is None:
        return False
    if schema is None or format is None:
        raise ValueError("`open_command` needs `schema` and `format`.")
    return True


def open_source(
    files: StrPaths,
    schema: SchemaLike | None = None,
    *,
    format: str | None = None,
    skipped: SkippedRecords | None = None,
    on_progress: Callable[[int], None] | None = None,
    **options: Any,
) -> Source:
    """Files of whichever format as a source of columns.

    Args:
        files: As for `open_dataset`.
        schema: As for `open_dataset`; CSV does without, too.
        format: As for `open_dataset`, or `"csv"` or `"tsv"`.
        skipped: Where to note bad records; None raises an error for the first.
        on_progress: Called with how much has been read since the last call.
        **options: Those of the format's reader.

    Raises:
        DataError: The format or the slots cannot be found, the files are of
            different formats, or an option is for another one.
    """
    paths, found = _format(as_paths(files), format)
    _check_format(paths, found, options)
    for name in options:
        if name not in found.reads:
            raise DataError(
                f"{paths[0]}: is {found.name}, but `{name}` is for no format"
            )
    spec = schema_of(paths, found, schema, options)
    return found.open(paths, spec, skipped, on_progress, **options)


def _check_format(
    paths: Sequence[str], found: Format, options: Options
) -> None:
    """Raises DataError if an option is for other formats."""
    for name in options:
        others = [f.name for f in FORMATS.values() if name in f.reads]
        if others and found.name not in others:
            advice = ""
            if name in _INFERRING:
                advice = "; declare the columns in `schema`"
                if name == "label":
                    column = parse_label(str(options[name]))[0]
                    advice += f", the label as Column.label({column!r})"
            raise DataError(
                f"{paths[0]}: is {found.name}, but `{name}` is for "
                f"{', '.join(others)}{advice}"
            )


def _slots_beside(paths: Sequence[str]) -> Schema | None:
    """The schema file beside the files: `PATH.schema.yaml`, or `schema.yaml`.

    Raises:
        DataError: Two files have different slots.
        ValueError: A schema file is not valid.
    """
    first: tuple[str, Schema] | None = None
    read: dict[str, Schema] = {}
    for path in paths:
        beside = os.path.join(os.path.dirname(path), FOLDER_SCHEMA)
        for candidate in (schema_path(path), beside):
            if candidate not in read:
                if not tf.io.gfile.exists(candidate):
                    continue
                read[candidate] = Schema.load(candidate)
            spec = read[candidate]
            if first is None:
                first = (candidate, spec)
            elif first[1] != spec:
                raise DataError(
                    f"{candidate}: the slots differ from those of {first[0]}; "
                    "give --schema YAML"
                )
            break
    return first[1] if first else None


def schema_of(
    paths: Sequence[str],
    found: Format,
    schema: SchemaLike | None = None,
    options: Options = MappingProxyType({}),
) -> Schema | None:
    """The slots given, else those beside the files.

    Returns:
        None where the files themselves say, or an option asks that they do.

    Raises:
        DataError: There are none, and the format needs them.
    """
    if schema is not None:
        return as_schema(schema)
    if found.finds_slots and any(name in options for name in _INFERRING):
        return None
    spec = _slots_beside(paths)
    if spec is None and not found.finds_slots:
        raise DataError(
            f"{paths[0]}: which columns? Give a schema file (`schema`, --schema); "
            f"there is no {schema_path(paths[0])}"
        )
    return spec


def _format(files: list[str], name: str | None) -> tuple[list[str], Format]:
    found = None if name is None else _format_called(name)
    paths = expand_inputs(files)
    return paths, found or FORMATS[one_format(paths)]


def _format_called(name: str | None) -> Format:
    if name not in FORMATS:
        raise DataError(f"`format`={name!r} is not in {tuple(FORMATS)}")
    return FORMATS[name]
