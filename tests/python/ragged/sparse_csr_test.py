"""lodestar.ragged.csr_to_sparse and sparse_to_csr, against NumPy."""

import numpy as np
import pytest
import tensorflow as tf

from lodestar.ragged import csr_to_sparse, sparse_to_csr


def random_csr(rng, rows, columns, dtype):
    """Returns a matrix and its CSR, with columns in any order."""
    dense = rng.integers(1, 100, (rows, columns)) * rng.integers(
        0, 2, (rows, columns)
    )
    values, places, offsets = [], [], [0]
    for row in dense:
        (found,) = np.nonzero(row)
        found = rng.permutation(found)
        values += row[found].tolist()
        places += found.tolist()
        offsets.append(len(values))
    return dense.astype(dtype), (
        np.array(values, dtype),
        np.array(places, np.int64),
        np.array(offsets, np.int64),
    )


@pytest.mark.parametrize("shape", [(0, 0), (0, 3), (3, 0), (1, 1), (6, 9)])
@pytest.mark.parametrize("dtype", [np.float32, np.int64, np.float16])
@pytest.mark.parametrize("integers", [np.int32, np.int64])
def test_round_trip(shape, dtype, integers, rng):
    dense, (values, columns, offsets) = random_csr(rng, *shape, dtype)
    sparse = csr_to_sparse(
        values, columns.astype(integers), offsets.astype(integers), shape[1]
    )
    assert sparse.dense_shape.numpy().tolist() == list(shape)
    np.testing.assert_array_equal(tf.sparse.to_dense(sparse), dense)
    back = sparse_to_csr(sparse)
    assert back[0].dtype == dtype
    assert back[1].dtype == back[2].dtype == tf.int64
    np.testing.assert_array_equal(back[2], offsets)
    for begin, end in zip(offsets[:-1], offsets[1:]):
        order = np.argsort(columns[begin:end])
        np.testing.assert_array_equal(
            back[1][begin:end], columns[begin:end][order]
        )
        np.testing.assert_array_equal(
            back[0][begin:end], values[begin:end][order]
        )


def test_strings_and_a_function_with_unknown_sizes():
    @tf.function(
        input_signature=[
            tf.TensorSpec([None], tf.string),
            tf.TensorSpec([None], tf.int64),
            tf.TensorSpec([None], tf.int32),
        ]
    )
    def both(values, columns, offsets):
        return sparse_to_csr(csr_to_sparse(values, columns, offsets, 4))

    values, columns, offsets = both(["b", "a", "c"], [3, 0, 1], [0, 2, 2, 3])
    assert values.numpy().tolist() == [b"a", b"b", b"c"]
    assert columns.numpy().tolist() == [0, 3, 1]
    assert offsets.numpy().tolist() == [0, 2, 2, 3]
    # The rows keep their number without values.
    assert both([], [], [0, 0, 0])[2].numpy().tolist() == [0, 0, 0]


def test_indices_in_any_order():
    sparse = tf.SparseTensor([[1, 0], [0, 2], [0, 1]], [1, 2, 3], [3, 3])
    values, columns, offsets = sparse_to_csr(sparse)
    assert values.numpy().tolist() == [3, 2, 1]
    assert columns.numpy().tolist() == [1, 2, 0]
    assert offsets.numpy().tolist() == [0, 2, 3, 3]


def test_gradients():
    values = tf.Variable([1.0, 2.0, 3.0])
    with tf.GradientTape() as tape:
        sparse = csr_to_sparse(values, [2, 0, 1], [0, 2, 3], 3)
        again, _, _ = sparse_to_csr(sparse)
        loss = tf.reduce_sum(again * [1.0, 10.0, 100.0])
    assert tape.gradient(loss, values).numpy().tolist() == [10.0, 1.0, 100.0]


@pytest.mark.parametrize(
    "arguments, error, message",
    [
        (([1], [0], [0, 1], -1), ValueError, "`num_columns` must be"),
        (([[1]], [0], [0, 1], 1), ValueError, "`values` must be a vector"),
        (([1], [[0]], [0, 1], 1), ValueError, "`columns` must have rank 1"),
        (([1], [0], [[0, 1]], 1), ValueError, "`row_offsets` must have rank 1"),
        (([1], [0.5], [0, 1], 1), TypeError, "`columns` has dtype"),
        (
            ([1, 2], [0, 3], [0, 2], 3),
            tf.errors.InvalidArgumentError,
            r"(?s)`columns` must be in \[0, 3\), got.*3",
        ),
        (
            ([1, 2], [0, -1], [0, 2], 3),
            tf.errors.InvalidArgumentError,
            r"(?s)`columns` must be in \[0, 3\), got.*-1",
        ),
        (
            ([1, 2], [0], [0, 2], 3),
            tf.errors.InvalidArgumentError,
            "different numbers of elements",
        ),
        (
            ([1, 2], [1, 1], [0, 2], 3),
            tf.errors.InvalidArgumentError,
            "a row has a column twice",
        ),
        (([1, 2], [0, 1], [0, 1], 3), tf.errors.InvalidArgumentError, ""),
        (([1, 2], [0, 1], [1, 2], 3), tf.errors.InvalidArgumentError, ""),
    ],
)
def test_bad_csr(arguments, error, message):
    with pytest.raises(error, match=message):
        csr_to_sparse(*arguments)


def test_bad_sparse_tensors():
    with pytest.raises(TypeError, match="`sparse` must be a tf.SparseTensor"):
        sparse_to_csr([[1]])
    with pytest.raises(ValueError, match="must have rank 2"):
        sparse_to_csr(tf.SparseTensor([[0]], [1], [1]))
    with pytest.raises(
        tf.errors.InvalidArgumentError, match="outside of its shape"
    ):
        sparse_to_csr(tf.SparseTensor([[0, 3]], [1], [2, 3]))
