"""Binary files of Paddle's FileInstantDataset as a tf.data.Dataset."""

import dataclasses
import functools
from collections.abc import Mapping
from typing import Any, Unpack

import tensorflow as tf

from lodestar._library import gen_ops
from lodestar._typing import StrPaths
from lodestar.data.record_dataset import (
    ReadArguments,
    options_of,
    record_dataset,
)
from lodestar.data.shared_file_list import SharedFileList
from lodestar.paddle.instant_writer import has_batch_size, instant_schema
from lodestar.schema import SchemaLike


def InstantDataset(
    files: SharedFileList | StrPaths,
    schema: SchemaLike,
    batch_size: int,
    **options: Unpack[ReadArguments],
) -> tf.data.Dataset:
    """Returns batches of Paddle's FileInstant files (docs/internals/formats.md).

    `open_dataset` describes the options and errors. The batch sizes in the files are
    ignored. In an error while reading ("path: record 7 at byte 1120: slot 'item' at
    its byte 18: ..."), records and bytes count from 0. Nothing marks the beginning of
    a record, so after a wrong count `on_error="skip"` skips the rest of the file, as
    one record.

    Raises ValueError if a DataFeedDesc cannot express a column.
    """
    return _open(files, schema, batch_size, options)


def every_column(
    files: StrPaths,
    schema: SchemaLike,
    batch_size: int,
    **options: Unpack[ReadArguments],
) -> tf.data.Dataset:
    """Returns an InstantDataset with the unused columns.

    A schema in which they are used would describe other files.
    """
    return _open(files, schema, batch_size, options, every=True)


def _open(
    files: SharedFileList | StrPaths,
    schema: SchemaLike,
    batch_size: int,
    options: Mapping[str, Any],
    every: bool = False,
) -> tf.data.Dataset:
    spec = instant_schema(schema)
    op = functools.partial(
        gen_ops.lodestar_instant_dataset,
        batch_sizes=[has_batch_size(column) for column in spec],
    )
    if every:
        spec = spec.replace(
            dataclasses.replace(column, used=True) for column in spec
        )
    read = options_of(InstantDataset, batch_size, options)
    return record_dataset(op, files, spec, read)
