"""lodestar.paddle.SelectedRows."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from lodestar.paddle import SelectedRows

BAD = tf.errors.InvalidArgumentError
DTYPES = [tf.float16, tf.bfloat16, tf.float32, tf.float64, tf.int32, tf.int64]


def test_the_formats_example():
    x = SelectedRows([5, 3, 5], [[1.0], [2.0], [3.0]], 10)
    merged = x.merge()
    assert merged.rows.numpy().tolist() == [3, 5]
    assert merged.values.numpy().tolist() == [[2.0], [4.0]]
    assert merged.height.numpy() == 10
    dense = np.zeros([10, 1])
    dense[3], dense[5] = 2.0, 4.0
    for y in (x, merged):
        assert y.to_dense().numpy().tolist() == dense.tolist()
    assert x.values.numpy().tolist() == [[1.0], [2.0], [3.0]]


@pytest.mark.parametrize("dtype", DTYPES, ids=lambda dtype: dtype.name)
@pytest.mark.parametrize(
    "count, shape", [(0, (3,)), (1, (2, 2)), (50, ()), (50, (3,)), (50, (0,))]
)
def test_against_numpy(count, shape, dtype, rng):
    rows = rng.integers(20, size=count)
    values = rng.integers(9, size=(count, *shape))
    dense = np.zeros((20, *shape), np.int64)
    np.add.at(dense, rows, values)
    x = SelectedRows(rows, tf.cast(values, dtype), tf.constant(20))
    merged = x.merge()
    assert merged.rows.numpy().tolist() == sorted(set(rows.tolist()))
    assert merged.values.dtype == dtype
    np.testing.assert_array_equal(
        tf.cast(merged.values, tf.int64), dense[merged.rows]
    )
    np.testing.assert_array_equal(tf.cast(x.to_dense(), tf.int64), dense)


@pytest.mark.parametrize("dtype", [tf.float16, tf.bfloat16])
def test_16_bit_sums_are_kept_in_32(dtype):
    # Added one by one in 16 bits, the sum would stop at 2048 or 256.
    x = SelectedRows(np.zeros(4096, int), tf.ones([4096], dtype), 1)
    for sums in (
        x.merge().values,
        x.to_dense(),
        x.add_to(tf.zeros([1], dtype)),
        x.add_to(tf.Variable([0.0], dtype=dtype)),
        x.find([0]),
    ):
        assert sums.numpy().tolist() == [4096.0]


def test_indexed_slices_and_back():
    slices = tf.IndexedSlices(
        tf.ones([2, 3]), tf.constant([4, 1], tf.int32), tf.constant([6, 3])
    )
    x = SelectedRows.from_indexed_slices(slices)
    assert x.height.numpy() == 6
    back = x.to_indexed_slices()
    assert back.dense_shape.numpy().tolist() == [6, 3]
    np.testing.assert_array_equal(
        tf.convert_to_tensor(back), tf.convert_to_tensor(slices)
    )
    bare = tf.IndexedSlices(slices.values, slices.indices)
    assert SelectedRows.from_indexed_slices(bare, 7).height.numpy() == 7
    with pytest.raises(ValueError, match="has no `dense_shape`. Pass"):
        SelectedRows.from_indexed_slices(bare)
    with pytest.raises(TypeError, match="must be tf.IndexedSlices, got"):
        SelectedRows.from_indexed_slices(slices.values)


def test_the_gradient_of_a_gather():
    table = tf.Variable(tf.ones([5, 2]))
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(tf.gather(table, [3, 0, 3]))
    x = SelectedRows.from_indexed_slices(tape.gradient(loss, table)).merge()
    assert x.rows.numpy().tolist() == [0, 3]
    assert x.values.numpy().tolist() == [[1, 1], [2, 2]]


def test_in_a_function_with_unknown_sizes():
    @tf.function(
        input_signature=[
            tf.TensorSpec([None], tf.int64),
            tf.TensorSpec([None, None]),
            tf.TensorSpec([], tf.int64),
        ]
    )
    def both(rows, values, height):
        x = SelectedRows(rows, values, height)
        return x.merge(), x.to_dense()

    merged, dense = both(np.array([2, 0, 2]), np.ones([3, 1], np.float32), 3)
    assert merged.values.numpy().tolist() == [[1], [2]]
    assert dense.numpy().tolist() == [[1], [0], [2]]
    with pytest.raises(
        tf.errors.InvalidArgumentError,
        match=r"`rows\[0\]` must be in \[0, 3\), got 3",
    ):
        both(np.array([3]), np.ones([1, 1], np.float32), 3)


@pytest.mark.parametrize(
    "rows, height, error, message",
    [
        ([0], 3, BAD, "`rows` has 1 elements, but"),
        ([0, -1], 3, BAD, r"`rows\[1\]` must be in \[0, 3\), got -1"),
        ([0, 0], -3, BAD, "`height` must be at least 0, got -3"),
        ([[0, 1]], 3, ValueError, "`rows` must have rank 1"),
        ([0.0, 1.0], 3, TypeError, "`rows` has dtype float32"),
        ([0, 1], [3], ValueError, "`height` must have rank 0"),
        ([0, 1], 3.0, TypeError, "`height` has dtype float32"),
    ],
)
def test_errors(rows, height, error, message):
    with pytest.raises(error, match=message):
        SelectedRows(rows, [1.0, 2.0], height)


def test_the_complete_shape():
    x = SelectedRows([5, 3], tf.ones([2, 4, 3]), 10)
    assert x.dense_shape.numpy().tolist() == [10, 4, 3]
    assert SelectedRows([], tf.ones([0]), 0).dense_shape.numpy().tolist() == [0]


@pytest.mark.parametrize("count", [0, 1, 60])
@pytest.mark.parametrize("shape", [(), (3,), (0, 2)])
def test_keys_are_found(count, shape, rng):
    rows = rng.integers(20, size=count)
    values = rng.normal(size=(count, *shape))
    x = SelectedRows(rows, values, 20)
    keys = np.array([[*range(-2, 7)], [*range(13, 22)]])
    first = [*rows]
    wanted = [[first.index(k) if k in first else -1 for k in r] for r in keys]
    for dtype in (np.int32, np.int64):
        at = x.index(keys.astype(dtype))
        assert at.dtype == tf.int64
        assert at.numpy().tolist() == wanted
    assert x.has_key(keys).numpy().tolist() == np.isin(keys, rows).tolist()
    dense = np.zeros([20, *shape])
    np.add.at(dense, rows, values)
    inside = ((keys >= 0) & (keys < 20)).reshape(keys.shape + (1,) * len(shape))
    np.testing.assert_allclose(
        x.find(keys), np.where(inside, dense[keys % 20], 0), atol=1e-12
    )
    assert x.index(5).shape == () and x.find(5).shape == shape
    assert x.index(tf.zeros([0, 2], tf.int64)).shape == (0, 2)


def test_invalid_keys():
    x = SelectedRows([2**40, 0], tf.ones([2]), 2**62)
    assert x.index([2**40, 2**63 - 1, -(2**63), 1]).numpy().tolist() == [
        *(0, -1, -1, -1)
    ]
    for method in (x.index, x.has_key, x.find):
        with pytest.raises(TypeError, match="`keys` has dtype float32"):
            method([1.0])


def test_concat_means_the_sum(rng):
    parts = [
        SelectedRows(rng.integers(9, size=n), rng.normal(size=(n, 2)), 9)
        for n in (4, 0, 7)
    ]
    x = SelectedRows.concat(parts)
    assert x.rows.shape == (11,)
    np.testing.assert_allclose(
        x.to_dense(), sum(part.to_dense() for part in parts)
    )
    assert SelectedRows.concat(iter(parts[:1])).rows.shape == (4,)


@pytest.mark.parametrize(
    "others, error, message",
    [
        ([], ValueError, "`tensors` must not be empty"),
        ([tf.ones([1, 2])], TypeError, r"`tensors\[1\]` must be SelectedRows"),
        (
            [SelectedRows([0], [[1, 2]], 9)],
            TypeError,
            r"`tensors\[1\]` has dtype int32, but `tensors\[0\]` h",
        ),
        (
            [SelectedRows([0], [1.0], 9)],
            ValueError,
            r"`tensors\[1\]` has rows of shape \(\), but `tensor",
        ),
        (
            [SelectedRows([0], [[1.0, 2.0]], 8)],
            tf.errors.InvalidArgumentError,
            r"`tensors\[1\]` and `tensors\[0\]` have different heights",
        ),
    ],
)
def test_concat_refuses_different_parts(others, error, message):
    parts = [SelectedRows([0], [[1.0, 2.0]], 9)] * bool(others) + others
    for run in (SelectedRows.concat, tf.function(SelectedRows.concat)):
        with pytest.raises(error, match=message):
            run(parts)


def as_tensor(dense):
    return dense, dense


def as_variable(dense):
    variable = tf.Variable(dense)
    return variable, variable


def as_keras_variable(dense):
    variable = keras.Variable(dense, dtype=dense.dtype.name)
    return variable, variable.value


@pytest.mark.parametrize("wrap", [False, True], ids=["eager", "function"])
@pytest.mark.parametrize("dtype", DTYPES, ids=lambda dtype: dtype.name)
@pytest.mark.parametrize("kind", [as_tensor, as_variable, as_keras_variable])
def test_rows_are_added_to_dense_tensors(kind, dtype, wrap, rng):
    rows, values = rng.integers(5, size=20), rng.integers(4, size=(20, 2))
    before = rng.integers(4, size=(5, 2))
    wanted = before.copy()
    np.add.at(wanted, rows, values)
    x = SelectedRows(rows, tf.cast(values, dtype), 5)
    dense, holder = kind(tf.cast(before, dtype))

    def add():
        y = x.add_to(dense)
        assert kind is as_tensor or y is dense
        return tf.convert_to_tensor(y)

    got = (tf.function(add) if wrap else add)()
    assert got.dtype == dtype
    np.testing.assert_array_equal(tf.cast(got, tf.int64), wanted)
    if kind is not as_tensor:
        np.testing.assert_array_equal(tf.cast(holder, tf.int64), wanted)


def test_unsupported_targets_of_addition():
    x = SelectedRows([0, 2], [[1.0], [2.0]], 3)
    variable = tf.Variable(tf.zeros([4, 1]))
    message = "`dense` has another shape than the selected rows"
    for dense in (variable, tf.zeros([2, 1])):
        for run in (x.add_to, tf.function(x.add_to)):
            with pytest.raises(tf.errors.InvalidArgumentError, match=message):
                run(dense)
    assert variable.numpy().sum() == 0
    with pytest.raises(TypeError, match="`dense` has dtype int32, but the sel"):
        x.add_to(tf.zeros([3, 1], tf.int32))
    with pytest.raises(ValueError, match=r"`dense` has rows of shape \(2,\)"):
        x.add_to(tf.zeros([3, 2]))


@pytest.mark.parametrize(
    "function",
    [
        lambda x, dense: x.merge().values + tf.reduce_sum(dense),
        lambda x, dense: x.to_dense() + dense,
        lambda x, dense: x.find([[4, 3], [0, 4]]) + tf.reduce_sum(dense),
        lambda x, dense: x.add_to(dense),
        lambda x, dense: SelectedRows.concat([x, x]).to_dense() + dense,
    ],
    ids=["merge", "to_dense", "find", "add_to", "concat"],
)
def test_gradients(function, rng):
    def squared(values, dense):
        return function(SelectedRows([4, 1, 4, 0], values, 5), dense) ** 2

    given = [tf.constant(rng.normal(size=(n, 2))) for n in (4, 5)]
    for theory, numeric in zip(
        *tf.test.compute_gradient(squared, given), strict=True
    ):
        np.testing.assert_allclose(theory, numeric, rtol=1e-5, atol=1e-6)


def test_parts_in_a_function_with_unknown_shapes():
    number = tf.TensorSpec(None, tf.int64)
    rows = tf.TensorSpec(None)

    @tf.function(input_signature=[number, rows, number, number, rows])
    def parts(rows, values, height, keys, dense):
        x = SelectedRows(rows, values, height)
        x = SelectedRows.concat([x, x])
        return x.find(keys), x.index(keys), x.add_to(dense), x.dense_shape

    found, index, dense, shape = parts(
        [5, 3, 5], [[1.0], [2.0], [3.0]], 10, [[5, 0, 12]], tf.zeros([10, 1])
    )
    assert found.numpy().tolist() == [[[8], [0], [0]]]
    assert index.numpy().tolist() == [[0, -1, -1]]
    assert dense.numpy()[:, 0].tolist() == [0, 0, 0, 4, 0, 8, 0, 0, 0, 0]
    assert shape.numpy().tolist() == [10, 1]
    found, index, *_ = parts([], tf.zeros([0, 1]), 10, 5, tf.zeros([10, 1]))
    assert (found.numpy().tolist(), int(index)) == ([0], -1)
