"""CsvDataset: CSV and TSV files as a tf.data.Dataset."""

from collections.abc import Collection, Mapping
from typing import Any

import tensorflow as tf

from lodestar._checks import check_texts
from lodestar._typing import StrPaths
from lodestar.data.column_batches import column_dataset
from lodestar.data.csv.csv_table import MISSING, CsvTable
from lodestar.data.record_dataset import as_paths, options_of
from lodestar.data.schema import SchemaLike, as_schema
from lodestar.data.skipped_records import SkippedRecords

# Lines go through Python, one after another.
_NOT_HERE = ("num_parallel_files", "deterministic", "open_command")


def CsvDataset(
    files: StrPaths,
    schema: SchemaLike | None = None,
    batch_size: int | None = None,
    *,
    label: str | None = None,
    categorical: Collection[str] = (),
    numeric: Collection[str] = (),
    missing: Collection[str] = MISSING,
    delimiter: str | None = None,
    ids: str | None = None,
    weights: Mapping[str, str] | None = None,
    **options: Any,
) -> tf.data.Dataset:
    """Batches of `(features, label)` from CSV or TSV files with a header.

    Columns are slots as the data tool has them (docs/data.md): without `schema`
    the files are read once to see which columns are numbers, which become dense
    slots; the others become id slots. Lines go through Python, so that
    `prepare_files` is the faster way to several epochs; an iterator cannot be
    saved.

    >>> dataset = CsvDataset(
    ...     "clicks.csv", batch_size=512, label="click")
    >>> model.fit(dataset)

    Args:
        files: One path or several, of any scheme that `tf.io.gfile` knows, all of
            the same columns; one that ends in `.gz` is decompressed.
        schema: A `Schema`, the path of a schema file, or a list of `Column`s.
        batch_size: Samples a batch.
        label: `COLUMN`, a column of numbers, or `COLUMN=POSITIVE`: 1 where the
            column is POSITIVE, 0 elsewhere. None is the column "label", or the
            label of `schema`.
        categorical: Columns that are ids.
        numeric: Columns that are numbers.
        missing: Texts that stand for a missing value: 0 in a dense slot, no id
            in a sparse one.
        delimiter: None finds it in the header.
        ids: What cells of id slots are: `"hash"`, a text; `"int"` or `"hex"`,
            numbers with blanks between them. None is "int" with `schema`, "hash"
            without.
        weights: Id slot -> the float slot that holds one weight for each of its
            ids, as `Schema.with_weights`.
        **options: Those of `ReadOptions` but for `num_parallel_files`,
            `deterministic` and `open_command`.

    Raises:
        ValueError: An option is out of range; with the class `DataError`, the
            columns do not fit the slots or an option, or `schema` is None and
            there is what is an error while reading.
        tf.errors.InvalidArgumentError: While reading: a row cannot be used
            ("in.csv:17: column 'age': 'x' is not a finite float32", lines count
            from 1), or a file was written to meanwhile. The batches of the
            pieces of 2,048 rows before it come first.
    """
    if batch_size is None:
        raise ValueError("`batch_size` is missing.")
    for name in _NOT_HERE:
        if name in options:
            raise ValueError(
                f"`{name}` is no option of CsvDataset: one thread reads the "
                "lines, in Python."
            )
    check_texts(missing=missing, categorical=categorical, numeric=numeric)
    read = options_of(CsvDataset, batch_size, options)
    skipped = None
    if read.on_error == "skip":
        skipped = read.skipped or SkippedRecords()
    table = CsvTable(
        as_paths(files),
        None if schema is None else as_schema(schema),
        skipped,
        label=label,
        delimiter=delimiter,
        categorical=categorical,
        numeric=numeric,
        missing=missing,
        ids=ids,
    )
    if weights:
        table.spec = table.spec.with_weights(weights)
    return column_dataset(table.batches, table.paths, table.spec, read)
