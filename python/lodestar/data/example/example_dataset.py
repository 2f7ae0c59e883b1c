"""ExampleDataset: TFRecord files of tf.Example as a tf.data.Dataset."""

import itertools
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any

import numpy as np
import tensorflow as tf
from google.protobuf.message import DecodeError

from lodestar._errors import DataError, describe_error, reading
from lodestar._library import gen_ops
from lodestar._typing import StrPaths
from lodestar.data.example.parse_examples import parse_examples
from lodestar.data.paths import as_input
from lodestar.data.python_calls import PythonFunction
from lodestar.data.record_dataset import as_paths, epochs, options_of
from lodestar.data.schema import Schema, SchemaLike, as_schema
from lodestar.data.skipped_records import SkippedRecords

_SEEN_RECORDS = 1000
# Records that are parsed together to see whether all are good.
_CHECKED_RECORDS = 256


def ExampleDataset(
    files: StrPaths,
    schema: SchemaLike,
    batch_size: int,
    *,
    texts: Collection[str] | None = None,
    weights: Mapping[str, str] | None = None,
    **options: Any,
) -> tf.data.Dataset:
    """Batches of `(features, label)` from TFRecord files of tf.Example.

    The elements are those of `MultiSlotDataset`. Each slot is the feature of its
    name; other features are left alone. A sparse slot is a list of any length,
    and empty where it is missing: of int64, of floats where it is declared so, or
    of bytes, which become the ids that `hash_ids(column, text)` gives. A label or
    a dense slot has its values, int64 where it is declared uint64, else floats.

    No Python is called to read and parse records, so that workers can read for
    themselves (but with `on_error="skip"`, which is done in Python), and an
    iterator that does not shuffle rows can be saved.

    >>> dataset = ExampleDataset("clicks.tfrecord", slots, 1024)
    >>> model.fit(dataset)

    Args:
        files: One path or several, of any scheme that `tf.io.gfile` knows; one
            that ends in `.gz` is decompressed.
        schema: A `Schema`, the path of a schema file, or a list of `Column`s.
        batch_size: Samples a batch.
        texts: The sparse slots of ids that are bytes. None looks for them in the
            first 1,000 records of all files.
        weights: As `MultiSlotDataset`.
        **options: Those of `ReadOptions` but for `open_command`. With
            `deterministic=False` `num_parallel_files` files are read at a time;
            in order it means nothing.

    Raises:
        ValueError: An option is out of range, or `texts` names no sparse slot of
            ids; with the class `DataError`, the first file cannot be read, no
            file has a record, or the first records are no tf.Examples.
        tf.errors.InvalidArgumentError: While reading: a record is not as declared
            ("Name: a.tfrecord: record 17, Feature: y ...", records count from 0).
        tf.errors.DataLossError: While reading: a file is damaged, or cut short
            ("a.tfrecord: record 17 at byte 1234: ...").
        tf.errors.FailedPreconditionError: While reading: a file was written to
            meanwhile, or has another size than when the iterator was saved.
    """
    read = options_of(ExampleDataset, batch_size, options)
    if read.open_command:
        raise ValueError("`open_command` is no option of ExampleDataset.")
    spec = as_schema(schema, weights)
    paths = [as_input(path) for path in as_paths(files)]
    with tf.init_scope():  # of a function that opens it
        hashed = _text_slots(paths, spec, texts, read.on_error == "skip")
    layout = read.layout(spec)
    paths, num_shards, shard_index = read.shard_of(paths)

    def records(path: tf.Tensor) -> tf.data.Dataset:
        found = _records_of(path).enumerate()
        if num_shards > 1:
            found = found.shard(num_shards, shard_index)
        return found.map(lambda number, record: (path, number, record))

    def parse(
        paths: tf.Tensor, numbers: tf.Tensor, examples: tf.Tensor
    ) -> tuple[tf.Tensor, ...]:
        names = _names(paths, numbers)
        tensors = parse_examples(spec, hashed, names, examples)
        return tuple(
            tf.ensure_shape(tensor, wanted.shape)
            for tensor, wanted in zip(tensors, layout.tensor_specs, strict=True)
        )

    good = None
    if read.on_error == "skip":
        skipped = read.skipped or SkippedRecords()
        good = PythonFunction(
            _good_part(spec, hashed, skipped),
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
        return found.map(parse)

    dataset = epochs(paths, epoch, layout.features_and_label, read)
    if good is not None:
        good.belongs_to(dataset)
    return dataset


def _names(paths: tf.Tensor, numbers: tf.Tensor) -> tf.Tensor:
    return tf.strings.join([paths, ": record ", tf.as_string(numbers)])


@tf.autograph.experimental.do_not_convert
def _text_slots(
    paths: list[str],
    spec: Schema,
    texts: Collection[str] | None,
    skips: bool,
) -> list[str]:
    """The sparse slots of ids that are bytes, as given or as records have them.

    Args:
        paths: The files.
        spec: The slots.
        texts: Those that are given.
        skips: Whether a record that is no tf.Example is passed over here.
    """
    ids = [
        slot.name
        for slot in spec.used
        if slot.kind == "sparse" and slot.dtype != "float"
    ]
    if isinstance(texts, str) or not set(texts or ()) <= set(ids):
        raise ValueError(
            f"`texts` must be a list of sparse slots of ids, found {texts!r}; "
            f"there are {', '.join(ids) or 'none'}."
        )
    found = set(texts or ())
    unknown = set(ids) if texts is None else set()
    seen = 0
    for path, number, record in itertools.islice(
        _records(paths), _SEEN_RECORDS
    ):
        seen += 1
        try:
            example = tf.train.Example.FromString(record)
        except DecodeError as error:
            if not skips:
                raise DataError(
                    f"{path}: record {number}: is no tf.Example"
                ) from error
            continue
        for name in list(unknown):
            feature = example.features.feature.get(name)
            kind = feature and feature.WhichOneof("kind")
            if kind and len(getattr(feature, kind).value):
                unknown.remove(name)
                if kind == "bytes_list":
                    found.add(name)
        if not unknown:
            break
    if not seen:
        raise DataError(f"{paths[0]}: no file of {len(paths)} has a record")
    return [name for name in ids if name in found]


def _records(paths: list[str]) -> Iterator[tuple[str, int, bytes]]:
    """The records of files, each with its file and its number there."""
    for path in paths:
        with reading(path):
            for number, record in enumerate(_records_of(path)):
                yield path, number, record.numpy()


def _records_of(path: str | tf.Tensor) -> tf.data.Dataset:
    """The records of a file.

    `tf.data.TFRecordDataset` reports no error for a file that is cut within the
    header of a record, or for a compressed file that is cut between records.
    """
    variant = gen_ops.lodestar_tfrecord_dataset(filename=path)
    return tf.data.experimental.from_variant(
        variant, tf.TensorSpec([], tf.string)
    )


def _good_records(
    records: tf.data.Dataset, good: PythonFunction
) -> tf.data.Dataset:
    """The records that `good`, made of `_good_part`, keeps."""

    @tf.autograph.experimental.do_not_convert
    def filtered(*columns: tf.Tensor) -> tuple[tf.Tensor, ...]:
        return tuple(good.call(*columns))

    return records.batch(_CHECKED_RECORDS).map(filtered).unbatch()


def _good_part(
    spec: Schema, texts: Collection[str], skipped: SkippedRecords
) -> Callable[..., tuple[Any, ...]]:
    """Returns a function that keeps valid records and notes the others."""

    def fault(paths: Any, numbers: Any, examples: Any) -> str | None:
        try:
            names = _names(tf.constant(paths), tf.constant(numbers))
            parse_examples(spec, texts, names, tf.constant(examples))
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
