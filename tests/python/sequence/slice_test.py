"""lodestar.sequence.slice against NumPy, its gradients and its errors."""

import numpy as np
import pytest
import tensorflow as tf
from batches import LENGTHS, MOVED, check_gradients, random_rows, splits_of

import lodestar
from lodestar._library import gen_ops
from lodestar.ragged import LoDTensor


@pytest.mark.parametrize("dtype", MOVED, ids=lambda dtype: dtype.name)
@pytest.mark.parametrize("lengths", LENGTHS, ids=str)
def test_matches_numpy(lengths, dtype, rng):
    ends = splits_of(lengths)
    offset = rng.integers(0, np.array(lengths, np.int64) + 1)
    length = rng.integers(0, np.array(lengths, np.int64) - offset + 1)
    for shape in ((), (5,), (2, 3), (0,)):
        values = random_rows(rng, (ends[-1], *shape), dtype)
        for number_dtype in (np.int32, np.int64):
            got = lodestar.sequence.slice(
                tf.RaggedTensor.from_row_splits(values, ends),
                offset.astype(number_dtype),
                length.astype(number_dtype),
            )
            wanted = [
                values.numpy()[ends[b] + o :][:n]
                for b, (o, n) in enumerate(zip(offset, length, strict=True))
            ]
            np.testing.assert_array_equal(
                got.flat_values,
                np.concatenate([values.numpy()[:0], *wanted]),
            )
            np.testing.assert_array_equal(got.row_lengths(), length)
            assert got.dtype == dtype


def test_the_documented_example():
    x = LoDTensor.from_lengths(list("abcde"), [[3, 2]])
    y = lodestar.sequence.slice(x, [0, 1], [2, 1])
    assert isinstance(y, LoDTensor)
    assert y.values.numpy().tolist() == [b"a", b"b", b"e"]
    assert y.lod[0].numpy().tolist() == [0, 2, 3]


def test_two_levels_keep_the_upper_one():
    x = tf.ragged.constant([[[1, 2, 3], []], [], [[4, 5]]])
    y = lodestar.sequence.slice(x, [1, 0, 0], [2, 0, 1])
    assert y.to_list() == [[[2, 3], []], [], [[4]]]
    y = lodestar.sequence.slice(LoDTensor.from_ragged(x), [1, 0, 0], [2, 0, 1])
    assert y.to_ragged().to_list() == [[[2, 3], []], [], [[4]]]
    x = tf.RaggedTensor.from_row_splits([5, 6], np.array([0, 2], np.int32))
    y = lodestar.sequence.slice(x, [1], [1])
    assert y.row_splits.dtype == tf.int32


def test_unknown_dimensions_in_a_function():
    vector = tf.TensorSpec([None], tf.int64)

    @tf.function(
        input_signature=[
            tf.RaggedTensorSpec([None, None, 2], tf.float32, 1),
            vector,
            vector,
        ]
    )
    def sliced(x, offset, length):
        y = lodestar.sequence.slice(x, offset, length)
        assert y.flat_values.shape.as_list() == [None, 2]
        return y

    x = tf.RaggedTensor.from_row_lengths(tf.ones([3, 2]), [2, 0, 1])
    assert sliced(x, [1, 0, 0], [1, 0, 0]).row_lengths().numpy().tolist() == [
        1,
        0,
        0,
    ]
    with pytest.raises(
        tf.errors.InvalidArgumentError, match=r"`length\[1\]` is 1 from"
    ):
        sliced(x, [1, 0, 0], [1, 1, 0])


def test_gradients_are_numeric_ones_to_second_order(rng):
    values = tf.constant(rng.normal(size=(6, 2)))

    def sliced(values):
        x = tf.RaggedTensor.from_row_lengths(values, [3, 0, 2, 1])
        return lodestar.sequence.slice(x, [1, 0, 0, 1], [1, 0, 2, 0]).values

    check_gradients(sliced, values)


def test_gradient_of_a_large_batch(rng):
    lengths = np.concatenate([rng.integers(0, 9, 3000), [40000]])
    offset = rng.integers(0, lengths + 1)
    length = rng.integers(0, lengths - offset + 1)
    values = tf.constant(rng.normal(size=(lengths.sum(), 8)).astype(np.float32))
    upstream = rng.normal(size=(length.sum(), 8)).astype(np.float32)
    with tf.GradientTape() as tape:
        tape.watch(values)
        x = tf.RaggedTensor.from_row_lengths(values, lengths)
        y = lodestar.sequence.slice(x, offset, length).values
    kept = np.concatenate(
        [
            begin + o + np.arange(n)
            for begin, o, n in zip(
                np.cumsum(lengths) - lengths, offset, length, strict=True
            )
        ]
    )
    wanted = np.zeros(values.shape, np.float32)
    wanted[kept] = upstream
    np.testing.assert_array_equal(
        tape.gradient(y, values, tf.constant(upstream)), wanted
    )


