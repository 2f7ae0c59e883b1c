"""Batches of `(features, label)` from Arrow sources."""

from collections.abc import Collection, Sequence
from typing import Any

import tensorflow as tf

from lodestar.data.arrow.batch_packer import BatchPacker
from lodestar.data.arrow.row_reader import RowReader
from lodestar.data.arrow.row_source import RowSource
from lodestar.data.binding import Binding
from lodestar.data.record_dataset import ReadOptions, epochs
from lodestar.ops.python_calls import PythonFunction
from lodestar.ops.ragged_encoder import RaggedEncoder
from lodestar.schema import Schema


def arrow_dataset(
    sources: Sequence[RowSource],
    bindings: Sequence[Binding],
    na_values: Collection[str],
    read: ReadOptions,
) -> tf.data.Dataset:
    """Returns a dataset of batches of the bound columns of `sources`."""
    skip = read.skip
    sources, *shard = read.shard_of(list(sources))
    layout = read.layout(Schema(binding.column for binding in bindings))
    reader = RowReader(
        sources,
        bindings,
        batch_size=read.batch_size,
        drop_remainder=read.drop_remainder,
        ahead=read.num_parallel_files,
        window=read.shuffle,
        shard=(shard[0], shard[1]),
        skip=skip,
        na_values=na_values,
    )

    # Keep no other reference to the reader, so that it is freed with the dataset.
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
                # Inlined here because an extra function call is slow.
                return position, element(*arrays)
            return position, (rows, *arrays)

        start = tuple(tf.constant(x, tf.int64) for x in (0, 0, -1))
        count = num_batches if skip is None else tf.int64.max
        batches = tf.data.Dataset.range(count).scan(start, batch)
        if skip is not None:
            batches = batches.take_while(lambda rows, *_: rows > 0)
            # A parallel map would read ahead of the saved position.
            batches = batches.map(
                lambda _, *arrays: element(*arrays), synchronous=True
            )
        return encoder.elements(batches)

    def epoch(order: tf.Tensor, seed: tf.Tensor | int) -> tf.data.Dataset:
        # TensorFlow adds the scan function to the default graph, which in eager
        # mode lives until the process ends. Inside flat_map it does not.
        found = tf.data.Dataset.from_tensors((order, tf.cast(seed, tf.int64)))
        found = found.flat_map(batches_of)
        if skip is None:
            counted = tf.data.experimental.assert_cardinality(num_batches)
            found = found.apply(counted)
        return found

    dataset = epochs(
        range(len(sources)),
        epoch,
        None,
        read,
        None if skip else num_batches,
    )
    next_batch.belongs_to(dataset)
    return dataset
