"""Batches of columns that Python code reads, as a tf.data.Dataset."""

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from lodestar.data.python_calls import PythonFunction
from lodestar.data.record_dataset import ReadOptions, epochs
from lodestar.data.sample_columns import (
    check_one_size,
    concat,
    cut,
    num_rows,
    take,
)
from lodestar.data.schema import Column, Schema
from lodestar.data.schema_layout import dtype_of

Columns = Mapping[str, Any]


def column_dataset(
    read: Callable[[str], Iterator[Columns]],
    paths: list[str],
    spec: Schema,
    options: ReadOptions,
) -> tf.data.Dataset:
    """Batches of `(features, label)` of columns.

    Args:
        read: Called with the path of a file; yields pieces of its columns, as
            `Source.batches`.
        paths: The files.
        spec: The slots of the columns.
        options: Of the dataset. A window of `shuffle_rows` is shuffled in
            halves: one half is given out, and the other one filled up.
    """
    layout = options.layout(spec)
    paths, num_shards, shard_index = options.shard_of(paths)
    names = [slot.name for slot in spec.used]

    def pieces(path: str) -> Iterator[Columns]:
        first = 0
        for columns in read(path):
            columns = {name: columns[name] for name in names}
            rows = num_rows(columns)
            if num_shards > 1:
                mine = np.arange((shard_index - first) % num_shards, rows)
                columns = take(columns, mine[::num_shards])
            first += rows
            yield columns

    def batches(files: np.ndarray, seed: int) -> Iterator[tuple[Any, ...]]:
        # Nothing keeps the pieces behind the one that is read.
        found: Iterator[Columns] = (
            p for path in files for p in pieces(os.fsdecode(path))
        )
        if options.shuffle_rows > 1:
            found = _shuffled(found, options.shuffle_rows, int(seed))
        size = options.batch_size
        for batch in _of_size(found, size):
            if options.drop_remainder and num_rows(batch) < size:
                return
            yield tuple(_tensors(spec, batch))

    generator = PythonFunction(batches, layout.tensor_specs)

    def epoch(files: tf.Tensor, seed: tf.Tensor | int) -> tf.data.Dataset:
        return generator.generate(files, tf.cast(seed, tf.int64))

    dataset = epochs(paths, epoch, layout.features_and_label, options)
    generator.belongs_to(dataset)
    return dataset


def _of_size(pieces: Iterable[Columns], size: int) -> Iterator[Columns]:
    """The samples of pieces in pieces of `size`; the last one may be smaller."""
    waiting: list[Columns] = []
    rows = 0
    for piece in pieces:
        waiting.append(piece)
        rows += num_rows(piece)
        if rows < size:
            continue
        columns = concat(waiting)
        end = rows - rows % size
        for begin in range(0, end, size):
            yield cut(columns, begin, begin + size)
        waiting, rows = [cut(columns, end, rows)], rows - end
    if rows:
        yield concat(waiting)


def _shuffled(
    pieces: Iterable[Columns], window: int, seed: int
) -> Iterator[Columns]:
    random = np.random.default_rng(seed % 2**64)
    kept: list[Columns] = []
    for piece in _of_size(pieces, -(-window // 2)):
        columns = concat([*kept, piece])
        columns = take(columns, random.permutation(num_rows(columns)))
        half = num_rows(columns) // 2 if kept else 0
        yield cut(columns, 0, half)
        kept = [cut(columns, half, num_rows(columns))]
    yield from kept


def _tensors(spec: Schema, columns: Columns) -> Iterator[np.ndarray]:
    """The flat tensors of a batch, as SchemaLayout has them."""
    for slot in spec.used:
        column = columns[slot.name]
        if slot.kind == "sparse":
            values, splits = column
            yield _as_dtype(values, slot)
            yield np.asarray(splits, np.int64)
        elif -1 in slot.shape:
            yield _as_dtype(_with_free_dim(slot, *column), slot)
        else:
            column = _as_dtype(column, slot)
            yield column.reshape(-1, 1) if slot.kind == "label" else column


def _as_dtype(values: np.ndarray, slot: Column) -> np.ndarray:
    values = np.asarray(values)
    if values.dtype == np.uint64:  # keeps its bits
        values = values.view(np.int64)
    return values.astype(dtype_of(slot).as_numpy_dtype, copy=False)


def _with_free_dim(
    slot: Column, values: np.ndarray, splits: np.ndarray
) -> np.ndarray:
    check_one_size(slot.name, splits)
    size = int(splits[1] - splits[0]) // slot.multiple
    shape = [size if dim == -1 else dim for dim in slot.shape]
    return values.reshape(len(splits) - 1, *shape)