@pytest.mark.parametrize(
    "offset, length, message",
    [
        (
            [0, 0, 3],
            [1, 0, 2],
            r"`length\[2\]` is 2 from `offset\[2\]`=3, but sequence 2 has "
            "length 4",
        ),
        ([0, 1, 0], [1, 0, 2], r"`length\[1\]` is 0 from `offset\[1\]`=1"),
        ([0, 0, 2**62], [0, 0, 2**62], r"`length\[2\]` is 4611686018427387904"),
        ([0, -1, 0], [0, 0, 0], r"`offset\[1\]` must be at least 0, got -1"),
        ([0, 0, 0], [0, 0, -5], r"`length\[2\]` must be at least 0, got -5"),
        (
            [0, 0],
            [0, 0, 0],
            "`offset` has 2 elements, but there are 3 sequences",
        ),
        (
            [0] * 3,
            [0] * 4,
            "`length` has 4 elements, but there are 3 sequences",
        ),
    ],
)
def test_parts_outside_of_their_sequence_are_named(offset, length, message):
    x = tf.RaggedTensor.from_row_lengths(tf.ones([6, 2]), [2, 0, 4])
    offset = tf.Variable(offset, shape=[None], dtype=tf.int64)
    length = tf.Variable(length, shape=[None], dtype=tf.int64)
    call = tf.function(lambda x: lodestar.sequence.slice(x, offset, length))
    with pytest.raises(tf.errors.InvalidArgumentError, match=message):
        call(x)


def test_invalid_arguments_are_refused():
    x = tf.ragged.constant([[1.0]])
    with pytest.raises(
        TypeError, match="`offset` has dtype float32, but must be"
    ):
        lodestar.sequence.slice(x, [0.5], [1])
    with pytest.raises(ValueError, match=r"`length` must have rank 1, got"):
        lodestar.sequence.slice(x, [0], 1)
    with pytest.raises(TypeError, match="RaggedTensor or LoDTensor"):
        lodestar.sequence.slice([[1.0]], [0], [1])
    with pytest.raises(ValueError, match="`x` has no level"):
        lodestar.sequence.slice(LoDTensor([1.0], ()), [0], [1])
    with pytest.raises(TypeError, match="dtype complex64, but must be one of"):
        lodestar.sequence.slice(tf.cast(x, tf.complex64), [0], [1])


def slice_op(
    values=(1.0, 2.0, 3.0), row_splits=(0, 3), offset=(1,), length=(1,)
):
    return gen_ops.lodestar_sequence_slice(
        values=tf.convert_to_tensor(values, tf.float32),
        row_splits=tf.convert_to_tensor(row_splits, tf.int64),
        offset=tf.convert_to_tensor(offset, tf.int64),
        length=tf.convert_to_tensor(length, tf.int64),
    )


def gradient_op(gradient=(1.0,), row_splits=(0, 3), offset=(1,), length=(1,)):
    return gen_ops.lodestar_sequence_slice_gradient(
        gradient=tf.convert_to_tensor(gradient, tf.float32),
        row_splits=tf.convert_to_tensor(row_splits, tf.int64),
        offset=tf.convert_to_tensor(offset, tf.int64),
        length=tf.convert_to_tensor(length, tf.int64),
    )


@pytest.mark.parametrize("op", [slice_op, gradient_op])
@pytest.mark.parametrize(
    "arguments, message",
    [
        (dict(row_splits=[1, 3]), r"`row_splits\[0\]` must be 0, got 1"),
        (dict(row_splits=[0, 4, 3]), r"`row_splits\[1\]`=4 is greater than"),
        (dict(row_splits=[]), "`row_splits` is empty"),
        (dict(row_splits=3), "`row_splits` must have rank 1"),
        (dict(offset=1), "`offset` must have rank 1"),
        (dict(length=[[1]]), "`length` must have rank 1"),
        (dict(offset=[]), "`offset` has 0 elements"),
        (dict(length=[3]), r"`length\[0\]` is 3 from `offset\[0\]`=1"),
    ],
)
def test_ops_refuse_invalid_arguments(op, arguments, message):
    with pytest.raises(tf.errors.InvalidArgumentError, match=message):
        op(**arguments)


def test_the_ops_refuse_other_rows():
    for op, arguments, message in (
        (slice_op, dict(values=1.0), "`values` must have rank 1 or more"),
        (slice_op, dict(row_splits=[0, 2]), "there are 3 rows"),
        (gradient_op, dict(gradient=1.0), "`gradient` must have rank 1 or"),
        (gradient_op, dict(gradient=[1.0, 2.0]), "has 2 rows, but the slices"),
        (
            gradient_op,
            dict(gradient=tf.zeros([1, 4]), row_splits=[0, 2**62]),
            "overflow",
        ),
    ):
        with pytest.raises(tf.errors.InvalidArgumentError, match=message):
            op(**arguments)
