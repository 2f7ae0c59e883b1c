"""LoDTensor from and to SparseTensor."""

import numpy as np
import pytest
import tensorflow as tf

from lodestar.ragged import LoDTensor


def random_lists(rng, levels):
    """Returns nested lists whose last units at the upper levels are not empty."""
    if levels == 0:
        return float(rng.integers(1000))
    items = [random_lists(rng, levels - 1) for _ in range(rng.integers(4))]
    while levels > 1 and items and not items[-1]:
        items.pop()
    return items


@pytest.mark.parametrize("dtype", [tf.float16, tf.int64, tf.string])
@pytest.mark.parametrize("lists", [[], [[]], [[1], [], [2, 3, 4], []]])
def test_one_level_is_like_tensorflows(lists, dtype):
    ragged = tf.ragged.constant(lists, tf.int64, ragged_rank=1)
    values = ragged.flat_values
    values = (
        tf.strings.as_string(values)
        if dtype == tf.string
        else tf.cast(values, dtype)
    )
    ragged = ragged.with_flat_values(values)
    x = LoDTensor.from_sparse(ragged.to_sparse())
    assert x.to_ragged().to_list() == ragged.to_list()
    assert x.values.dtype == dtype
    stock, ours = ragged.to_sparse(), x.to_sparse()
    assert ours.indices.numpy().tolist() == stock.indices.numpy().tolist()
    assert (
        ours.dense_shape.numpy().tolist() == stock.dense_shape.numpy().tolist()
    )


@pytest.mark.parametrize("levels", [1, 2, 3])
def test_random_levels_round_trip(levels, rng):
    for _ in range(20):
        lists = [random_lists(rng, levels) for _ in range(rng.integers(1, 5))]
        x = LoDTensor.from_nested_lists(lists, tf.float32, levels)
        back = LoDTensor.from_sparse(x.to_sparse())
        assert back.to_list() == lists
        assert back.num_levels == levels


def test_empty_units_of_an_upper_level():
    # Units 1 and 3 of the outer level, and indices before 2 of unit 0.
    sparse = tf.SparseTensor(
        [[0, 2, 0], [2, 0, 0], [2, 0, 1]], [1.0, 2.0, 3.0], [4, 5, 2]
    )
    x = LoDTensor.from_sparse(sparse)
    assert x.to_list() == [[[], [], [1.0]], [], [[2.0, 3.0]], []]


def test_rows_with_dimensions_add_dimensions():
    x = LoDTensor.from_lengths([[1, 2], [3, 4]], [[2, 0]])
    assert tf.sparse.to_dense(x.to_sparse()).numpy().tolist() == [
        [[1, 2], [3, 4]],
        [[0, 0], [0, 0]],
    ]


def test_in_a_function_with_unknown_sizes():
    @tf.function(input_signature=[tf.SparseTensorSpec([None, None], tf.int64)])
    def lengths(sparse):
        x = LoDTensor.from_sparse(sparse)
        return x.lengths()[0], LoDTensor.from_sparse(x.to_sparse()).values

    sparse = tf.SparseTensor(
        [[1, 0], [1, 1]], tf.constant([5, 6], tf.int64), [3, 4]
    )
    got, values = lengths(sparse)
    assert got.numpy().tolist() == [0, 2, 0]
    assert values.numpy().tolist() == [5, 6]


def test_gradient():
    indices = [[0, 0], [1, 0], [1, 1]]

    def there_and_back(values):
        x = LoDTensor.from_sparse(tf.SparseTensor(indices, values, [2, 2]))
        return x.to_sparse().values * x.values

    theory, numeric = tf.test.compute_gradient(
        there_and_back, [tf.constant([1.0, 2.0, 3.0], tf.float64)]
    )
    np.testing.assert_allclose(theory, numeric, rtol=1e-6)


@pytest.mark.parametrize(
    "indices, shape, message",
    [
        (
            [[0, 0], [0, 0]],
            [1, 2],
            r"`indices\[1\]` is \[0, 0\] after \[0, 0\]. Indices must be in row-m",
        ),
        (
            [[1, 0], [0, 0]],
            [2, 2],
            r"`indices\[1\]` is \[0, 0\] after \[1, 0\]",
        ),
        (
            [[0, 1], [0, 0]],
            [1, 2],
            r"`indices\[1\]` is \[0, 0\] after \[0, 1\]",
        ),
        (
            [[0, 1]],
            [1, 2],
            r"`indices\[0\]\[1\]` must be 0, got 1. The values of a unit",
        ),
        ([[0, 0], [0, 2]], [1, 3], r"`indices\[1\]\[1\]` must be 1, got 2"),
        (
            [[0, 0], [5, 0]],
            [5, 3],
            r"`indices\[1\]` must be .* below `dense_shape` \[5, 3\], got \[5, 0\]",
        ),
        (
            [[0, -1]],
            [5, 3],
            r"`indices\[0\]` must be at least 0.* got \[0, -1\]",
        ),
        (
            np.zeros([0, 2]),
            [-1, 3],
            r"`dense_shape\[0\]` must be at least 0, got -1",
        ),
    ],
)
def test_bad_indices_are_named(indices, shape, message):
    def levels(indices):
        sparse = tf.SparseTensor(indices, tf.zeros([len(indices)]), shape)
        return LoDTensor.from_sparse(sparse).lod

    for run in (levels, tf.function(levels)):
        with pytest.raises(tf.errors.InvalidArgumentError, match=message):
            run(np.array(indices, np.int64))


