"""lodestar.sequence.pool against NumPy, its gradients and its errors."""

import numpy as np
import pytest
import tensorflow as tf

import lodestar
from lodestar import LoDTensor

COMBINERS = ["sum", "mean", "sqrtn", "max", "first", "last"]


def reference(values, splits, combiner, pad_value):
    """Pools in float64."""
    pooled = []
    for begin, end in zip(splits[:-1], splits[1:], strict=True):
        rows = values[begin:end].astype(np.float64)
        if len(rows) == 0:
            pooled.append(np.full(values.shape[1:], pad_value))
        elif combiner == "sum":
            pooled.append(rows.sum(0))
        elif combiner == "mean":
            pooled.append(rows.mean(0))
        elif combiner == "sqrtn":
            pooled.append(rows.sum(0) / np.sqrt(len(rows)))
        elif combiner == "max":
            pooled.append(rows.max(0))
        else:
            pooled.append(rows[0 if combiner == "first" else -1])
    return np.reshape(pooled, (len(splits) - 1, *values.shape[1:]))


@pytest.mark.parametrize("combiner", COMBINERS)
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int32, np.int64])
@pytest.mark.parametrize(
    "lengths",
    [[], [0], [0, 0, 0], [1], [3, 0, 1, 7, 0], [2000, 1, 0, 500]],
)
def test_matches_numpy(combiner, dtype, lengths, rng):
    splits = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    for shape in ((), (5,), (2, 3)):
        values = (rng.normal(size=(splits[-1], *shape)) * 20).astype(dtype)
        wanted = reference(values, splits, combiner, 7)
        if np.issubdtype(dtype, np.integer):
            wanted = np.trunc(wanted)
        ragged = tf.RaggedTensor.from_row_splits(values, splits)
        got = lodestar.sequence.pool(ragged, combiner, pad_value=7)
        assert got.dtype == tf.as_dtype(dtype)
        assert got.shape == wanted.shape
        np.testing.assert_allclose(got, wanted, rtol=2e-5, atol=1e-3)


def test_unknown_dimensions_in_a_function():
    @tf.function(
        input_signature=[tf.RaggedTensorSpec([None, None, 2], tf.float32, 1)]
    )
    def pooled(x):
        y = lodestar.sequence.pool(x, "mean")
        assert y.shape.as_list() == [None, 2]
        return y

    x = tf.RaggedTensor.from_row_lengths(tf.ones([3, 2]), [2, 0, 1])
    assert pooled(x).numpy().tolist() == [[1, 1], [0, 0], [1, 1]]


def test_two_levels_pool_the_last_and_keep_the_first():
    x = LoDTensor.from_offsets(
        np.array([1, 3, 2, 4, 1, 5, 6], np.float32),
        [[0, 2, 2, 5], [0, 1, 3, 4, 4, 7]],
    )
    y = lodestar.sequence.pool(x)
    assert isinstance(y, LoDTensor)
    assert y.values.numpy().tolist() == [1, 5, 4, 0, 12]
    assert y.lod[0].numpy().tolist() == [0, 2, 2, 5]
    z = lodestar.sequence.pool(x.to_ragged())
    assert z.to_list() == [[1, 5], [], [4, 0, 12]]
    assert lodestar.sequence.pool(y).numpy().tolist() == [6, 0, 16]


def test_index_of_the_first_maximum():
    x = tf.ragged.constant([[3.0, 5.0, 5.0], [], [1.0]])
    pooled, index = lodestar.sequence.pool(x, "max", with_index=True)
    assert pooled.numpy().tolist() == [5, 0, 1]
    assert index.numpy().tolist() == [1, -1, 3]


@pytest.mark.parametrize("combiner", COMBINERS)
def test_gradients_are_numeric_ones_to_second_order(combiner, rng):
    splits = tf.constant([0, 2, 2, 5], tf.int64)
    values = tf.constant(rng.normal(size=(5, 3)))

    def pooled(values):
        x = tf.RaggedTensor.from_row_splits(values, splits, validate=False)
        return lodestar.sequence.pool(x, combiner, pad_value=3.0)

    symbolic, numeric = tf.test.compute_gradient(pooled, [values])
    np.testing.assert_allclose(symbolic[0], numeric[0], atol=1e-6)

    def slope(values):
        with tf.GradientTape() as tape:
            tape.watch(values)
            y = tf.reduce_sum(pooled(values) ** 3)
        return tape.gradient(y, values)

    symbolic, numeric = tf.test.compute_gradient(slope, [values])
    np.testing.assert_allclose(symbolic[0], numeric[0], atol=1e-4)


def test_gradient_inside_a_function():
    @tf.function
    def slope(x):
        with tf.GradientTape() as tape:
            tape.watch(x.flat_values)
            y = tf.reduce_sum(lodestar.sequence.pool(x, "mean"))
        return tape.gradient(y, x.flat_values)

    x = tf.ragged.constant([[1.0, 2.0], [], [3.0]])
    assert slope(x).numpy().tolist() == [0.5, 0.5, 1.0]


@pytest.mark.parametrize("name, ours", [("average", "mean"), ("sqrt", "sqrtn")])
def test_paddle_names_are_pointed_to_ours(name, ours):
    with pytest.raises(ValueError, match=f"'{name}', which is called '{ours}'"):
        lodestar.sequence.pool(tf.ragged.constant([[1.0]]), name)


def test_what_is_refused():
    x = tf.ragged.constant([[1.0]])
    with pytest.raises(ValueError, match="'median', wanted one of sum, mean"):
        lodestar.sequence.pool(x, "median")
    with pytest.raises(ValueError, match="goes with 'max', not 'sum'"):
        lodestar.sequence.pool(x, with_index=True)
    with pytest.raises(TypeError, match="RaggedTensor or LoDTensor"):
        lodestar.sequence.pool(tf.ones([2, 2]))
    with pytest.raises(TypeError, match="dtype string"):
        lodestar.sequence.pool(tf.ragged.constant([["a"]]))


@pytest.mark.parametrize(
    "splits, message",
    [
        ([1, 3], r"`row_splits\[0\]` is 1, wanted 0"),
        ([0, 2, 1, 3], r"`row_splits\[1\]`=2 is greater than"),
        ([0, 2], r"ends at 2, but there are 3 rows"),
        ([0, 2**62], r"but there are 3 rows"),
        ([], r"`row_splits` is empty"),
    ],
)
def test_splits_are_checked_before_they_are_read(splits, message):
    x = LoDTensor(tf.ones([3, 2]), (tf.constant(splits, tf.int64),))
    with pytest.raises(tf.errors.InvalidArgumentError, match=message):
        lodestar.sequence.pool(x)


@pytest.mark.gpu
@pytest.mark.parametrize("combiner", COMBINERS)
def test_gpu_agrees_with_cpu(combiner, rng):
    splits = np.concatenate([[0], np.cumsum(rng.integers(0, 9, 500))])
    values = rng.normal(size=(splits[-1], 33)).astype(np.float32)
    x = tf.RaggedTensor.from_row_splits(values, splits)
    with tf.device("/CPU:0"):
        wanted = lodestar.sequence.pool(x, combiner)
    with tf.device("/GPU:0"):
        got = lodestar.sequence.pool(x, combiner)
    np.testing.assert_allclose(got, wanted, rtol=1e-6)
