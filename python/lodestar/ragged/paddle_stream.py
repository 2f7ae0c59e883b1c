"""Reads and writes Paddle's streams.

A tensor:           uint32 0 | int32 bytes of a TensorDesc | TensorDesc
                    | numbers, row-major
with its LoD:       uint32 0 | uint64 levels | for each: uint64 bytes, uint64
                    offsets | the tensor
of selected rows:   uint32 0 | uint64 rows | int64 rows | int64 height
                    | the tensor

Everything is little-endian. TensorDesc is a protocol buffer with two fields,
`data_type` (1) and `dims` (2, repeated), all varints.
"""

import struct

import numpy as np
import tensorflow as tf

# VarType.Type of Paddle's framework.proto.
_TYPES = {
    tf.bool: 0,
    tf.int16: 1,
    tf.int32: 2,
    tf.int64: 3,
    tf.float16: 4,
    tf.float32: 5,
    tf.float64: 6,
    tf.uint8: 20,
    tf.int8: 21,
    tf.bfloat16: 22,
}
_DTYPES = {number: dtype for dtype, number in _TYPES.items()}


def _varint(number: int) -> bytes:
    low = bytearray()
    while number > 127:
        low.append(number & 127 | 128)
        number >>= 7
    return bytes([*low, number])


def write(values: np.ndarray, levels: list[np.ndarray]) -> bytes:
    """Returns the stream of rows with their levels."""
    stream = [struct.pack("<IQ", 0, len(levels))]
    for level in levels:
        offsets = level.astype("<u8").tobytes()
        stream += [struct.pack("<Q", len(offsets)), offsets]
    return b"".join([*stream, _write_tensor(values)])


def write_selected_rows(
    rows: np.ndarray, values: np.ndarray, height: int
) -> bytes:
    """Returns the stream of values of selected rows out of `height`."""
    head = struct.pack("<IQ", 0, len(rows))
    head += rows.astype("<i8").tobytes() + struct.pack("<q", height)
    return head + _write_tensor(values)


def _write_tensor(values: np.ndarray) -> bytes:
    number = _TYPES.get(tf.as_dtype(values.dtype))
    if number is None:
        raise TypeError(
            f"Paddle does not have the dtype {values.dtype} of `values`."
        )
    desc = b"\x08" + _varint(number)
    desc += b"".join(b"\x10" + _varint(dim) for dim in values.shape)
    # NumPy is little-endian on all platforms of TensorFlow.
    return struct.pack("<Ii", 0, len(desc)) + desc + values.tobytes()


class _Reader:
    """Reads pieces from bytes in order."""

    def __init__(self, stream: bytes, of: str):
        self._stream = stream
        self._of = of
        self._at = 0

    def error(self, problem: str) -> ValueError:
        return ValueError(f"`stream` is not a {self._of} of Paddle: {problem}.")

    def part(self, size: int, what: str) -> "_Reader":
        return _Reader(self.take(size, what), self._of)

    def left(self) -> int:
        return len(self._stream) - self._at

    def take(self, size: int, what: str) -> bytes:
        if not 0 <= size <= self.left():
            raise self.error(
                f"{what} at byte {self._at} needs {size} bytes, got "
                f"{self.left()}"
            )
        self._at += size
        return self._stream[self._at - size : self._at]

    def number(self, form: str, what: str) -> int:
        return struct.unpack(form, self.take(struct.calcsize(form), what))[0]

    def version(self, what: str) -> None:
        version = self.number("<I", f"the version of {what}")
        if version != 0:
            raise self.error(f"the version of {what} must be 0, got {version}")

    def varint(self, what: str) -> int:
        number = 0
        for shift in range(0, 70, 7):
            byte = self.take(1, what)[0]
            number |= (byte & 127) << shift
            if byte < 128:
                return number
        raise self.error(f"{what} before byte {self._at} has no end")


def _read_desc(desc: _Reader) -> tuple[tf.DType, list[int]]:
    dtype, dims = None, []
    while desc.left():
        tag = desc.varint("a field of the description")
        if tag == 8:
            number = desc.varint("the dtype")
            dtype = _DTYPES.get(number)
            if dtype is None:
                raise desc.error(
                    f"the dtype must be one of {sorted(_DTYPES)}, got {number}"
                )
        elif tag == 16:
            dims.append(desc.varint("a dimension"))
        else:
            raise desc.error(f"the description has the tag {tag}")
    if dtype is None or not dims:
        raise desc.error("the description has no dtype or no dimension")
    return dtype, dims


def read(stream: bytes) -> tuple[np.ndarray, list[np.ndarray]]:
    """Returns the rows and levels of a stream; does not check the levels."""
    reader = _Reader(bytes(stream), "LoD tensor")
    reader.version("the LoD")
    levels = []
    for k in range(reader.number("<Q", "the number of levels")):
        size = reader.number("<Q", f"the size of level {k}")
        if size % 8:
            raise reader.error(
                f"the size of level {k} must be a multiple of 8, got {size}"
            )
        offsets = reader.take(size, f"level {k}")
        levels.append(np.frombuffer(offsets, "<i8"))
    return _read_tensor(reader), levels


def read_selected_rows(stream: bytes) -> tuple[np.ndarray, np.ndarray, int]:
    """Returns the rows, values and height of a stream; does not check rows."""
    reader = _Reader(bytes(stream), "SelectedRows")
    reader.version("the rows")
    count = reader.number("<Q", "the number of rows")
    rows = np.frombuffer(reader.take(8 * count, "the rows"), "<i8")
    height = reader.number("<q", "the height")
    return rows, _read_tensor(reader), height


def _read_tensor(reader: _Reader) -> np.ndarray:
    reader.version("the values")
    size = reader.number("<i", "the size of the description")
    dtype, dims = _read_desc(reader.part(size, "the description"))
    count = 1
    for dim in dims:
        count *= dim
    if count * dtype.size != reader.left():
        raise reader.error(
            f"values of shape {dims} and {dtype.name} take "
            f"{count * dtype.size} bytes, got {reader.left()}"
        )
    values = reader.take(reader.left(), "the values")
    return np.frombuffer(values, dtype.as_numpy_dtype).reshape(dims)
