"""Compares LoDTensor's conversion from and to Paddle's stream with its bytes."""

import numpy as np
import pytest
import tensorflow as tf

from lodestar.paddle import SelectedRows
from lodestar.ragged import LoDTensor

# LoD [[0, 2, 2, 5]] over float32 [5, 1]: the LoD, then the tensor.
LOD = (
    bytes(4)
    + bytes([1, *[0] * 7])
    + bytes([32, *[0] * 7])
    + bytes([0] * 8)
    + bytes([2, *[0] * 7]) * 2
    + bytes([5, *[0] * 7])
)
# FP32 is 5; the fields data_type (tag 8) and dims (tag 16).
TENSOR = (
    bytes(4)
    + bytes([6, 0, 0, 0])
    + bytes([8, 5, 16, 5, 16, 1])
    + np.arange(5, dtype="<f4").tobytes()
)
DTYPES = [
    tf.bool,
    tf.int8,
    tf.uint8,
    tf.int16,
    tf.int32,
    tf.int64,
    tf.float16,
    tf.bfloat16,
    tf.float32,
    tf.float64,
]


def test_the_formats_bytes():
    rows = np.arange(5, dtype=np.float32)[:, np.newaxis]
    x = LoDTensor.from_lengths(rows, [[2, 0, 3]])
    assert x.to_paddle_stream() == LOD + TENSOR
    back = LoDTensor.from_paddle_stream(LOD + TENSOR)
    assert back.to_list() == x.to_list()


@pytest.mark.parametrize("dtype", DTYPES, ids=lambda dtype: dtype.name)
@pytest.mark.parametrize("shape", [(), (300,), (2, 0), (2, 3)])
@pytest.mark.parametrize("lengths", [[], [[0]], [[2], [1, 5]]])
def test_streams_round_trip(lengths, shape, dtype, rng):
    count = sum(lengths[-1]) if lengths else 4
    values = tf.cast(rng.integers(2, size=(count, *shape)), dtype)
    x = LoDTensor(values, ())
    if lengths:
        x = LoDTensor.from_lengths(values, lengths)
    back = LoDTensor.from_paddle_stream(x.to_paddle_stream())
    assert (back.values.dtype, back.values.shape) == (dtype, values.shape)
    assert [a.numpy().tolist() for a in back.lod] == [
        a.numpy().tolist() for a in x.lod
    ]
    np.testing.assert_array_equal(back.values, values)


@pytest.mark.parametrize("end", range(len(LOD + TENSOR)))
def test_cut_streams_are_refused(end):
    with pytest.raises(
        ValueError, match="`stream` is not a LoD tensor of Paddle"
    ):
        LoDTensor.from_paddle_stream((LOD + TENSOR)[:end])


def changed(at, byte):
    stream = bytearray(LOD + TENSOR)
    stream[at] = byte
    return bytes(stream)


@pytest.mark.parametrize(
    "stream, message",
    [
        (changed(0, 1), "the version of the LoD must be 0, got 1"),
        (changed(4, 2), "the size of level 1|level 1 at byte"),
        (changed(12, 31), "level 0 must be a multiple of 8, got 31"),
        (
            changed(19, 255),
            "level 0 at byte 20 needs 18374686479671623712 bytes",
        ),
        (changed(52, 7), "the version of the values must be 0, got 7"),
        (changed(59, 255), "the description at byte 60 needs -"),
        (changed(60, 24), "the description has the tag 24"),
        (changed(61, 99), "the dtype must be one of .*, got 99"),
        (changed(63, 6), r"shape \[6, 1\] and float32 take 24 bytes, got 20"),
        (LOD + TENSOR + b"x", "take 20 bytes, got 21"),
        (
            LOD + bytes(4) + bytes([2, 0, 0, 0, 8, 5]),
            "no dtype or no dimension",
        ),
        (
            LOD + bytes(4) + bytes([13, 0, 0, 0, 8, 5, *[255] * 11]),
            "has no end|has the tag",
        ),
    ],
)
def test_errors_name_the_position(stream, message):
    with pytest.raises(ValueError, match=message):
        LoDTensor.from_paddle_stream(stream)


def test_levels_are_checked():
    with pytest.raises(
        tf.errors.InvalidArgumentError, match=r"`lod\[0\]\[1\]`=2 is greater"
    ):
        LoDTensor.from_paddle_stream(changed(36, 1))


