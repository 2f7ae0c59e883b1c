"""lodestar.sequence.scatter against NumPy, its gradients and its errors."""

import numpy as np
import pytest
import tensorflow as tf
from batches import FLOATS, check_gradients, ragged_of

import lodestar
from lodestar.ragged import LoDTensor


@pytest.mark.parametrize(
    "dtype",
    [*FLOATS, tf.int32, tf.int64],
    ids=lambda dtype: dtype.name,
)
@pytest.mark.parametrize("index_dtype", [tf.int32, tf.int64])
@pytest.mark.parametrize(
    "lengths", [[], [0], [0, 0], [9], [3, 0, 30, 1]], ids=str
)
def test_matches_numpy(lengths, index_dtype, dtype, rng):
    owner = np.repeat(np.arange(len(lengths)), np.array(lengths, np.int64))
    for shape in ((), (3,), (0,)):
        x = rng.integers(-3, 4, (len(lengths), 5, *shape))
        index = rng.integers(0, 5, sum(lengths))
        updates = rng.integers(-3, 4, (sum(lengths), *shape))
        wanted = x.copy()
        np.add.at(wanted, (owner, index), updates)
        got = lodestar.sequence.scatter(
            tf.cast(x, dtype),
            ragged_of(index, lengths, index_dtype),
            ragged_of(updates, lengths, dtype),
        )
        assert got.dtype == dtype
        np.testing.assert_array_equal(got.numpy().astype(np.int64), wanted)


def test_the_documented_example_with_columns():
    got = lodestar.sequence.scatter(
        tf.ones([3, 6]),
        LoDTensor.from_lengths([[0], [1], [2], [5], [5]], [[3, 0, 2]]),
        LoDTensor.from_lengths(
            [[0.3], [0.3], [0.4], [1.0], [2.0]], [[3, 0, 2]]
        ),
    )
    np.testing.assert_allclose(
        got, [[1.3, 1.3, 1.4, 1, 1, 1], [1] * 6, [1, 1, 1, 1, 1, 4]]
    )


def test_sums_of_16_bit_floats_are_kept_in_float32():
    x = tf.ones([1, 1], tf.bfloat16)
    got = lodestar.sequence.scatter(
        x,
        ragged_of(tf.zeros([511]), [511], tf.int64),
        ragged_of(tf.ones([511]), [511], tf.bfloat16),
    )
    assert float(got[0, 0]) == 512


def test_two_levels_count_the_innermost_sequences():
    index = tf.ragged.constant([[[0], []], [], [[1, 1]]])
    updates = tf.ragged.constant([[[1.0], []], [], [[2.0, 3.0]]])
    got = lodestar.sequence.scatter(tf.zeros([3, 2]), index, updates)
    assert got.numpy().tolist() == [[1, 0], [0, 0], [0, 5]]


def test_index_and_updates_of_unknown_width():
    @tf.function(
        input_signature=[
            tf.RaggedTensorSpec([None] * 3, tf.int64, 1),
            tf.RaggedTensorSpec([None] * 3, tf.float32, 1),
        ]
    )
    def scattered(index, updates):
        return lodestar.sequence.scatter(tf.zeros([2, 3]), index, updates)

    index = ragged_of([[0], [2], [2]], [2, 1], tf.int64)
    updates = ragged_of([[1.0], [2.0], [3.0]], [2, 1])
    got = scattered(index, updates)
    assert got.numpy().tolist() == [[1, 0, 2], [0, 0, 3]]
    wide = updates.with_flat_values(tf.ones([3, 2]))
    with pytest.raises(tf.errors.InvalidArgumentError, match="squeeze dim"):
        scattered(index, wide)


