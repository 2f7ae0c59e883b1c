"""ExampleDataset: TFRecord files of tf.Example as a tf.data.Dataset."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from lodestar._errors import describe_error
from lodestar._input_paths import as_input
from lodestar._typing import StrPaths
from lodestar.data.example.example_records import (
    num_batches,
    records_of,
    types_of,
)
from lodestar.data.example.parse_examples import parse_examples
from lodestar.data.record_dataset import as_paths, epochs, options_of
from lodestar.data.schema import Schema, SchemaLike, as_schema
from lodestar.data.skipped_records import SkippedRecords
from lodestar.ops.python_calls import PythonFunction

# Records that are parsed together to see whether all are good.
_CHECKED_RECORDS = 256


def ExampleDataset(
    files: StrPaths,
    schema: SchemaLike,
    batch_size: int,
    *,
    weights: Mapping[str, str] | None = None,
    **options: Any,
) -> tf.data.Dataset:
    """Returns batches of `(features, label)` from TFRecord files of tf.Example.

    The elements are the same as `open_dataset`'s. Each column is the feature of its
    name; other features are ignored. Equal values have the same meaning as in every
    other source, whether a feature stores them as int64, floats or bytes: an id
    column with `encoding="int"` reads the decimal number in bytes and a float with
    a whole value, and with `encoding="hash"` hashes an integer as its decimal text.
    All records must store a feature in the same way as the first one that has a
    value.

    A missing feature, a string of `Schema.na_values`, and a NaN among integers are
    missing values: none in a sparse column, `fill_value` in a dense column, and an
    error in a label or a one-hot column.

    Reading and parsing call no Python, so tf.data workers can run them, except with
    `on_error="skip"`. The iterator can be saved unless rows are shuffled. The number
    of batches is known for local uncompressed files of up to 2 GiB in total with
    `on_error="raise"`. `num_parallel_files` applies with `deterministic=False` only,
    and `open_command` is not supported. Errors count records from 0.

    Raises:
        ValueError: An option is out of range. As the subclass `DataError`: the first
            file cannot be read, no file has a record, the first records are not
            tf.Examples, or a column is declared with `depth=2` or reads JSON.
    """
    read = options_of(ExampleDataset, batch_size, options)
    if read.open_command:
        raise ValueError("`open_command` is not an option of ExampleDataset.")
    schema = as_schema(schema, weights)
    paths = [as_input(path) for path in as_paths(files)]
    with tf.init_scope():  # of a function that opens it
        types = types_of(paths, schema, skip=read.on_error == "skip")
    layout = read.layout(schema)
    paths, num_shards, shard_index = read.shard_of(paths)
    count = None
    if read.on_error == "raise":
        count = num_batches(
            paths,
            batch_size,
            num_shards=num_shards,
            shard_index=shard_index,
            drop_remainder=read.drop_remainder,
        )

    # AutoGraph finds nothing to rewrite in these, and takes its time.
    as_is = tf.autograph.experimental.do_not_convert

    @as_is
    def records(path: tf.Tensor) -> tf.data.Dataset:
        found = records_of(path).enumerate()
        if num_shards > 1:
            found = found.shard(num_shards, shard_index)
        return found.map(as_is(lambda number, record: (path, number, record)))

    @as_is
    def parse(
        paths: tf.Tensor, numbers: tf.Tensor, examples: tf.Tensor
    ) -> tuple[tf.Tensor, ...]:
        names = _names(paths, numbers)
        tensors = parse_examples(schema, types, names, examples)
        return tuple(
            tf.ensure_shape(tensor, wanted.shape)
            for tensor, wanted in zip(tensors, layout.tensor_specs, strict=True)
        )

    good = None
    if read.on_error == "skip":
        skipped = read.skipped or SkippedRecords()
        good = PythonFunction(
            _good_part(schema, types, skipped),
            [
                tf.TensorSpec([None], d)
                for d in (tf.string, tf.int64, tf.string)
            ],
        )

    def epoch(files: tf.Tensor, seed: tf.Tensor | int) -> tf.data.Dataset:
        found = tf.data.Dataset.from_tensor_slices(files)
        if read.deterministic:
            found = found.flat_map(records)
        else:
            found = found.interleave(
                records,
                cycle_length=read.num_parallel_files,
                num_parallel_calls=read.num_parallel_files,
                deterministic=False,
            )
        if good is not None:
            found = _good_records(found, good)
        if read.shuffle_rows:
            found = found.shuffle(read.shuffle_rows, seed=seed)
        found = found.batch(batch_size, drop_remainder=read.drop_remainder)
        found = found.map(parse)
        if count is None:
            return found
        return found.apply(tf.data.experimental.assert_cardinality(count))

    dataset = epochs(paths, epoch, layout.features_and_label, read, count)
    if good is not None:
        good.belongs_to(dataset)
    return dataset


def _names(paths: tf.Tensor, numbers: tf.Tensor) -> tf.Tensor:
    return tf.strings.join([paths, ": record ", tf.as_string(numbers)])


def _good_records(
    records: tf.data.Dataset, good: PythonFunction
) -> tf.data.Dataset:
    """Returns the records that `good`, made by `_good_part`, keeps."""

    @tf.autograph.experimental.do_not_convert
    def filtered(*columns: tf.Tensor) -> tuple[tf.Tensor, ...]:
        return tuple(good.call(*columns))

    return records.batch(_CHECKED_RECORDS).map(filtered).unbatch()


def _good_part(
    schema: Schema, types: Mapping[str, tf.DType], skipped: SkippedRecords
) -> Callable[..., tuple[Any, ...]]:
    """Returns a function that keeps valid records and notes the others."""

    def fault(paths: Any, numbers: Any, examples: Any) -> str | None:
        try:
            names = _names(tf.constant(paths), tf.constant(numbers))
            parse_examples(schema, types, names, tf.constant(examples))
        except tf.errors.InvalidArgumentError as error:
            return describe_error(error)
        return None

    def good(paths: Any, numbers: Any, examples: Any) -> tuple[Any, ...]:
        kept = np.ones(len(numbers), bool)
        if fault(paths, numbers, examples) is not None:
            for i in range(len(numbers)):
                part = slice(i, i + 1)
                text = fault(paths[part], numbers[part], examples[part])
                if text is not None:
                    skipped.add(text)
                    kept[i] = False
        return paths[kept], numbers[kept], examples[kept]

    return good