def test_random_bytes_are_refused_or_read(rng):
    whole = LOD + TENSOR
    taken = 0
    for _ in range(2000):
        stream = bytearray(whole)
        for _ in range(rng.integers(1, 4)):
            stream[rng.integers(len(stream))] = rng.integers(256)
        try:
            LoDTensor.from_paddle_stream(bytes(stream))
            taken += 1
        except (ValueError, tf.errors.InvalidArgumentError):
            pass
    # Streams in which only values changed.
    assert taken > 50


def test_what_is_no_stream():
    with pytest.raises(TypeError, match="Paddle does not have the dtype"):
        LoDTensor(["a"], ()).to_paddle_stream()

    @tf.function
    def graph(values):
        return LoDTensor(values, ()).to_paddle_stream()

    with pytest.raises(ValueError, match="`to_paddle_stream` requires eager"):
        graph(tf.ones([1]))


# Rows 5 3 of a height of 10, over float32 [2, 1].
SELECTED = (
    bytes(4)
    + bytes([2, *[0] * 7])
    + bytes([5, *[0] * 7])
    + bytes([3, *[0] * 7])
    + bytes([10, *[0] * 7])
    + bytes(4)
    + bytes([6, 0, 0, 0])
    + bytes([8, 5, 16, 2, 16, 1])
    + np.array([1, 2], "<f4").tobytes()
)


def test_the_formats_bytes_of_selected_rows():
    x = SelectedRows([5, 3], [[1.0], [2.0]], 10)
    assert x.to_paddle_stream() == SELECTED
    back = SelectedRows.from_paddle_stream(SELECTED)
    assert back.rows.numpy().tolist() == [5, 3]
    assert back.values.numpy().tolist() == [[1.0], [2.0]]
    assert int(back.height) == 10


@pytest.mark.parametrize("dtype", DTYPES, ids=lambda dtype: dtype.name)
@pytest.mark.parametrize("shape", [(), (3,), (2, 0)])
@pytest.mark.parametrize("count", [0, 7])
def test_selected_rows_round_trip(count, shape, dtype, rng):
    values = tf.cast(rng.integers(2, size=(count, *shape)), dtype)
    x = SelectedRows(rng.integers(2**40, size=count), values, 2**40)
    back = SelectedRows.from_paddle_stream(x.to_paddle_stream())
    np.testing.assert_array_equal(back.rows, x.rows)
    assert back.values.dtype == dtype
    np.testing.assert_array_equal(back.values, values)
    assert int(back.height) == 2**40


@pytest.mark.parametrize("end", range(len(SELECTED)))
def test_cut_streams_of_selected_rows_are_refused(end):
    with pytest.raises(ValueError, match="is not a SelectedRows of Paddle"):
        SelectedRows.from_paddle_stream(SELECTED[:end])


def test_invalid_streams_of_selected_rows():
    def read(at, byte):
        stream = bytearray(SELECTED)
        stream[at] = byte
        SelectedRows.from_paddle_stream(bytes(stream))

    with pytest.raises(
        ValueError, match="the version of the rows must be 0, got 1"
    ):
        read(0, 1)
    with pytest.raises(ValueError, match="the rows at byte 12 needs 1844674"):
        read(11, 32)
    with pytest.raises(ValueError, match="take 8 bytes, got 9"):
        SelectedRows.from_paddle_stream(SELECTED + b"x")
    invalid = tf.errors.InvalidArgumentError
    with pytest.raises(
        invalid, match=r"`rows\[0\]` must be in \[0, 10\), got 11"
    ):
        read(12, 11)
    with pytest.raises(
        invalid, match=r"`rows\[0\]` must be in \[0, 4\), got 5"
    ):
        read(28, 4)
    # Sixteen bytes fewer of rows are sixteen more of the following field.
    with pytest.raises(ValueError, match="is not a SelectedRows of Paddle"):
        read(4, 0)
    with pytest.raises(TypeError, match="Paddle does not have the dtype"):
        SelectedRows([0], ["a"], 1).to_paddle_stream()

    @tf.function
    def graph(values):
        return SelectedRows([0], values, 1).to_paddle_stream()

    with pytest.raises(ValueError, match="`to_paddle_stream` requires eager"):
        graph(tf.ones([1]))
