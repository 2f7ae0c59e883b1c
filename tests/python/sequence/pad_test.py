"""lodestar.sequence.pad and unpad against NumPy, their gradients and errors."""

import numpy as np
import pytest
import tensorflow as tf
from batches import (
    check_gradients,
    ragged_of,
    random_rows,
    splits_of,
)

from lodestar._checks import MOVED_DTYPES
from lodestar.ragged import LoDTensor
from lodestar.sequence import pad, unpad

LENGTHS = [[], [0], [0, 0, 0], [1], [3, 0, 1, 7, 0], [900, 1, 0, 300]]
STEPS = [(), (5,), (2, 3), (0,), (32,), (1, 70)]


def reference(rows, splits, pad_value, steps):
    padded = np.empty((len(splits) - 1, steps, *rows.shape[1:]), rows.dtype)
    padded[:] = pad_value
    for b, (begin, end) in enumerate(zip(splits[:-1], splits[1:], strict=True)):
        padded[b, : end - begin] = rows[begin:end]
    return padded


@pytest.mark.parametrize("dtype", MOVED_DTYPES, ids=lambda dtype: dtype.name)
@pytest.mark.parametrize("lengths", LENGTHS, ids=str)
def test_there_and_back_is_numpys(lengths, dtype, rng):
    splits = splits_of(lengths)
    longest = max(lengths, default=0)
    for step in STEPS:
        rows = random_rows(rng, (splits[-1], *step), dtype)
        shapes = [None, (), step]
        shape = shapes[rng.integers(3)]
        pad_value = None if shape is None else random_rows(rng, shape, dtype)
        maxlen = [None, longest, tf.constant(longest + 3)][rng.integers(3)]
        padded, got_lengths = pad(ragged_of(rows, lengths), pad_value, maxlen)
        zero = tf.zeros([], dtype) if pad_value is None else pad_value
        # Recurrent layers need at least one step.
        steps = max(longest, 1) if maxlen is None else int(maxlen)
        wanted = reference(rows.numpy(), splits, zero.numpy(), steps)
        assert padded.dtype == dtype
        assert got_lengths.dtype == tf.int64
        assert got_lengths.numpy().tolist() == lengths
        assert padded.shape == wanted.shape
        np.testing.assert_array_equal(padded, wanted)
        back = unpad(padded, got_lengths)
        np.testing.assert_array_equal(back.flat_values, rows)
        np.testing.assert_array_equal(back.row_splits, splits)


def test_shorter_lengths_with_two_levels():
    x = LoDTensor.from_lengths([[1]] * 7, [[2, 0, 3], [1, 2, 1, 0, 3]])
    padded, _ = pad(x)
    back = unpad(padded, [0, 1, 0, 0, 2], like=x)
    assert back.to_ragged().row_lengths(2).to_list() == [[0, 1], [], [0, 0, 2]]


def test_the_kind_of_the_result():
    padded = tf.constant([[1, 2], [3, 4]])
    assert isinstance(unpad(padded, [1, 2]), tf.RaggedTensor)
    one = LoDTensor.from_lengths([0, 0, 0], [[0, 3]])
    back = unpad(padded, tf.constant([1, 2], tf.int32), like=one)
    assert isinstance(back, LoDTensor)
    assert back.to_ragged().to_list() == [[1], [3, 4]]
    short = tf.ragged.constant([[0], [0]], row_splits_dtype=tf.int32)
    back = unpad(padded, [1, 2], like=short)
    assert back.row_splits.dtype == tf.int32
    assert back.to_list() == [[1], [3, 4]]
    assert pad(short)[1].dtype == tf.int64


@pytest.mark.parametrize("maxlen", [None, 4])
def test_gradients_are_numeric_ones_to_second_order(maxlen, rng):
    splits = tf.constant([0, 2, 2, 5], tf.int64)
    values = tf.constant(rng.normal(size=(5, 2, 2)))
    for pad_shape in ((), (2, 2)):
        pad_value = tf.constant(rng.normal(size=pad_shape))

        def padded(values, pad_value):
            x = tf.RaggedTensor.from_row_splits(values, splits)
            return pad(x, pad_value, maxlen)[0]

        check_gradients(padded, values, pad_value)


