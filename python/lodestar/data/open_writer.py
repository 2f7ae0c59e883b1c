"""open_writer: writes examples to a file of any format."""

from collections.abc import Sequence
from typing import Any

from lodestar._arguments import explained
from lodestar._errors import DataError
from lodestar._files import as_path
from lodestar._formats import Checks, KeyType, Layout, WrittenFormat
from lodestar._typing import StrPath
from lodestar.data.files.find_format import format_of_name
from lodestar.data.files.formats import FORMATS, check_options, format_called
from lodestar.data.files.schema_beside import schema_path
from lodestar.data.sample_writer import SampleWriter
from lodestar.schema import SchemaLike, as_schema


@explained()
def open_writer(
    path: StrPath,
    schema: SchemaLike,
    format: WrittenFormat | None = None,
    *,
    batch_size: int | None = None,
    delimiter: str | None = None,
    row_group_size: int | None = None,
    compression: str | None = None,
    key_type: KeyType | None = None,
    check: Checks | None = None,
    layout: Layout | None = None,
    nnz_per_slot: int | Sequence[int] | None = None,
) -> SampleWriter:
    """Opens a file for writing examples, in the form that datasets yield.

    The schema of the stored values (e.g. ids instead of the hashed strings) is written
    to `PATH.schema.yaml`, where `open_dataset` finds it.

    >>> with open_writer("sales.parquet", "schema.yaml") as writer:
    ...     writer.write({"click": 1, "ids": [7, 8]})

    Args:
        path: Path of the file. The suffix `.gz` compresses it.
        schema: A `Schema`, a list of `Column`s or the path of a schema file.
        format: `"multislot"`, `"instant"`, `"norm"`, `"raw"`, `"parquet"`,
            `"tfrecord"`, `"csv"` or `"tsv"`. None derives it from the suffix of
            `path`: `.txt`, `.instant`, `.norm`, `.raw`, `.parquet`, `.tfrecord`,
            `.csv`, `.tsv`.
        batch_size: FileInstant: rows per batch, 32 by default.
        delimiter: CSV: `","`, the default, a tab, `";"` or `"|"`.
        row_group_size: Parquet: rows per row group. Defaults to 65536.
        compression: Parquet: the codec of pyarrow. Defaults to `"snappy"`.
        key_type: Norm and Raw: dtype of keys. Defaults to `"uint32"`.
        check: Norm: `"sum"`, the default, adds a checksum to each record; or
            `"none"`.
        layout: Raw: see `open_dataset`.
        nnz_per_slot: Raw: see `open_dataset`.

    Raises:
        DataError: The format is unknown, or an option is for another format.
        ValueError: The format does not support a column of the schema, or an
            option is out of range.
        tf.errors.OpError: The file cannot be opened.
    """
    path = as_path(path)
    name = format_of_name(path) if format is None else format
    if name is None:
        raise DataError(
            f"{path}: the ending names no format; rename the file, or give "
            f"`format`, one of {', '.join(FORMATS)}"
        )
    found = format_called(name)
    given = {
        "batch_size": batch_size,
        "delimiter": delimiter,
        "row_group_size": row_group_size,
        "compression": compression,
        "key_type": key_type,
        "check": check,
        "layout": layout,
        "nnz_per_slot": nnz_per_slot,
    }
    options: dict[str, Any] = {
        name: x for name, x in given.items() if x is not None
    }
    check_options(path, found, options, "writes")
    writer = found.make(path, as_schema(schema), **options)
    writer.schema_file = schema_path(path)
    return writer
