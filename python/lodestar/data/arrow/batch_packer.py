"""Packs each batch into two arrays to pass it to TensorFlow.

Passing an array and allocating memory both have a cost, so all tensors of a batch
share one reusable byte buffer, and a second array holds their offsets.
"""

import collections
import contextlib
import weakref
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from lodestar._library import gen_ops
from lodestar.data.arrow.decode import Rows
from lodestar.data.binding import Binding
from lodestar.data.sample_columns import as_lists, check_one_size
from lodestar.data.schema_layout import SchemaLayout, dtype_of
from lodestar.schema import Schema

_LINE = 64  # cache line size in bytes; tensors are aligned to it
_MAX_FREE = 4  # buffers kept for reuse
_INT64 = np.dtype(np.int64)

Part = tuple[Rows, int, int]  # rows [begin, end) of rows


class _Piece:
    """The arrays of a tensor, its size in bytes and its first dimension."""

    __slots__ = ("_dtype", "_sources", "_splits", "num_bytes", "rows")

    def __init__(
        self,
        dtype: np.dtype[Any],
        size: int,
        rows: int,
        sources: list[np.ndarray],
        splits: bool = False,
    ):
        self.num_bytes = size * dtype.itemsize
        self.rows = rows
        self._dtype = dtype
        self._sources = sources
        self._splits = splits

    def write(self, buffer: np.ndarray, begin: int) -> None:
        target = buffer[begin : begin + self.num_bytes].view(self._dtype)
        if self._splits:
            _join_splits(self._sources, target)
        elif len(self._sources) == 1:
            target[:] = self._sources[0]
        elif self._sources:
            np.concatenate(self._sources, out=target)


class BatchPacker:
    """Packs rows into arrays that TensorFlow unpacks into flat tensors."""

    specs = (
        tf.TensorSpec([None], tf.uint8),
        tf.TensorSpec([None, 3], tf.int64),
    )

    def __init__(self, bindings: Sequence[Binding], rows: int | None):
        """Creates a packer; `rows` is the batch size, or None if it varies."""
        schema = Schema(binding.column for binding in bindings)
        self._specs = SchemaLayout(schema, rows=rows).tensor_specs
        self._columns = [
            (
                i,
                binding.column,
                np.dtype(dtype_of(binding.column).as_numpy_dtype),
            )
            for i, binding in enumerate(bindings)
        ]
        # Number of values per row; None if it varies.
        self._widths = [
            1 if binding.part is not None else binding.column.num_values
            for binding in bindings
        ]
        # A batch owns its memory until TensorFlow releases it to this list. Only the
        # packer and its batches refer to the list.
        self._free: collections.deque[np.ndarray] = collections.deque(
            maxlen=_MAX_FREE
        )

    def pack(self, parts: Sequence[Part], rows: int) -> list[np.ndarray]:
        """Returns the arrays of a batch that joins all parts, `rows` rows in total."""
        begins: dict[_Piece, int] = {}
        places = []
        end = 0
        for piece in self._pieces(parts, rows):
            begin = begins.setdefault(piece, end)
            if begin == end:
                end += -(-piece.num_bytes // _LINE) * _LINE
            places.append((begin, begin + piece.num_bytes, piece.rows))
        buffer = self._buffer(end)
        for piece, begin in begins.items():
            piece.write(buffer, begin)
        return [buffer, np.array(places, np.int64)]

    def unpacker(self) -> Callable[[tf.Tensor, tf.Tensor], list[tf.Tensor]]:
        """Returns a function from the arrays of `pack` to the flat tensors.

        The function does not refer to this object or to its memory.
        """
        types = [spec.dtype for spec in self._specs]
        shapes = [spec.shape for spec in self._specs]

        def unpack(buffer: tf.Tensor, places: tf.Tensor) -> list[tf.Tensor]:
            return gen_ops.lodestar_cut_buffer(
                buffer=buffer,
                places=places,
                output_types=types,
                output_shapes=shapes,
            )

        return unpack

    def _pieces(self, parts: Sequence[Part], rows: int) -> Iterator[_Piece]:
        """Yields the piece of each tensor; equal tensors share one."""
        # Row splits of columns with one value per row.
        one_each = _Piece(_INT64, rows + 1, rows + 1, [np.arange(rows + 1)])
        for i, column, dtype in self._columns:
            width = self._widths[i]
            found = [p.columns[i] for p, _, _ in parts]
            if width is None and not any(isinstance(f, tuple) for f in found):
                width = 1
            if width is not None:
                values = [
                    f[begin:end].reshape(-1)
                    for f, (_, begin, end) in zip(found, parts)
                ]
                yield _Piece(dtype, rows * width, rows, values)
                if column.kind == "sparse":
                    yield one_each
                continue
            lists = [as_lists(f) for f in found]
            bounds = [
                splits[begin : end + 1]
                for (_, splits), (_, begin, end) in zip(lists, parts)
            ]
            if column.kind == "dense":
                values = _cut_values(lists, bounds)
                yield _Piece(dtype, sum(map(len, values)), rows, values)
                joined = np.empty(rows + 1, np.int64)
                _join_splits(bounds, joined)
                check_one_size(column.name, joined)
                continue
            outer = _Piece(_INT64, rows + 1, rows + 1, bounds, splits=True)
            levels = [outer]
            if column.depth > 1:
                lists = [as_lists(values) for values, _ in lists]
                count = sum(int(b[-1] - b[0]) for b in bounds)
                bounds = [
                    inner[b[0] : b[-1] + 1]
                    for (_, inner), b in zip(lists, bounds)
                ]
                levels.insert(
                    0, _Piece(_INT64, count + 1, count + 1, bounds, splits=True)
                )
            values = _cut_values(lists, bounds)
            size = sum(map(len, values))
            yield _Piece(dtype, size, size, values)
            yield from levels

    def _buffer(self, size: int) -> np.ndarray:
        """Returns aligned bytes, which TensorFlow shares instead of copying."""
        memory = np.empty(0, np.uint8)
        with contextlib.suppress(IndexError):
            memory = self._free.pop()
        if len(memory) < size + _LINE:
            # Leave room to reuse the memory: batches of lists differ in size.
            memory = np.empty(size + size // 8 + _LINE, np.uint8)
        begin = -memory.ctypes.data % _LINE
        buffer = memory[begin : begin + size]
        weakref.finalize(buffer, self._free.append, memory).atexit = False
        return buffer


def _cut_values(
    lists: Sequence[Any], bounds: Sequence[np.ndarray]
) -> list[np.ndarray]:
    return [values[b[0] : b[-1]] for (values, _), b in zip(lists, bounds)]


def _join_splits(bounds: Sequence[np.ndarray], splits: np.ndarray) -> None:
    """Concatenates the row splits of several parts."""
    splits[0] = 0
    at = 0
    for of_part in bounds:
        to = at + len(of_part) - 1
        shift = splits[at] - of_part[0]
        np.add(of_part[1:], shift, out=splits[at + 1 : to + 1])
        at = to
