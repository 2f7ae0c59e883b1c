"""Compares pooled lookups with a NumPy model, for all kinds of ids."""

import numpy as np
import pytest
import tensorflow as tf

import lodestar

COMBINERS = ("sum", "mean", "sqrtn", "max", "first", "last")
WEIGHTED = ("sum", "mean", "sqrtn")
BAGS = [[3, 1, 3], [], [7], [1, 2, 3, 4], [], [9, 9]]


def table(**options):
    t = lodestar.EmbeddingVariable(3, name="pooled", **options)
    t.lookup(np.arange(9), training=True)
    return t


def combine(rows, weights, combiner):
    """Combines one bag: rows `[L, D]`, weights `[L]`."""
    if len(rows) == 0:
        return np.zeros(3, np.float32)
    if combiner == "max":
        return rows.max(0)
    if combiner in ("first", "last"):
        return rows[0 if combiner == "first" else -1]
    total = (rows * weights[:, None]).sum(0)
    if combiner == "mean":
        return total / weights.sum()
    return total / np.sqrt((weights**2).sum()) if combiner == "sqrtn" else total


def expected(t, bags, combiner, weights=None):
    rows = []
    for b, bag in enumerate(bags):
        found = t.lookup(np.array(bag, np.int64)).numpy()
        w = np.ones(len(bag)) if weights is None else np.array(weights[b])
        rows.append(combine(found, w, combiner))
    return np.array(rows, np.float32)


def ragged(bags, dtype=tf.int64, **options):
    return tf.ragged.constant(bags, dtype, **options)


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("graph", [False, True])
@pytest.mark.parametrize("combiner", COMBINERS)
def test_ragged(combiner, graph, training):
    t = table()

    def lookup(ids):
        return t.lookup(ids, combiner=combiner, training=training)

    got = (tf.function(lookup) if graph else lookup)(ragged(BAGS))
    want = expected(t, BAGS, combiner)
    np.testing.assert_allclose(got, want, 1e-6, 1e-7)
    assert int(t.size()) == (10 - (not training))  # id 9 is new


@pytest.mark.parametrize("combiner", COMBINERS)
def test_sparse_equals_ragged(combiner):
    t = table()
    sparse = ragged(BAGS).to_sparse()
    got = t.lookup(sparse, combiner=combiner)
    np.testing.assert_array_equal(
        got, t.lookup(ragged(BAGS), combiner=combiner)
    )
    assert got.shape == (6, 3)


@pytest.mark.parametrize("combiner", COMBINERS)
def test_dense_pools_the_last_axis(combiner):
    t = table()
    ids = np.arange(24).reshape(2, 3, 4) % 9
    got = t.lookup(ids, combiner=combiner)
    want = expected(t, ids.reshape(6, 4), combiner).reshape(2, 3, 3)
    np.testing.assert_allclose(got, want, 1e-6, 1e-7)
    assert t.lookup(np.zeros((2, 0), int), combiner=combiner).shape == (2, 3)
    assert t.lookup(np.zeros((0, 2), int), combiner=combiner).shape == (0, 3)


@pytest.mark.parametrize("combiner", WEIGHTED)
@pytest.mark.parametrize("kind", ["ragged", "sparse", "dense"])
def test_weights(combiner, kind, rng):
    t = table()
    bags = [[1, 2], [3, 3], [4, 5]] if kind == "dense" else BAGS
    weights = [list(rng.uniform(0.5, 2, len(bag))) for bag in bags]
    ids, w = ragged(bags), ragged(weights, tf.float32)
    if kind == "sparse":
        ids, w = ids.to_sparse(), w.to_sparse()
    if kind == "dense":
        ids, w = ids.to_tensor(), w.to_tensor()
    got = t.lookup(ids, combiner=combiner, weights=w)
    want = expected(t, bags, combiner, weights)
    np.testing.assert_allclose(got, want, 1e-5, 1e-6)


def test_nested_ragged_pools_the_innermost():
    t = table()
    ids = ragged([[[1, 2], []], [], [[3]]])
    got = t.lookup(ids, combiner="mean")
    assert isinstance(got, tf.RaggedTensor) and got.ragged_rank == 1
    np.testing.assert_allclose(
        got.values, expected(t, [[1, 2], [], [3]], "mean"), 1e-6
    )
    assert got.row_lengths().numpy().tolist() == [2, 0, 1]
    assert t.lookup(ids).shape.as_list() == [3, None, None, 3]


def test_uniform_inner_axis_of_ragged_ids():
    t = table()
    ids = tf.RaggedTensor.from_row_lengths([[1, 2], [3, 4], [5, 6]], [2, 0, 1])
    got = t.lookup(ids, combiner="sum")
    np.testing.assert_allclose(
        got.flat_values, expected(t, [[1, 2], [3, 4], [5, 6]], "sum"), 1e-6
    )


def test_int32_row_splits_and_ids():
    t = table()
    ids = tf.cast(ragged(BAGS, row_splits_dtype=tf.int32), tf.int32)
    np.testing.assert_allclose(
        t.lookup(ids, combiner="sum"), expected(t, BAGS, "sum"), 1e-6, 1e-7
    )


@pytest.mark.parametrize("combiner", COMBINERS)
def test_padding_is_in_no_bag(combiner):
    t = table()
    padded = [[0, 3, 0, 1], [0, 0, 0, 0], [7, 0, 0, 0]]
    got = t.lookup(np.array(padded), combiner=combiner, padding_id=0)
    want = expected(t, [[3, 1], [], [7]], combiner)
    np.testing.assert_allclose(got, want, 1e-6, 1e-7)


@pytest.mark.parametrize("combiner", COMBINERS)
def test_default_id_fills_empty_bags(combiner):
    t = table()
    got = t.lookup(ragged(BAGS), combiner=combiner, default_id=5)
    bags = [bag or [5] for bag in BAGS]
    np.testing.assert_allclose(got, expected(t, bags, combiner), 1e-6, 1e-7)


def test_missing_ids_count_in_the_denominator():
    t = table()
    row = t.lookup([1]).numpy()
    got = t.lookup(np.array([[1, 1000]]), combiner="mean")
    np.testing.assert_allclose(got, row / 2, 1e-6)


@pytest.mark.parametrize("graph", [False, True])
@pytest.mark.parametrize(
    "indices, message",
    [
        ([[1, 0], [0, 0]], "not in row-major order"),
        ([[0, 1], [0, 0]], "not in row-major order"),
        ([[0, 0], [0, 0]], "not in row-major order"),
        ([[0, 0], [3, 0]], "out of its dense_shape"),
    ],
)
def test_bad_sparse_indices(indices, message, graph):
    t = table()

    def lookup(i):
        ids = tf.SparseTensor(i, tf.zeros([2], tf.int64), [3, 3])
        return t.lookup(ids, combiner="sum")

    with pytest.raises(tf.errors.InvalidArgumentError, match=message):
        (tf.function(lookup) if graph else lookup)(
            tf.constant(indices, tf.int64)
        )


def test_rank_three_sparse_pools_the_last_axis():
    t = table()
    ids = tf.SparseTensor(
        [[0, 1, 0], [0, 1, 2], [1, 0, 1]], [1, 2, 3], [2, 2, 3]
    )
    got = t.lookup(ids, combiner="sum").numpy()
    want = expected(t, [[], [1, 2], [3], []], "sum").reshape(2, 2, 3)
    np.testing.assert_allclose(got, want, 1e-6, 1e-7)
