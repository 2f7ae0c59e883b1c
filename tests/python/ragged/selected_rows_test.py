"""lodestar.ragged.SelectedRows."""

import numpy as np
import pytest
import tensorflow as tf

from lodestar._library import gen_ops
from lodestar.ragged import SelectedRows

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
@pytest.mark.parametrize("shape", [(), (3,), (2, 2), (0,)])
@pytest.mark.parametrize("count", [0, 1, 50])
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
    x = SelectedRows(np.zeros(4096, int), tf.ones([4096], dtype), 1)
    assert x.merge().values.numpy().tolist() == [4096.0]
    assert x.to_dense().numpy().tolist() == [4096.0]


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
    with pytest.raises(ValueError, match="has no `dense_shape`; give the"):
        SelectedRows.from_indexed_slices(bare)
    with pytest.raises(TypeError, match="must be IndexedSlices, found"):
        SelectedRows.from_indexed_slices(slices.values)


def test_the_gradient_of_a_gather():
    table = tf.Variable(tf.ones([5, 2]))
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(tf.gather(table, [3, 0, 3]))
    x = SelectedRows.from_indexed_slices(tape.gradient(loss, table)).merge()
    assert x.rows.numpy().tolist() == [0, 3]
    assert x.values.numpy().tolist() == [[1, 1], [2, 2]]


def test_in_a_function_of_unknown_sizes():
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
        tf.errors.InvalidArgumentError, match=r"`rows\[0\]` is 3, wanted 0 to 2"
    ):
        both(np.array([3]), np.ones([1, 1], np.float32), 3)


def test_through_functions():
    @tf.function
    def merged(x):
        return x.merge()

    x = merged(SelectedRows([5, 3, 5], [1.0, 2.0, 3.0], 10))
    assert x.rows.numpy().tolist() == [3, 5]
    assert x.to_dense().numpy().tolist() == [0, 0, 0, 2, 0, 4, 0, 0, 0, 0]


@pytest.mark.parametrize("method", ["merge", "to_dense"])
def test_gradient(method, rng):
    def summed(values):
        y = getattr(SelectedRows([4, 1, 4, 0], values, 5), method)()
        y = y.values if method == "merge" else y
        return y * y

    theory, numeric = tf.test.compute_gradient(
        summed, [tf.constant(rng.normal(size=(4, 2)))]
    )
    np.testing.assert_allclose(theory, numeric, rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize(
    "rows, height, error, message",
    [
        (
            [0],
            3,
            tf.errors.InvalidArgumentError,
            "`rows` has 1 numbers, but th",
        ),
        ([0, -1], 3, tf.errors.InvalidArgumentError, r"`rows\[1\]` is -1"),
        ([0, 0], -3, tf.errors.InvalidArgumentError, "`height` is -3"),
        ([[0, 1]], 3, ValueError, "`rows` must have rank 1"),
        ([0.0, 1.0], 3, TypeError, "`rows` has dtype float32"),
        ([0, 1], [3], ValueError, "`height` must have rank 0"),
        ([0, 1], 3.0, TypeError, "`height` has dtype float32"),
    ],
)
def test_errors(rows, height, error, message):
    with pytest.raises(error, match=message):
        SelectedRows(rows, [1.0, 2.0], height)


@pytest.mark.parametrize(
    "changed, message",
    [
        ({"rows": 0}, "`rows` must have rank 1"),
        ({"num_values": [2]}, "`num_values` must have rank 0"),
        ({"height": [2]}, "`height` must have rank 0"),
    ],
)
def test_the_op_refuses_what_python_does_not_send(changed, message):
    arguments = {"rows": [0, 1], "num_values": 2, "height": 2, **changed}
    arguments = {
        name: tf.constant(value, tf.int64) for name, value in arguments.items()
    }
    with pytest.raises(tf.errors.InvalidArgumentError, match=message):
        gen_ops.lodestar_selected_rows_validate(**arguments)
