"""Records of TFRecord files: read, sampled and counted."""

import itertools
import mmap
import os
import struct
from collections.abc import Iterator, Sequence

import tensorflow as tf
from google.protobuf.message import DecodeError

from lodestar._errors import DataError, reading
from lodestar._library import gen_ops
from lodestar.data.schema import Schema
from lodestar.data.schema.column import JSON

SAMPLED_RECORDS = 1000
# Kind of a feature -> dtype of its values.
TYPES = {
    "bytes_list": tf.string,
    "float_list": tf.float32,
    "int64_list": tf.int64,
}
# Counting takes about half a second per GB, before the first batch.
_MOST_COUNTED_BYTES = 2 << 30
# A record has its length and two checksums around its bytes.
_FRAME_BYTES = 16
_LENGTH = struct.Struct("<Q")


def records_of(path: str | tf.Tensor) -> tf.data.Dataset:
    """Returns the records of a file.

    `tf.data.TFRecordDataset` reports no error for a file that is cut within the
    header of a record, or for a compressed file that is cut between records.
    """
    variant = gen_ops.lodestar_tfrecord_dataset(filename=path)
    return tf.data.experimental.from_variant(
        variant, tf.TensorSpec([], tf.string)
    )


def first_examples(
    paths: Sequence[str], count: int, *, skip: bool = False
) -> Iterator[tuple[str, tf.train.Example]]:
    """Yields the first `count` examples of files, each with its name for errors.

    `skip` omits records that are not tf.Examples, which otherwise raise DataError.
    """
    seen = 0
    for name, record in itertools.islice(_records(paths), count):
        seen += 1
        try:
            yield name, tf.train.Example.FromString(record)
        except DecodeError as error:
            if not skip:
                raise DataError(f"{name}: is not a tf.Example") from error
    if not seen:
        raise DataError(f"{paths[0]}: no file of {len(paths)} has a record")


def _records(paths: Sequence[str]) -> Iterator[tuple[str, bytes]]:
    for path in paths:
        with reading(path):
            for number, record in enumerate(records_of(path)):
                yield f"{path}: record {number}", record.numpy()


@tf.autograph.experimental.do_not_convert
def types_of(
    paths: Sequence[str], schema: Schema, *, skip: bool = False
) -> dict[str, tf.DType]:
    """Returns the dtypes of features, as the first record with a value has them.

    Maps names of used columns to int64, float32 or string; columns without a value
    in the first records are omitted. Raises DataError if a column is declared in a
    way that examples do not support.
    """
    for column in schema.used:
        if column.depth > 1:
            raise DataError(
                f"{paths[0]}: column {column.name!r}: a tf.Example has no "
                f"lists of lists; `depth` must be 1, got {column.depth}"
            )
    unknown = {column.name for column in schema.used}
    found: dict[str, tf.DType] = {}
    for name, example in first_examples(paths, SAMPLED_RECORDS, skip=skip):
        features = example.features.feature
        for key in [key for key in unknown if key in features]:
            kind = features[key].WhichOneof("kind")
            if kind and len(getattr(features[key], kind).value):
                unknown.remove(key)
                found[key] = TYPES[kind]
                if kind == "bytes_list" and schema[key].separator == JSON:
                    raise DataError(
                        f"{name}: column {key!r}: strings with the "
                        f"`separator` {JSON!r} cannot be read from a "
                        "tf.Example; write lists of numbers or bytes"
                    )
        if not unknown:
            break
    return found


def num_batches(
    paths: Sequence[str],
    batch_size: int,
    *,
    num_shards: int = 1,
    shard_index: int = 0,
    drop_remainder: bool = False,
) -> int | None:
    """Returns the number of batches of an epoch, or None if it is unknown.

    It is known for local uncompressed files of up to 2 GiB in total.
    """
    paths = [path.removeprefix("file://") for path in paths]
    if any("://" in path or path.endswith(".gz") for path in paths):
        return None
    total = 0
    try:
        if sum(map(os.path.getsize, paths)) > _MOST_COUNTED_BYTES:
            return None
        for path in paths:
            count = _num_records(path)
            total += len(range(shard_index, count, num_shards))
    except (OSError, ValueError, struct.error):
        return None  # Reading will raise the error.
    return total // batch_size if drop_remainder else -(-total // batch_size)


def _num_records(path: str) -> int:
    """Counts the records of a file; ValueError or struct.error if it is damaged."""
    size = os.path.getsize(path)
    count = offset = 0
    if size:
        with (
            open(path, "rb") as file,
            mmap.mmap(file.fileno(), size, access=mmap.ACCESS_READ) as data,
        ):
            while offset < size:
                offset += _LENGTH.unpack_from(data, offset)[0] + _FRAME_BYTES
                count += 1
    if offset != size:
        raise ValueError(path)
    return count