@pytest.mark.parametrize("in_function", [False, True])
def test_the_gradient_of_a_gather_of_padded_rows(in_function):
    def gradients(values, pad_value):
        x = tf.RaggedTensor.from_row_splits(values, [0, 1, 3], validate=False)
        with tf.GradientTape() as tape:
            tape.watch([values, pad_value])
            padded, _ = pad(x, pad_value)
            # IndexedSlices, with a repeated index.
            rows = tf.gather(padded, [0, 0])
        return tape.gradient(rows, [values, pad_value])

    if in_function:
        gradients = tf.function(gradients)
    to_values, to_pad = gradients(tf.ones([3]), tf.constant(7.0))
    assert to_values.numpy().tolist() == [2, 0, 0]
    assert to_pad.numpy() == 2


@pytest.mark.parametrize("dtype", [tf.float16, tf.bfloat16])
def test_the_gradient_of_pad_value_is_summed_in_float32(dtype):
    x = tf.RaggedTensor.from_row_lengths(tf.ones([1, 3], dtype), [1, 0])
    for pad_value in (tf.zeros([], dtype), tf.zeros([3], dtype)):
        with tf.GradientTape() as tape:
            tape.watch(pad_value)
            padded, _ = pad(x, pad_value, 513)
        gradient = tape.gradient(padded, pad_value)
        assert gradient.dtype == dtype
        wanted = 1025 * 3 // tf.size(pad_value).numpy()
        np.testing.assert_allclose(
            gradient.numpy().astype(float), wanted, rtol=8e-3
        )


@pytest.mark.parametrize("shape", [[0, 3], [2, 0]])
def test_gradients_of_nothing(shape):
    x = tf.zeros(shape)
    pad_value = tf.constant(1.0)
    with tf.GradientTape() as tape:
        tape.watch([x, pad_value])
        ragged = tf.RaggedTensor.from_row_lengths(x, [shape[0], 0])
        padded, lengths = pad(ragged, pad_value, 2)
        rows = unpad(padded, lengths).flat_values
        y = tf.reduce_sum(padded) + tf.reduce_sum(rows)
    to_x, to_pad = tape.gradient(y, [x, pad_value])
    assert to_x.shape == shape
    assert float(to_pad) == 4 * shape[1]


def test_unknown_dimensions_and_static_shapes_in_a_function():
    spec = tf.RaggedTensorSpec([None, None, 3], tf.float32, 1)

    @tf.function(input_signature=[spec, tf.TensorSpec([], tf.int32)])
    def there_and_back(x, maxlen):
        assert pad(x, maxlen=7)[0].shape.as_list() == [None, 7, 3]
        assert pad(x)[0].shape.as_list() == [None, None, 3]
        padded, lengths = pad(x, maxlen=maxlen)
        assert padded.shape.as_list() == [None, None, 3]
        back = unpad(padded, lengths, like=x)
        assert back.flat_values.shape.as_list() == [None, 3]
        return padded, back

    x = tf.RaggedTensor.from_row_lengths(tf.ones([3, 3]), [2, 0, 1])
    padded, back = there_and_back(x, 4)
    assert padded.shape == [3, 4, 3]
    assert back.to_list() == x.to_list()

    @tf.function(
        input_signature=[tf.TensorSpec(None), tf.TensorSpec(None, tf.int64)]
    )
    def slope(padded, lengths):
        with tf.GradientTape() as tape:
            tape.watch(padded)
            y = unpad(padded, lengths).flat_values
        return tape.gradient(y, padded)

    got = slope(tf.zeros([2, 3]), tf.constant([1, 3], tf.int64))
    assert got.numpy().tolist() == [[1, 0, 0], [1, 1, 1]]
    fixed = tf.RaggedTensor.from_row_splits(tf.zeros([3, 2]), [0, 2, 3])
    concrete = tf.function(lambda: pad(fixed, maxlen=5)).get_concrete_function()
    assert [o.shape.as_list() for o in concrete.outputs] == [[2, 5, 2], [2]]


