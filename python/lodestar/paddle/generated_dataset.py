"""Datasets of MultiSlot lines that Python code generates from files."""

import itertools
import os
from collections.abc import Callable, Iterable, Iterator
from typing import Unpack

import tensorflow as tf

from lodestar._typing import StrPaths
from lodestar.data.record_dataset import (
    ReadArguments,
    as_paths,
    epochs,
    options_of,
)
from lodestar.ops.python_calls import PythonFunction
from lodestar.paddle.parse_multislot import parse_flat
from lodestar.schema import Schema

# One Python thread generates the lines.
_NOT_HERE = (
    "num_parallel_files",
    "deterministic",
    "on_error",
    "skipped",
    "open_command",
)


def generated_dataset(
    texts: Callable[[str], Iterator[str]],
    files: StrPaths,
    spec: Schema,
    batch_size: int,
    **options: Unpack[ReadArguments],
) -> tf.data.Dataset:
    """Returns batches of `(features, label)` from lines of MultiSlot text.

    `texts` yields the lines for the path of a file. All of `ReadOptions` is
    supported except `num_parallel_files`, `deterministic`, `on_error`,
    `skipped` and `open_command`.
    """
    for name in _NOT_HERE:
        if name in options:
            raise ValueError(
                f"`{name}` is not an option here: the generator opens the files "
                "in one thread, and its errors are raised."
            )
    read = options_of(generated_dataset, batch_size, options)
    layout = read.layout(spec)
    paths, num_shards, shard_index = read.shard_of(as_paths(files))

    def batches(paths: Iterable[bytes]) -> Iterator[tuple[list[str]]]:
        lines = itertools.chain.from_iterable(
            itertools.islice(
                texts(os.fsdecode(path)), shard_index, None, num_shards
            )
            for path in paths
        )
        while batch := list(itertools.islice(lines, batch_size)):
            yield (batch,)

    generator = PythonFunction(batches, [tf.TensorSpec([None], tf.string)])

    def epoch(files: tf.Tensor, seed: tf.Tensor | int) -> tf.data.Dataset:
        # unbatch().batch() also makes the batch size static if it is fixed.
        lines = generator.generate(files).unbatch()
        if read.shuffle:
            lines = lines.shuffle(read.shuffle, seed=seed)
        lines = lines.batch(batch_size, drop_remainder=read.drop_remainder)
        return lines.map(lambda text: tuple(parse_flat(text, layout)))

    dataset = epochs(paths, epoch, layout.features_and_label, read)
    generator.belongs_to(dataset)
    return dataset
