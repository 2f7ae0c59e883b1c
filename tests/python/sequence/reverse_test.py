"""lodestar.sequence.reverse against NumPy, its gradient and its errors."""

import numpy as np
import pytest
import tensorflow as tf
from batches import LENGTHS, random_rows, splits_of

import lodestar
from lodestar._library import gen_ops
from lodestar.ragged import LoDTensor

NUMBERS = [
    tf.float16, tf.bfloat16, tf.float32, tf.float64, tf.int8, tf.int16,
    tf.int32, tf.int64, tf.uint8, tf.uint16, tf.uint32, tf.uint64,
    tf.complex64, tf.complex128, tf.bool,
]  # fmt: skip


def reference(values, splits):
    parts = zip(splits[:-1], splits[1:], strict=True)
    return np.concatenate([values[:0]] + [values[a:b][::-1] for a, b in parts])


@pytest.mark.parametrize(
    "dtype", [*NUMBERS, tf.string], ids=lambda dtype: dtype.name
)
@pytest.mark.parametrize("lengths", LENGTHS, ids=str)
def test_matches_numpy(dtype, lengths, rng):
    splits = splits_of(lengths)
    for shape in ((), (1,), (3,), (2, 4), (0,)):
        rows = random_rows(rng, (splits[-1], *shape), dtype)
        wanted = reference(rows.numpy(), splits)
        x = tf.RaggedTensor.from_row_splits(rows, splits.astype(np.int32))
        got = lodestar.sequence.reverse(x)
        assert got.dtype == dtype
        assert got.row_splits.dtype == tf.int32
        np.testing.assert_array_equal(got.row_splits, splits)
        np.testing.assert_array_equal(got.flat_values, wanted)


def test_two_levels_use_the_last_and_keep_both():
    x = LoDTensor.from_lengths([1, 2, 3, 4, 5], [[2, 0, 1], [2, 1, 2]])
    y = lodestar.sequence.reverse(x)
    assert isinstance(y, LoDTensor)
    assert y.to_ragged().to_list() == [[[2, 1], [3]], [], [[5, 4]]]
    z = lodestar.sequence.reverse(x.to_ragged())
    assert z.to_list() == y.to_ragged().to_list()


def test_unknown_dimensions_in_a_function():
    @tf.function(
        input_signature=[tf.RaggedTensorSpec([None, None, 2], tf.float32, 1)]
    )
    def reverse(x):
        y = lodestar.sequence.reverse(x)
        assert y.flat_values.shape.as_list() == [None, 2]
        return y

    x = tf.ragged.constant([[[1.0, 2.0], [3.0, 4.0]], []], ragged_rank=1)
    assert reverse(x).to_list() == [[[3.0, 4.0], [1.0, 2.0]], []]


def test_gradients_are_numeric_ones_to_second_order(rng):
    splits = tf.constant([0, 2, 2, 5], tf.int64)
    values = tf.constant(rng.normal(size=(5, 3)))
    weights = tf.constant(rng.normal(size=(5, 3)))

    def slope(values):
        with tf.GradientTape() as tape:
            tape.watch(values)
            x = tf.RaggedTensor.from_row_splits(values, splits, validate=False)
            y = lodestar.sequence.reverse(x).flat_values
            y = tf.reduce_sum(weights * y**3)
        return tape.gradient(y, values)

    turned = reference(weights.numpy(), splits.numpy())
    np.testing.assert_allclose(slope(values), 3 * turned * values.numpy() ** 2)
    symbolic, numeric = tf.test.compute_gradient(slope, [values])
    np.testing.assert_allclose(symbolic[0], numeric[0], atol=1e-6)


def test_invalid_arguments_are_refused():
    with pytest.raises(TypeError, match="RaggedTensor or LoDTensor"):
        lodestar.sequence.reverse(tf.ones([2, 2]))
    with pytest.raises(
        TypeError, match="dtype qint8, but must be one of float16"
    ):
        lodestar.sequence.reverse(
            LoDTensor(tf.zeros([1], tf.qint8), (tf.constant([0, 1], tf.int64),))
        )
    with pytest.raises(ValueError, match="`x` has no level"):
        lodestar.sequence.reverse(LoDTensor([1.0], ()))


@pytest.mark.parametrize(
    "values, row_splits, message",
    [
        (1.0, [0, 3], "`values` must have rank 1 or more"),
        ([1.0] * 3, 3, "`row_splits` must have rank 1"),
        ([1.0] * 3, [[0, 3]], "`row_splits` must have rank 1"),
        ([1.0] * 3, [], "`row_splits` is empty"),
        ([1.0] * 3, [1, 3], r"`row_splits\[0\]` must be 0, got 1"),
        ([1.0] * 3, [0, 2**62], "there are 3 rows"),
        ([1.0] * 3, [0, 9, 3], "is greater than"),
        ([1.0] * 3, [0, -9, 3], "is greater than"),
    ],
)
def test_ops_refuse_invalid_arguments(values, row_splits, message):
    with pytest.raises(tf.errors.InvalidArgumentError, match=message):
        gen_ops.lodestar_sequence_reverse(
            values=values, row_splits=tf.constant(row_splits, tf.int64)
        )


def test_static_shapes_of_the_op():
    def shape(values, row_splits):
        @tf.function(
            input_signature=[
                tf.TensorSpec(values),
                tf.TensorSpec(row_splits, tf.int64),
            ]
        )
        def reverse(values, row_splits):
            return gen_ops.lodestar_sequence_reverse(
                values=values, row_splits=row_splits
            )

        return reverse.get_concrete_function().structured_outputs.shape

    assert shape([None, 2], [5]).as_list() == [None, 2]
    assert shape(None, None).rank is None
    for values, row_splits in (([], [2]), ([3], []), ([3], [2, 2])):
        with pytest.raises(ValueError):
            shape(values, row_splits)
