"""lodestar.sequence.softmax against NumPy, its gradients and its errors."""

import numpy as np
import pytest
import tensorflow as tf
from batches import (
    FLOATS,
    LENGTHS,
    check_gradients_of_nothing,
    check_threads,
    every_nothing,
    gradient_in,
    splits_of,
)

import lodestar
from lodestar._library import gen_ops
from lodestar.ragged import LoDTensor


def reference(values, splits):
    """Returns the softmax of each sequence in float64."""
    wanted = np.zeros(values.shape)
    for begin, end in zip(splits[:-1], splits[1:], strict=True):
        rows = values[begin:end].astype(np.float64)
        if rows.size:
            e = np.exp(rows - rows.max(0))
            wanted[begin:end] = e / e.sum(0)
    return wanted


@pytest.mark.parametrize("dtype", FLOATS, ids=lambda dtype: dtype.name)
@pytest.mark.parametrize("lengths", LENGTHS, ids=str)
def test_matches_numpy(dtype, lengths, rng):
    splits = splits_of(lengths)
    for shape in ((), (1,), (5,), (2, 3), (0,), (70,)):
        values = rng.normal(size=(splits[-1], *shape)) * 5
        values = values.astype(dtype.as_numpy_dtype)
        ragged = tf.RaggedTensor.from_row_splits(
            values, splits.astype(np.int32)
        )
        lod = LoDTensor.from_offsets(values, [splits])
        got = lodestar.sequence.softmax(ragged)
        assert got.row_splits.dtype == tf.int32
        assert isinstance(lodestar.sequence.softmax(lod), LoDTensor)
        rtol = {tf.float16: 2e-3, tf.bfloat16: 8e-3, tf.float32: 1e-5}
        for rows, levels in (
            (got.flat_values, got.row_splits),
            (lodestar.sequence.softmax(lod).values, lod.lod[0]),
        ):
            assert rows.dtype == dtype
            assert rows.shape == values.shape
            np.testing.assert_array_equal(levels, splits)
            np.testing.assert_allclose(
                rows.numpy().astype(np.float64),
                reference(values, splits),
                rtol=rtol.get(dtype, 1e-12),
                # The smallest step of a 16-bit float.
                atol=6e-8 if dtype == tf.float16 else 1e-37,
            )


def test_the_documented_example():
    x = LoDTensor.from_lengths([[0.7], [1.0], [0.6], [1.5], [1.1]], [[3, 2]])
    np.testing.assert_allclose(
        lodestar.sequence.softmax(x).values[:, 0],
        [0.3072, 0.4147, 0.2780, 0.5987, 0.4013],
        atol=5e-5,
    )


def test_two_levels_use_the_last_and_keep_both():
    x = LoDTensor.from_lengths(
        [0.0, 0.0, 5.0, 1.0, 1.0], [[2, 0, 1], [2, 1, 2]]
    )
    y = lodestar.sequence.softmax(x)
    assert y.values.numpy().tolist() == [0.5, 0.5, 1.0, 0.5, 0.5]
    for ours, theirs in zip(y.lod, x.lod, strict=True):
        np.testing.assert_array_equal(ours, theirs)
    z = lodestar.sequence.softmax(x.to_ragged())
    assert z.to_list() == [[[0.5, 0.5], [1.0]], [], [[0.5, 0.5]]]


@pytest.mark.parametrize("dtype", FLOATS, ids=lambda dtype: dtype.name)
def test_numbers_of_any_size(dtype):
    nan, inf, big = np.nan, np.inf, float(dtype.max)
    for row, wanted in (
        ([1e4, 1e4], [0.5, 0.5]),
        ([-1e4, -1e4, 1e4], [0, 0, 1]),
        ([big, -big], [1, 0]),
        ([-inf, 3.0, -inf, 3.0], [0, 0.5, 0, 0.5]),
        ([-inf, -inf], [nan] * 2),
        ([-inf], [nan]),
        ([1.0, nan, 2.0], [nan] * 3),
        ([nan, 1.0], [nan] * 2),
        ([inf, 1.0], [nan] * 2),
        ([1.0, inf], [nan] * 2),
    ):
        x = tf.RaggedTensor.from_row_lengths(
            tf.constant([0.0, *row, 0.0], dtype), [1, len(row), 1]
        )
        got = tf.cast(lodestar.sequence.softmax(x).flat_values, tf.float64)
        np.testing.assert_array_equal(got, [1.0, *wanted, 1.0])


def test_unknown_dimensions_in_a_function():
    @tf.function(
        input_signature=[tf.RaggedTensorSpec([None, None, 2], tf.float32, 1)]
    )
    def normal(x):
        y = lodestar.sequence.softmax(x)
        assert y.flat_values.shape.as_list() == [None, 2]
        return y

    x = tf.RaggedTensor.from_row_lengths(tf.ones([3, 2]), [2, 0, 1])
    assert normal(x).to_list() == [[[0.5, 0.5]] * 2, [], [[1.0, 1.0]]]


def test_gradients_are_numeric_ones_to_third_order(rng):
    splits = tf.constant([0, 2, 2, 3, 6], tf.int64)
    values = tf.constant(rng.normal(size=(6, 2)))
    weights = tf.constant(rng.normal(size=(6, 2)))

    def normal(values):
        x = tf.RaggedTensor.from_row_splits(values, splits, validate=False)
        return lodestar.sequence.softmax(x).flat_values

    def slope(function):
        def gradient(values):
            with tf.GradientTape() as tape:
                tape.watch(values)
                y = tf.reduce_sum(weights * function(values) ** 2)
            return tape.gradient(y, values)

        return gradient

    for function in (normal, slope(normal), slope(slope(normal))):
        symbolic, numeric = tf.test.compute_gradient(function, [values])
        np.testing.assert_allclose(symbolic[0], numeric[0], atol=1e-6)