def test_gradient_of_pad_value_of_unknown_rank():
    @tf.function(input_signature=[tf.TensorSpec(None), tf.TensorSpec(None)])
    def slope(rows, pad_value):
        with tf.GradientTape() as tape:
            tape.watch(pad_value)
            x = LoDTensor(rows, (tf.constant([0, 2, 3], tf.int64),))
            y = pad(x, pad_value, 3)[0]
        return tape.gradient(y, pad_value)

    assert slope(tf.zeros([3, 2]), tf.zeros([])) == 6
    assert slope(tf.zeros([3, 2]), tf.zeros([2])).numpy().tolist() == [3, 3]
    assert slope(tf.zeros([3]), tf.zeros([])) == 3


def test_invalid_arguments_are_refused():
    x = tf.ragged.constant([[1, 2], [3]])
    with pytest.raises(TypeError, match="RaggedTensor or LoDTensor"):
        pad(tf.ones([2, 2]))
    with pytest.raises(ValueError, match="`x` has no level"):
        pad(LoDTensor([1.0], ()))
    with pytest.raises(TypeError, match="`x` has dtype complex64, but must be"):
        pad(tf.cast(x, tf.complex64))
    with pytest.raises(
        ValueError, match="`pad_value` must be an integer.* got 0.5"
    ):
        pad(x, 0.5)
    with pytest.raises(
        ValueError, match="`pad_value` must be in the range of int32"
    ):
        pad(x, 2**31)
    with pytest.raises(TypeError, match="dtype float32, but `x` has int32"):
        pad(x, tf.constant(0.0))
    for maxlen in (-1, 2.5):
        with pytest.raises(
            ValueError, match=f"`maxlen` must be an .*, got {maxlen}"
        ):
            pad(x, maxlen=maxlen)
    with pytest.raises(
        TypeError, match="`maxlen` has dtype float32, but must be"
    ):
        pad(x, maxlen=tf.constant(2.5))
    with pytest.raises(ValueError, match="`maxlen` must have rank 0"):
        pad(x, maxlen=tf.constant([2]))
    with pytest.raises(
        tf.errors.InvalidArgumentError,
        match="`maxlen` is 1, but sequence 0 has 2 rows",
    ):
        pad(x, maxlen=1)
    with pytest.raises(
        tf.errors.InvalidArgumentError,
        match=r"must have shape \[\] .* got \[2\]",
    ):
        pad(x, tf.constant([1, 2]))
    padded = tf.ones([2, 3])
    with pytest.raises(ValueError, match="`padded` must have rank 2 or more"):
        unpad(tf.ones([2]), [1, 1])
    with pytest.raises(
        TypeError, match="`padded` has dtype complex64, but must be"
    ):
        unpad(tf.cast(padded, tf.complex64), [1, 1])
    with pytest.raises(
        TypeError, match="`lengths` has dtype float32, but must be"
    ):
        unpad(padded, [1.0, 1.0])
    with pytest.raises(ValueError, match="`lengths` must have rank 1"):
        unpad(padded, 1)
    with pytest.raises(TypeError, match="`like` must be a RaggedTensor or"):
        unpad(padded, [1, 1], like=padded)
    for lengths, message in (
        ([1, 4], r"`lengths\[1\]` must be in \[0, 3\], got 4"),
        ([-1, 1], r"`lengths\[0\]` must be in \[0, 3\], got -1"),
        ([1], "`lengths` has 1 elements, but `padded` has 2 rows"),
    ):
        with pytest.raises(tf.errors.InvalidArgumentError, match=message):
            unpad(padded, lengths)
    with pytest.raises(
        tf.errors.InvalidArgumentError, match="many sequences as"
    ):
        unpad(padded, [1, 1], like=tf.ragged.constant([[1]]))