def test_unknown_dimensions_and_errors_in_a_function():
    @tf.function(
        input_signature=[
            tf.TensorSpec([None, None]),
            tf.RaggedTensorSpec([None, None], tf.int64, 1),
            tf.RaggedTensorSpec([None, None], tf.float32, 1),
        ]
    )
    def unused_result(x, index, updates):
        lodestar.sequence.scatter(x, index, updates)
        y = lodestar.sequence.scatter(x, index, updates)
        assert y.shape.as_list() == [None, None]
        return y

    x = tf.zeros([2, 3])
    index = ragged_of([0, 2, 2], [2, 1], tf.int64)
    updates = ragged_of([1.0, 2.0, 3.0], [2, 1])
    assert unused_result(x, index, updates).numpy().tolist() == [
        [1, 0, 2],
        [0, 0, 3],
    ]
    for changed, message in (
        (
            dict(index=ragged_of([0, 2, 3], [2, 1], tf.int64)),
            r"`index\[2\]` must be in \[0, 3\), got 3 in sequence 1",
        ),
        (
            dict(index=ragged_of([0, -1, 3], [2, 1], tf.int64)),
            r"`index\[1\]` must be in \[0, 3\), got -1 in sequence 0",
        ),
        (
            dict(updates=ragged_of([1.0, 2.0, 3.0], [1, 2])),
            "`updates` and `index` must have sequences of the same lengths; "
            "the first that differs is sequence 0",
        ),
        (
            dict(updates=ragged_of([1.0, 2.0, 3.0], [2, 1, 0])),
            "`updates` and `index` must have equally many sequences, got 3 and 2",
        ),
        (
            dict(x=tf.zeros([3, 3])),
            "`x` has 3 rows, but `index` has 2 sequences",
        ),
    ):
        arguments = {"x": x, "index": index, "updates": updates, **changed}
        with pytest.raises(tf.errors.InvalidArgumentError, match=message):
            unused_result(**arguments)


def test_gradients_are_numeric_ones_to_second_order(rng):
    x = tf.constant(rng.normal(size=(3, 4, 2)))
    updates = tf.constant(rng.normal(size=(4, 2)))
    index = ragged_of([3, 3, 0, 1], [3, 0, 1], tf.int64)

    def scattered(x, updates):
        return lodestar.sequence.scatter(
            x, index, tf.RaggedTensor.from_row_lengths(updates, [3, 0, 1])
        )

    check_gradients(scattered, x, updates, atol=1e-3)


def test_invalid_arguments_are_refused():
    scatter = lodestar.sequence.scatter
    index = ragged_of([0], [1], tf.int64)
    updates = ragged_of([1.0], [1])
    x = tf.zeros([1, 2])
    with pytest.raises(
        TypeError, match="`x` has dtype string, but must be one of"
    ):
        scatter(tf.constant([["a"]]), index, updates)
    with pytest.raises(ValueError, match=r"`x` must have rank 2 or more, got"):
        scatter(tf.zeros([1]), index, updates)
    with pytest.raises(
        TypeError, match="`index` has dtype float32, but must be"
    ):
        scatter(x, updates, updates)
    with pytest.raises(
        TypeError, match="`updates` has dtype int64, but must be"
    ):
        scatter(x, index, index)
    with pytest.raises(TypeError, match="`updates` must be a RaggedTensor or"):
        scatter(x, index, tf.ones([1]))
    with pytest.raises(ValueError, match="`updates` must have 1 levels, like"):
        scatter(x, index, tf.ragged.constant([[[1.0]]]))
    with pytest.raises(
        ValueError, match=r"`updates` must have rows .*, got \(3,\)"
    ):
        scatter(x, index, ragged_of(tf.ones([1, 3]), [1]))
    with pytest.raises(
        ValueError, match="`index` must have rows of one number"
    ):
        scatter(x, ragged_of([[0, 1]], [1], tf.int64), updates)


def test_updates_of_another_shape_are_refused():
    @tf.function(input_signature=[tf.TensorSpec(None)] * 2)
    def scattered(x, rows):
        return lodestar.sequence.scatter(
            x, ragged_of([0, 1], [2], tf.int64), ragged_of(rows, [2])
        )

    # The same number of elements, but in columns of x.
    message = (
        r"`updates` has shape \[2, 3, 2\], which does not match `x` of shape"
    )
    with pytest.raises(tf.errors.InvalidArgumentError, match=message):
        scattered(tf.zeros([1, 2, 2, 3]), tf.ones([2, 3, 2]))
    assert scattered(tf.zeros([1, 2]), tf.ones([2, 1])).numpy().tolist() == [
        [1, 1]
    ]