# Sizes beyond int64 bytes: for smaller ones TensorFlow retries for ten seconds.
@pytest.mark.parametrize("units", [2**62, 2**63 - 1])
def test_more_units_than_memory(units):
    for shape in ([units, 1], [1, units, 1]):
        index = [[*([0] * (len(shape) - 2)), 0, 0]]
        index[0][len(shape) - 2] = units - 1
        sparse = tf.SparseTensor(np.array(index), [1.0], shape)
        with pytest.raises(
            (tf.errors.ResourceExhaustedError, tf.errors.InvalidArgumentError)
        ):
            LoDTensor.from_sparse(sparse)


def test_what_python_refuses():
    with pytest.raises(TypeError, match="must be a SparseTensor, got"):
        LoDTensor.from_sparse(tf.zeros([2, 2]))
    vector = tf.SparseTensor([[0]], [1.0], [1])
    with pytest.raises(ValueError, match="static rank of 2 or more"):
        LoDTensor.from_sparse(vector)
    with pytest.raises(ValueError, match="requires at least one level"):
        LoDTensor([1.0], ()).to_sparse()


def test_a_diagonal_matrix_without_its_column_numbers():
    n = 4
    diagonal = tf.SparseTensor(
        [[i, i] for i in range(n)], [1.0, 2.0, 3.0, 4.0], [n, n]
    )
    with pytest.raises(
        tf.errors.InvalidArgumentError,
        match=r"`indices\[1\]\[1\]` must be 0, got 1",
    ):
        LoDTensor.from_sparse(diagonal)
    x = LoDTensor.from_sparse(diagonal, columns="drop")
    assert x.lengths()[0].numpy().tolist() == [1] * n
    assert x.to_list() == [[1.0], [2.0], [3.0], [4.0]]


@pytest.mark.parametrize("rank", [2, 3])
def test_only_existing_columns_are_dropped(rank, rng):
    for _ in range(20):
        dense = rng.integers(0, 3, rng.integers(1, 5, rank)).astype(np.float64)
        got = LoDTensor.from_sparse(tf.sparse.from_dense(dense), columns="drop")
        wanted = tf.ragged.stack(
            [r[r != 0] for r in dense.reshape(-1, dense.shape[-1])]
        )
        rows = got if rank == 2 else got.level(1)
        found = [r for r in rows.to_list() if r]
        assert found == [r for r in wanted.to_list() if r]
        assert len(got) == len(dense)


def test_dropped_columns_in_a_function_with_a_gradient():
    @tf.function(input_signature=[tf.TensorSpec([None])])
    def squares(values):
        sparse = tf.SparseTensor([[0, 4], [0, 7], [2, 1]], values, [3, 9])
        x = LoDTensor.from_sparse(sparse, "drop")
        with tf.GradientTape() as tape:
            tape.watch(values)
            y = LoDTensor.from_sparse(
                tf.SparseTensor(sparse.indices, values, sparse.dense_shape),
                "drop",
            )
            loss = tf.reduce_sum(y.values**2)
        return x.lengths()[0], tape.gradient(loss, values)

    lengths, gradient = squares(tf.constant([1.0, 2.0, 3.0]))
    assert lengths.numpy().tolist() == [2, 0, 1]
    assert gradient.numpy().tolist() == [2, 4, 6]


def test_dropped_columns_are_in_order_all_the_same():
    for indices, message in (
        ([[0, 3], [0, 3]], "none may repeat"),
        ([[0, 3], [0, 1]], "must be in row-major order"),
        ([[0, 9]], "below `dense_shape`"),
    ):
        sparse = tf.SparseTensor(indices, [1.0] * len(indices), [2, 9])
        with pytest.raises(tf.errors.InvalidArgumentError, match=message):
            LoDTensor.from_sparse(sparse, "drop")
    with pytest.raises(
        ValueError, match="`columns` must be 'keep' .* got 'lose'"
    ):
        LoDTensor.from_sparse(sparse, "lose")
