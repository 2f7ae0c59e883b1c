"""What the first records of TFRecord files show: a table, and a schema."""

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import tensorflow as tf

from lodestar._errors import DataError
from lodestar.data.example.example_records import first_examples
from lodestar.data.schema.infer import Inferred, Wanted, infer_schema

# About a second with 40 features.
_SAMPLE_ROWS = 5000
_ARROW_TYPES = {"float_list": pa.float32(), "int64_list": pa.int64()}


def infer_examples(
    paths: Sequence[str], wanted: Wanted, *, skip: bool = False
) -> Inferred:
    """Infers the schema of files of tf.Example from the first ones.

    `skip` omits records that are not tf.Examples. See `infer_schema`.
    """
    table = sample_table(paths, _SAMPLE_ROWS, skip=skip)
    return infer_schema(table, paths[0], wanted)


@tf.autograph.experimental.do_not_convert
def sample_table(
    paths: Sequence[str], rows: int, *, skip: bool = False
) -> pa.Table:
    """Returns the first records of files of tf.Example as a table.

    The columns are the features, in the order of their names: int64, float32,
    string, or binary if a value is not UTF-8. A column holds lists if a record
    has several values. A missing feature is null, and so is an empty one in a
    column without lists.

    `skip` omits records that are not tf.Examples. Raises DataError if a file cannot
    be read, or there is no record or feature, or two records store a feature in
    different ways.
    """
    columns: dict[str, list[list[Any] | None]] = {}
    kinds: dict[str, str] = {}
    count = 0
    for where, example in first_examples(paths, rows, skip=skip):
        for name, feature in example.features.feature.items():
            values = columns.setdefault(name, [])
            values += [None] * (count - len(values))
            kind = feature.WhichOneof("kind")
            found = list(getattr(feature, kind).value) if kind else []
            values.append(found)
            if found and kinds.setdefault(name, kind) != kind:
                raise DataError(
                    f"{where}: feature {name!r} is a {kind}, but a "
                    f"{kinds[name]} in the records before it"
                )
        count += 1
    if not columns:
        raise DataError(f"{paths[0]}: no record has a feature")
    arrays = {}
    for name in sorted(columns):
        values = columns[name]
        values += [None] * (count - len(values))
        arrays[name] = _array(values, kinds.get(name))
    return pa.table(arrays)


def _array(values: list[list[Any] | None], kind: str | None) -> pa.Array:
    if kind is None:
        return pa.nulls(len(values))
    if kind == "bytes_list":
        arrow_type = pa.string()
        try:
            for text in (text for found in values for text in found or ()):
                text.decode()
        except UnicodeDecodeError:
            arrow_type = pa.binary()
    else:
        arrow_type = _ARROW_TYPES[kind]
    if any(found and len(found) > 1 for found in values):
        return pa.array(values, pa.list_(arrow_type))
    return pa.array(
        [found[0] if found else None for found in values], arrow_type
    )
