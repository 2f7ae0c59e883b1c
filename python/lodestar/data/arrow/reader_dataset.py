"""The dataset of a ParquetReader: its batches as `(features, label)`."""

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from lodestar.data.parquet.parquet_batches import BatchPacker
from lodestar.data.parquet.parquet_reader import ParquetReader, ReadRows
from lodestar.data.parquet.parquet_rows import read_row_group
from lodestar.data.parquet.parquet_schema import Binding, RowGroups, spec_of
from lodestar.data.python_calls import PythonFunction
from lodestar.data.ragged_encoder import RaggedEncoder
from lodestar.data.record_dataset import ReadOptions, epochs

Skip = Callable[[str, int], None]


def skip_of(read: ReadOptions) -> Skip | None:
    """What notes rows that are left out; None if errors are raised."""
    if read.on_error == "raise":
        return None
    if read.skipped is not None:
        return read.skipped.add
    return lambda message, count: tf.get_logger().warning(
        "skipped %d rows: %s", count, message
    )


def reader_dataset(
    files: Sequence[RowGroups],
    bindings: Sequence[Binding],
    read: ReadOptions,
    shard: tuple[int, int],
    skip: Skip | None,
    read_rows: ReadRows = read_row_group,
) -> tf.data.Dataset:
    """Batches of the rows of files, or of a table, as ReadOptions has them.

    Args:
        files: What has row groups, at least one.
        bindings: The columns to read.
        read: The options.
        shard: As ParquetReader takes it.
        skip: As ParquetReader takes it.
        read_rows: Reads a row group.
    """
    layout = read.layout(spec_of(bindings))
    reader = ParquetReader(
        files,
        bindings,
        batch_size=read.batch_size,
        drop_remainder=read.drop_remainder,
        ahead=read.num_parallel_files,
        window=read.shuffle_rows,
        shard=shard,
        skip=skip,
        read_rows=read_rows,
    )

    # Nothing else may refer to the reader, so that it is freed with the dataset.
    next_batch = PythonFunction(
        reader.next_batch,
        [*[tf.TensorSpec([], tf.int64)] * 4, *BatchPacker.specs],
    )
    unpack = reader.packer.unpacker()
    num_batches = reader.num_batches
    del reader
    encoder = RaggedEncoder()

    def element(*arrays: tf.Tensor) -> tuple[tf.Tensor, ...]:
        tensors = unpack(*arrays)
        return encoder.encode(layout.features_and_label(*tensors))

    @tf.autograph.experimental.do_not_convert
    def batches_of(order: tf.Tensor, seed: tf.Tensor) -> tf.data.Dataset:
        @tf.autograph.experimental.do_not_convert
        def batch(position: Any, _: Any) -> Any:
            chunk, row, num_bytes, rows, *arrays = next_batch.call(
                order, seed, *position
            )
            position = (chunk, row, num_bytes)
            if skip is None:
                # In this function: another that is called has its price.
                return position, element(*arrays)
            return position, (rows, *arrays)

        start = tuple(tf.constant(x, tf.int64) for x in (0, 0, -1))
        count = num_batches if skip is None else tf.int64.max
        batches = tf.data.Dataset.range(count).scan(start, batch)
        if skip is not None:
            batches = batches.take_while(lambda rows, *_: rows > 0)
            # A map in parallel reads ahead of what is saved.
            batches = batches.map(
                lambda _, *arrays: element(*arrays), synchronous=True
            )
        return encoder.elements(batches)

    def epoch(order: tf.Tensor, seed: tf.Tensor | int) -> tf.data.Dataset:
        # TensorFlow adds the function of a scan to the default graph, which in
        # eager mode lives until the process ends. Inside flat_map it does not.
        found = tf.data.Dataset.from_tensors((order, tf.cast(seed, tf.int64)))
        found = found.flat_map(batches_of)
        if skip is None:
            counted = tf.data.experimental.assert_cardinality(num_batches)
            found = found.apply(counted)
        return found

    dataset = epochs(
        range(len(files)),
        epoch,
        None,
        read,
        None if skip else num_batches,
    )
    next_batch.belongs_to(dataset)
    return dataset
