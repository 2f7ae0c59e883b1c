"""Rows of Parquet files as the two arrays that a batch crosses to TensorFlow in.

Each array that crosses has its price, and so has fresh memory. So all tensors of
a batch lie in one buffer of bytes, which is used again once TensorFlow has let go
of it, and a table says where each lies.
"""

import collections
import contextlib
import weakref
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from lodestar._library import gen_ops
from lodestar.data.parquet.parquet_rows import Rows
from lodestar.data.parquet.parquet_schema import Binding, spec_of
from lodestar.data.sample_columns import check_one_size
from lodestar.data.schema_layout import SchemaLayout, dtype_of

_LINE = 64  # bytes of a cache line, at which tensors begin
_MAX_FREE = 4  # buffers that wait to be used again
_INT64 = np.dtype(np.int64)

Part = tuple[Rows, int, int]  # rows [begin, end) of rows


class _Piece:
    """What a tensor is made of: arrays, joined, if `splits` as row_splits.

    Attributes:
        size: Its numbers.
        rows: Its first dimension.
    """

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
    """Packs rows into arrays, which are unpacked as the flat tensors of slots."""

    specs = (
        tf.TensorSpec([None], tf.uint8),
        tf.TensorSpec([None, 3], tf.int64),
    )

    def __init__(self, bindings: Sequence[Binding], rows: int | None):
        """Takes the columns, and the rows of a batch, None if they vary."""
        self._specs = SchemaLayout(spec_of(bindings), rows=rows).tensor_specs
        self._columns = [
            (i, binding.slot, np.dtype(dtype_of(binding.slot).as_numpy_dtype))
            for i, binding in enumerate(bindings)
        ]
        # The numbers in a row; None if that varies.
        self._widths = [
            1
            if binding.part is not None or not binding.type.is_list
            else binding.width
            for binding in bindings
        ]
        # A batch owns its memory until TensorFlow releases it. Then this list
        # does, which only the packer and its batches refer to.
        self._free: collections.deque[np.ndarray] = collections.deque(
            maxlen=_MAX_FREE
        )

    def pack(self, parts: Sequence[Part], rows: int) -> list[np.ndarray]:
        """The arrays of the `rows` rows that the parts have together.

        Raises:
            DataError: A dense slot with a free dim has rows of unlike lengths.
        """
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
        """Returns a function from the arrays of `pack` to the slots' flat tensors.

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
        """Those of all tensors; the same one where tensors are alike."""
        # The splits of columns without lists.
        one_each = _Piece(_INT64, rows + 1, rows + 1, [np.arange(rows + 1)])
        for i, slot, dtype in self._columns:
            width = self._widths[i]
            if width is not None:
                values = [
                    p.columns[i][begin:end].reshape(-1)
                    for p, begin, end in parts
                ]
                yield _Piece(dtype, rows * width, rows, values)
                if slot.kind == "sparse":
                    yield one_each
                continue
            bounds = [p.columns[i][1][a : b + 1] for p, a, b in parts]
            values = [
                p.columns[i][0][of_part[0] : of_part[-1]]
                for (p, *_), of_part in zip(parts, bounds)
            ]
            size = sum(map(len, values))
            if slot.kind == "sparse":
                yield _Piece(dtype, size, size, values)
                yield _Piece(_INT64, rows + 1, rows + 1, bounds, splits=True)
                continue
            yield _Piece(dtype, size, rows, values)
            splits = np.empty(rows + 1, np.int64)
            _join_splits(bounds, splits)
            check_one_size(slot.name, splits)

    def _buffer(self, size: int) -> np.ndarray:
        """Bytes from a cache line on: TensorFlow shares, and does not copy, them."""
        memory = np.empty(0, np.uint8)
        with contextlib.suppress(IndexError):
            memory = self._free.pop()
        if len(memory) < size + _LINE:
            # Batches of lists differ in size.
            memory = np.empty(size + size // 8 + _LINE, np.uint8)
        begin = -memory.ctypes.data % _LINE
        buffer = memory[begin : begin + size]
        weakref.finalize(buffer, self._free.append, memory).atexit = False
        return buffer


def _join_splits(bounds: Sequence[np.ndarray], splits: np.ndarray) -> None:
    """Writes the splits of parts behind one another."""
    splits[0] = 0
    at = 0
    for of_part in bounds:
        to = at + len(of_part) - 1
        shift = splits[at] - of_part[0]
        np.add(of_part[1:], shift, out=splits[at + 1 : to + 1])
        at = to
