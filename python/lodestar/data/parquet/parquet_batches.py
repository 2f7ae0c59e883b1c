"""Rows of Parquet files as the few arrays that a batch crosses to TensorFlow in.

Columns of one number a row share a matrix, and so do the splits of all ragged
columns, since every array that crosses has its price:

    floats  float32 [columns, B, 1]    ids  int64 [columns, B]
    splits  int64 [columns, B + 1, filled up to whole cache lines]

A wider column, and the values of a ragged one, are arrays of their own.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from lodestar.data.parquet.parquet_rows import Rows
from lodestar.data.parquet.parquet_schema import Binding
from lodestar.data.sample_columns import check_one_size
from lodestar.data.slot_layout import dtype_of

# TensorFlow shares, and does not copy, what lies at such places.
_LINE = 64
_LINE_WORDS = _LINE // 8

Part = tuple[Rows, int, int]  # rows [begin, end) of rows


class BatchPacker:
    """Packs rows into arrays, and unpacks them as the flat tensors of slots."""

    def __init__(self, bindings: Sequence[Binding], rows: int | None):
        """Takes the columns, and the rows of a batch, None if they vary."""
        self._bindings = list(bindings)
        self._rows = rows
        self._floats: list[int] = []
        self._ids: list[int] = []
        self._ragged: list[int] = []
        self._wide: list[int] = []
        for i, binding in enumerate(self._bindings):
            width = 1 if binding.part is not None else binding.width
            if width is None and binding.type.is_list:
                self._ragged.append(i)
            elif width not in (None, 1):
                self._wide.append(i)
            elif dtype_of(binding.slot) == tf.float32:
                self._floats.append(i)
            else:
                self._ids.append(i)
        self._own = self._wide + self._ragged
        self.dtypes = [
            tf.float32,
            tf.int64,
            tf.int64,
            *(dtype_of(self._bindings[i].slot) for i in self._own),
        ]

    def pack(self, parts: Sequence[Part], rows: int) -> list[np.ndarray]:
        """The arrays of the `rows` rows that the parts have together.

        Raises:
            DataError: A dense slot with a free dim has rows of unlike lengths.
        """
        floats = _aligned((len(self._floats), rows, 1), np.float32)
        ids = _aligned((len(self._ids), rows), np.int64)
        stride = -(-(rows + 1) // _LINE_WORDS) * _LINE_WORDS
        splits = _aligned((len(self._ragged), stride), np.int64)
        at = 0
        for part, begin, end in parts:
            columns = part.columns
            to = at + end - begin
            for row, i in enumerate(self._floats):
                floats[row, at:to] = columns[i][begin:end]
            for row, i in enumerate(self._ids):
                ids[row, at:to] = columns[i][begin:end, 0]
            at = to
        own = []
        for i in self._wide:
            pieces = [p.columns[i][begin:end] for p, begin, end in parts]
            own.append(
                self._joined(i, pieces, [0, self._bindings[i].width or 1])
            )
        for row, i in enumerate(self._ragged):
            bounds = [p.columns[i][1][a : b + 1] for p, a, b in parts]
            _join_splits(bounds, splits[row])
            pieces = [
                p.columns[i][0][of_part[0] : of_part[-1]]
                for (p, *_), of_part in zip(parts, bounds)
            ]
            values = self._joined(i, pieces, [0])
            if self._bindings[i].slot.kind == "dense":
                name = self._bindings[i].slot.name
                check_one_size(name, splits[row, : rows + 1])
            own.append(values)
        return [floats, ids, splits, *own]

    def _joined(
        self, i: int, pieces: list[np.ndarray], empty: list[int]
    ) -> np.ndarray:
        """The pieces in new memory: TensorFlow may write into what it gets."""
        if len(pieces) == 1:
            return pieces[0].copy()
        if not pieces:
            dtype = dtype_of(self._bindings[i].slot).as_numpy_dtype
            return np.zeros(empty, dtype)
        return np.concatenate(pieces)

    def unpack(self, rows: tf.Tensor, *arrays: tf.Tensor) -> tuple[Any, ...]:
        """The flat tensors of the slots, in order, from the arrays of `pack`."""
        floats, ids, splits, *own = arrays
        count = rows if self._rows is None else self._rows
        floats = _unstacked(floats, [len(self._floats), self._rows, 1])
        ids = _unstacked(ids, [len(self._ids), self._rows])
        splits = _unstacked(splits, [len(self._ragged), None])
        single = dict(zip(self._floats + self._ids, floats + ids))
        ragged = dict(zip(self._ragged, splits))
        of_own = dict(zip(self._own, own))
        first = self._rows
        # The splits of columns without lists.
        one_each = tf.range(count + 1, dtype=tf.int64)
        # Of all splits: the index operator would make its own for each.
        begin = tf.constant([0], tf.int64)
        size = tf.reshape(tf.cast(count + 1, tf.int64), [1])
        tensors = []
        for i, binding in enumerate(self._bindings):
            slot = binding.slot
            values = single[i] if i in single else of_own[i]
            shape = [first]
            if slot.kind == "sparse":
                shape = [None if i in of_own else first]
            elif slot.kind == "label":
                shape = [first, 1]
            elif slot.kind == "dense":
                shape = [count if -1 in slot.shape else first, *slot.shape]
            tensors.append(_as_shape(values, shape))
            if slot.kind == "sparse":
                ends = one_each
                if i in ragged:
                    ends = tf.slice(ragged[i], begin, size)
                    if self._rows is not None:
                        ends.set_shape([self._rows + 1])
                tensors.append(ends)
        return tuple(tensors)


def _as_shape(values: tf.Tensor, shape: list[Any]) -> tf.Tensor:
    """`values` in a shape of at most one None; they may have it already."""
    known = values.shape
    if known.rank is None and shape == [None]:
        values.set_shape(shape)
        return values
    static = all(dim is None or isinstance(dim, int) for dim in shape)
    if static and known.rank is not None and known.as_list() == shape:
        return values
    return tf.reshape(values, [-1 if dim is None else dim for dim in shape])


def _unstacked(matrix: tf.Tensor, shape: list[Any]) -> list[tf.Tensor]:
    matrix.set_shape(shape)
    return tf.unstack(matrix, num=shape[0]) if shape[0] else []


def _aligned(shape: tuple[int, ...], dtype: type) -> np.ndarray:
    size = int(np.prod(shape)) * np.dtype(dtype).itemsize
    buffer = np.empty(size + _LINE, np.uint8)
    begin = -buffer.ctypes.data % _LINE
    return buffer[begin : begin + size].view(dtype).reshape(shape)


def _join_splits(bounds: Sequence[np.ndarray], splits: np.ndarray) -> None:
    """Writes the splits of parts behind one another."""
    splits[0] = 0
    at = 0
    for of_part in bounds:
        to = at + len(of_part) - 1
        shift = splits[at] - of_part[0]
        np.add(of_part[1:], shift, out=splits[at + 1 : to + 1])
        at = to
