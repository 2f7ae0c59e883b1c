"""ParquetDataset: Parquet files as a tf.data.Dataset."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import tensorflow as tf

from lodestar._errors import DataError, describe_error
from lodestar._typing import StrPaths
from lodestar.data.parquet.parquet_files import (
    ParquetFile,
    expand,
    one_line,
    read_footers,
)
from lodestar.data.parquet.parquet_metadata import (
    ParquetMetadata,
    metadata_path,
    read_metadata,
)
from lodestar.data.parquet.parquet_schema import (
    Binding,
    bind_metadata,
    bind_schema,
    bind_slots,
    check_same_columns,
    check_same_places,
    limit_keys,
    spec_of,
)
from lodestar.data.parquet.reader_dataset import Skip, reader_dataset, skip_of
from lodestar.data.record_dataset import as_paths, options_of
from lodestar.data.schema import Schema, SchemaLike, as_schema


def ParquetDataset(
    files: StrPaths,
    schema: SchemaLike | None = None,
    batch_size: int | None = None,
    *,
    weights: Mapping[str, str] | None = None,
    slot_size_array: Sequence[int] | None = None,
    **options: Any,
) -> tf.data.Dataset:
    """Batches of `(features, label)` from Parquet files.

    The elements are those of `MultiSlotDataset`, the columns are chosen

    - by the names of `schema`, where given;
    - by the `_metadata.json` in the directory of the first file (docs/data.md);
    - by their types: a float column "label" is the label, other floats and
      lists of a fixed size are dense, integers and other lists are sparse slots.

    A column of a label or dense slot is float32, or a list of it as long in
    every row; of a sparse or one-hot slot int32, uint32, int64 or uint64, or a
    list of these. A sparse float slot is a list of float32. A label that is
    declared uint64 may be any of these, a dense uint64 slot one of the integers.

    Row groups are decoded by pyarrow in threads that run ahead, and never more
    than a few are in memory. Any iterator can be saved:
    `tf.train.Checkpoint(iterator=iter(dataset))` resumes at the next row, in
    another process too.

    >>> dataset = ParquetDataset("train/", batch_size=1024)
    >>> model.fit(dataset)

    Args:
        files: One path or several, of any scheme that `tf.io.gfile` knows: data
            files, directories (the files of their `_metadata.json`, or those
            that end in `.parquet`), and file lists, which end in `.txt`.
        schema: A `Schema`, the path of a schema file, or a list of `Column`s.
            A `_metadata.json` then only says how many rows each file has.
        batch_size: Samples a batch.
        weights: Id slot -> the float slot that holds one weight for each of its
            ids, as `Schema.with_weights`; both stay features of their own.
        slot_size_array: For each sparse slot of ids one more than its largest
            key. Keys are checked, and the sizes of the slots before are added.
        **options: Those of every dataset; see `ReadOptions`. Here
            `num_parallel_files` counts row groups decoded ahead; the order is
            the same with `deterministic=False`; `shuffle_rows` shuffles windows
            of consecutive rows; and where there are fewer files than shards, a
            shard is an even run of all rows. Of a row group or a footer that
            cannot be decoded, `on_error="skip"` leaves out all rows. There is
            no `open_command`.

    Raises:
        ValueError: An option is out of range; with the class `DataError`, a
            file is not a whole Parquet file, `_metadata.json` is not as it has
            to be, or schemas do not fit the slots or one another.
        tf.errors.NotFoundError: A file is missing.
        tf.errors.InvalidArgumentError: While reading: a row group cannot be
            decoded, or a row has a null, or a value or a count out of range
            ("path: row 17 (row group 0, its row 17): column 'C1': found ...",
            rows count from 0); or, whatever `on_error` says, a file was written
            to since the dataset was made, or has another size than when the
            iterator was saved. Batches of the row groups before it come first.
    """
    if batch_size is None:
        raise ValueError(
            "`batch_size` is missing; without `schema`, which come before it, "
            "give it by name."
        )
    read = options_of(ParquetDataset, batch_size, options)
    if read.open_command:
        raise ValueError(
            "`open_command` is no option of ParquetDataset: Parquet is not read "
            "from first to last; copy the files to where TensorFlow reads them."
        )
    spec = None if schema is None else as_schema(schema, weights)
    skip = skip_of(read)
    paths = expand(as_paths(files))
    metadata = read_metadata(metadata_path(paths[0]))
    opened = _open(paths, metadata, skip)
    bindings = _bind(opened, spec, metadata)
    if weights and spec is None:
        paired = spec_of(bindings).with_weights(weights)
        bindings = [
            dataclasses.replace(binding, slot=slot)
            for binding, slot in zip(bindings, paired)
        ]
    if slot_size_array is not None:
        bindings = limit_keys(bindings, slot_size_array)
    opened = _same_schema(opened, bindings, spec, metadata, skip)

    opened, num_shards, shard_index = read.shard_of(opened)
    return reader_dataset(
        opened, bindings, read, (num_shards, shard_index), skip
    )


def parquet_schema_of(
    files: StrPaths,
) -> Schema:
    """The slots that `ParquetDataset` finds in files without being told any.

    Raises:
        ValueError, tf.errors.OpError: As `ParquetDataset`.
    """
    paths = expand(as_paths(files))
    metadata = read_metadata(metadata_path(paths[0]))
    return spec_of(_bind(_open(paths, metadata, None), None, metadata))


def _open(
    paths: list[str], metadata: ParquetMetadata | None, skip: Skip | None
) -> list[ParquetFile]:
    opened = []
    counted: dict[str, ParquetMetadata | None] = {}
    for path, found in zip(paths, read_footers(paths)):
        beside = metadata_path(path)
        if beside not in counted:
            # A folder without one is in the list of the first file's.
            counted[beside] = read_metadata(beside) or metadata
        counts = counted[beside]
        rows = counts.rows_of(path) if counts else None
        if isinstance(found, tf.errors.OpError):
            raise found
        if (
            counts is not None
            and isinstance(found, ParquetFile)
            and rows not in (None, found.num_rows)
        ):
            found = DataError(
                f"{path}: found {found.num_rows} rows, wanted {rows} as "
                f"{counts.path} says"
            )
        if isinstance(found, ParquetFile):
            opened.append(found)
        elif skip is None:
            raise found
        else:
            skip(one_line(found), rows or 1)
    if not opened:
        raise DataError(f"{paths[0]}: no file of {len(paths)} can be read")
    return opened


def _bind(
    opened: list[ParquetFile],
    spec: Schema | None,
    metadata: ParquetMetadata | None,
) -> list[Binding]:
    # What the schema leaves open, the first file with rows tells.
    first = next((file for file in opened if file.num_rows), opened[0])
    if spec is not None:
        return bind_slots(spec, first)
    if metadata is not None:
        return bind_metadata(metadata, first)
    return bind_schema(first)


def _same_schema(
    opened: list[ParquetFile],
    bindings: list[Binding],
    spec: Schema | None,
    metadata: ParquetMetadata | None,
    skip: Skip | None,
) -> list[ParquetFile]:
    """The files whose columns are those of the first one."""
    same = []
    first = next((file for file in opened if file.num_rows), opened[0])
    for file in opened:
        try:
            if spec is None and metadata is not None:
                check_same_places(metadata, file, first)
            check_same_columns(bindings, file, first)
        except DataError as error:
            if skip is None:
                raise
            skip(describe_error(error), file.num_rows or 1)
        else:
            same.append(file)
    return same