@pytest.mark.parametrize("dtype", FLOATS[:3])
def test_gradients_of_shorter_floats(dtype, rng):
    values = rng.integers(-3, 3, size=(5, 3))
    upstream = rng.integers(-9, 9, size=(5, 3))

    def softmax(x):
        ragged = tf.RaggedTensor.from_row_splits(x, [0, 2, 2, 5])
        return lodestar.sequence.softmax(ragged).flat_values

    short, exact = (
        gradient_in(d, softmax, values, upstream) for d in (dtype, tf.float64)
    )
    np.testing.assert_allclose(short, exact, rtol=2e-2, atol=4e-2)


@every_nothing
def test_gradients_to_second_order_of_nothing(splits, shape):
    check_gradients_of_nothing(
        lambda x: lodestar.sequence.softmax(x).flat_values, splits, shape
    )


def test_same_bits_for_any_number_of_threads(rng):
    check_threads(lodestar.sequence.softmax, rng)


def test_an_input_that_is_still_needed_is_kept():
    @tf.function
    def function(x):
        y = x.flat_values + 1.0
        z = lodestar.sequence.softmax(x.with_flat_values(y))
        return y, z.flat_values

    y, z = function(tf.ragged.constant([[0.0, 0.0], [3.0]]))
    assert y.numpy().tolist() == [1.0, 1.0, 4.0]
    assert z.numpy().tolist() == [0.5, 0.5, 1.0]


def test_invalid_arguments_are_refused():
    with pytest.raises(TypeError, match="RaggedTensor or LoDTensor"):
        lodestar.sequence.softmax(tf.ones([2, 2]))
    with pytest.raises(
        TypeError, match="dtype int32, but must be one of float16"
    ):
        lodestar.sequence.softmax(tf.ragged.constant([[1]]))
    with pytest.raises(ValueError, match="`x` has no level"):
        lodestar.sequence.softmax(LoDTensor([1.0], ()))


def softmax_op(values=((1.0, 2.0),) * 3, row_splits=(0, 3)):
    return gen_ops.lodestar_sequence_softmax(
        values=tf.convert_to_tensor(values, tf.float32),
        row_splits=tf.convert_to_tensor(row_splits, tf.int64),
    )


def gradient_op(
    probabilities=((1.0,),) * 3, gradient=((1.0,),) * 3, splits=(0, 3)
):
    return gen_ops.lodestar_sequence_softmax_gradient(
        probabilities=tf.convert_to_tensor(probabilities, tf.float32),
        gradient=tf.convert_to_tensor(gradient, tf.float32),
        row_splits=tf.convert_to_tensor(splits, tf.int64),
    )


@pytest.mark.parametrize(
    "op, arguments, message",
    [
        (softmax_op, dict(values=1.0), "`values` must have rank 1 or more"),
        (softmax_op, dict(row_splits=3), "`row_splits` must have rank 1"),
        (
            softmax_op,
            dict(row_splits=[[0, 3]]),
            "`row_splits` must have rank 1",
        ),
        (softmax_op, dict(row_splits=[]), "`row_splits` is empty"),
        (
            softmax_op,
            dict(row_splits=[1, 3]),
            r"`row_splits\[0\]` must be 0, got 1",
        ),
        (softmax_op, dict(row_splits=[0, 2**62]), "there are 3 rows"),
        (softmax_op, dict(row_splits=[0, 9, 3]), "is greater than"),
        (softmax_op, dict(row_splits=[0, -9, 3]), "is greater than"),
        (
            gradient_op,
            dict(probabilities=1.0),
            "`probabilities` must have rank",
        ),
        (gradient_op, dict(gradient=1.0), "`gradient` must have shape"),
        (
            gradient_op,
            dict(gradient=[[1.0, 1.0]] * 3),
            r"got \[3,2\]",
        ),
        (gradient_op, dict(splits=[0, 4]), "there are 3 rows"),
        (gradient_op, dict(splits=3), "`row_splits` must have rank 1"),
        (gradient_op, dict(splits=[]), "`row_splits` is empty"),
    ],
)
def test_ops_refuse_invalid_arguments(op, arguments, message):
    with pytest.raises(tf.errors.InvalidArgumentError, match=message):
        op(**arguments)


def test_static_shapes_of_the_ops():
    def shape(op, *inputs):
        specs = [tf.TensorSpec(x) for x in inputs[:-1]]
        specs.append(tf.TensorSpec(inputs[-1], tf.int64))
        function = tf.function(op, input_signature=specs)
        output = function.get_concrete_function().structured_outputs.shape
        return output.as_list() if output.rank is not None else None

    assert shape(softmax_op, [None, 2], [5]) == [None, 2]
    assert shape(softmax_op, None, None) is None
    assert shape(gradient_op, [None, 2], [7, None], [5]) == [7, 2]
    for bad in (([], [2]), ([3], []), ([3], [2, 2])):
        with pytest.raises(ValueError):
            shape(softmax_op, *bad)
    with pytest.raises(ValueError):
        shape(gradient_op, [3], [4], [2])
