"""lodestar.sequence.attention against NumPy, its gradients and its errors."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from batches import FLOATS, check_gradients, ragged_of, splits_of

import lodestar
from lodestar.ragged import LoDTensor
from lodestar.sequence.attention import attend

# No sequences, only empty ones, one row, and lengths of several groups.
LENGTHS = [[], [0], [0, 0], [1], [3, 0, 1, 7, 0], [40, 1, 0, 19, 2, 8, 1]]


def reference(query, key, value, causal=False, scale=None):
    """Returns the attention of lists of one sequence's rows `[heads, dim]`."""
    results = []
    for q, k, v in zip(query, key, value, strict=True):
        q, k, v = (np.asarray(x, np.float64) for x in (q, k, v))
        factor = q.shape[-1] ** -0.5 if scale is None else scale
        scores = np.einsum("qhd,khd->hqk", q, k) * factor
        if causal:
            scores[:, ~np.tri(len(q), len(k), dtype=bool)] = -np.inf
        if not len(k):
            results.append(np.zeros((*q.shape[:-1], v.shape[-1])))
            continue
        weights = np.exp(scores - scores.max(-1, keepdims=True))
        weights /= weights.sum(-1, keepdims=True)
        results.append(np.einsum("hqk,khd->qhd", weights, v))
    return np.concatenate(results) if results else np.zeros((0,))


def by_sequence(x):
    splits = x.row_splits.numpy()
    rows = tf.cast(x.flat_values, tf.float64).numpy()
    return [rows[a:b] for a, b in zip(splits[:-1], splits[1:], strict=True)]


def batch(rng, lengths, dtype=tf.float32, heads=2, dim=3, value_dim=4):
    return [
        ragged_of(rng.normal(size=(sum(lengths), heads, d)), lengths, dtype)
        for d in (dim, dim, value_dim)
    ]


@pytest.mark.parametrize("dtype", FLOATS, ids=lambda dtype: dtype.name)
@pytest.mark.parametrize("lengths", LENGTHS, ids=str)
@pytest.mark.parametrize("causal", [False, True])
def test_matches_numpy(dtype, lengths, causal, rng):
    q, k, v = batch(rng, lengths, dtype)
    got = lodestar.sequence.attention(q, k, v, causal=causal)
    assert got.dtype == dtype
    assert got.flat_values.shape == (sum(lengths), 2, 4)
    np.testing.assert_array_equal(got.row_splits, splits_of(lengths))
    if not lengths:
        return
    tolerance = {tf.float16: 1e-2, tf.bfloat16: 8e-2, tf.float32: 1e-5}
    np.testing.assert_allclose(
        tf.cast(got.flat_values, tf.float64),
        reference(*map(by_sequence, (q, k, v)), causal),
        atol=tolerance.get(dtype, 1e-12),
    )


@pytest.mark.parametrize("scale", [None, 2.0, 0.0])
def test_rows_without_heads_are_one_head(scale, rng):
    q, k, v = batch(rng, [3, 0, 6], heads=1)
    got = lodestar.sequence.attention(
        *(x.with_flat_values(x.flat_values[:, 0]) for x in (q, k, v)),
        scale=scale,
    )
    np.testing.assert_allclose(
        got.flat_values,
        reference(*map(by_sequence, (q, k, v)), scale=scale)[:, 0],
        atol=1e-5,
    )


def test_queries_and_keys_of_other_lengths(rng):
    queries, lengths = [5, 0, 2, 30, 1, 4], [2, 3, 0, 1, 40, 4]
    q = batch(rng, queries)[0]
    _, k, v = batch(rng, lengths)
    got = lodestar.sequence.attention(q, k, v)
    np.testing.assert_array_equal(got.row_splits, q.row_splits)
    np.testing.assert_allclose(
        got.flat_values,
        reference(*map(by_sequence, (q, k, v))),
        atol=1e-5,
    )
    # Queries without keys.
    np.testing.assert_array_equal(got[2], np.zeros((2, 2, 4)))


def test_a_dense_query_is_one_per_sequence(rng):
    lengths = [2, 0, 9, 1]
    _, k, v = batch(rng, lengths)
    q = tf.constant(rng.normal(size=(4, 2, 3)), tf.float32)
    got = lodestar.sequence.attention(q, k, v)
    assert isinstance(got, tf.Tensor)
    want = reference([row[np.newaxis] for row in q], *map(by_sequence, (k, v)))
    np.testing.assert_allclose(got, want, atol=1e-5)
    with pytest.raises(ValueError, match="`causal` must be False for a dense"):
        lodestar.sequence.attention(q, k, v, causal=True)
    with pytest.raises(
        tf.errors.InvalidArgumentError,
        match="equally many sequences, got 3 and 4",
    ):
        lodestar.sequence.attention(q[:3], k, v)


def test_levels_and_kinds(rng):
    x = batch(rng, [3, 0, 2, 4])[0]
    nested = tf.RaggedTensor.from_row_lengths(x, [2, 0, 2])
    inner = lodestar.sequence.attention(nested, nested, nested)
    np.testing.assert_array_equal(inner.row_splits, [0, 2, 2, 4])
    flat = lodestar.sequence.attention(x, x, x)
    np.testing.assert_array_equal(inner.flat_values, flat.flat_values)
    outer = lodestar.sequence.attention(nested, nested, nested, level=0)
    units = tf.RaggedTensor.from_row_splits(x.flat_values, [0, 3, 3, 9])
    np.testing.assert_array_equal(
        outer.flat_values,
        lodestar.sequence.attention(units, units, units).flat_values,
    )
    lod = LoDTensor.from_ragged(nested)
    got = lodestar.sequence.attention(lod, lod, lod)
    assert isinstance(got, LoDTensor)
    np.testing.assert_array_equal(got.values, inner.flat_values)
    narrow = x.with_row_splits_dtype(tf.int32)
    got = lodestar.sequence.attention(narrow, narrow, narrow)
    assert got.row_splits.dtype == tf.int32
    np.testing.assert_array_equal(got.flat_values, flat.flat_values)


# The last has two groups, whose rows are moved in a cycle of five.
@pytest.mark.parametrize("lengths", [[0], [1, 0, 4]], ids=str)
@pytest.mark.parametrize("causal", [False, True])
def test_gradients(lengths, causal, rng):
    # Numeric gradients take two calls for each number.
    rows = [x.flat_values for x in batch(rng, lengths, tf.float64, 1, 2, 1)]
    splits = splits_of(lengths)

    def attention(*rows):
        q, k, v = (tf.RaggedTensor.from_row_splits(x, splits) for x in rows)
        return lodestar.sequence.attention(q, k, v, causal=causal).flat_values

    if sum(lengths):
        check_gradients(attention, *rows)
    with tf.GradientTape() as tape:
        tape.watch(rows)
        y = attention(*rows)
    for gradient, x in zip(tape.gradient(y, rows), rows, strict=True):
        assert gradient.shape == x.shape


def test_graph_with_unknown_sizes(rng):
    spec = tf.RaggedTensorSpec([None, None, 2, 3], tf.float32, 1)

    @tf.function(input_signature=[spec])
    def attention(x):
        return lodestar.sequence.attention(x, x, x, causal=True)

    for lengths in LENGTHS:
        x = batch(rng, lengths)[0]
        np.testing.assert_array_equal(
            attention(x).flat_values,
            lodestar.sequence.attention(x, x, x, causal=True).flat_values,
        )


def test_memory_does_not_grow_with_the_longest_sequence(rng):
    lengths = [100] + [1] * 200
    sizes = []

    def see(weights):
        sizes.append(int(tf.size(weights)))
        return weights

    q, k, v = batch(rng, lengths, heads=1)
    attend(q, k, v, causal=False, change_weights=see)
    # A padded batch has 201 x 100 x 100.
    assert sum(sizes) <= 100 * 100 + 200


def test_functional_model(rng, tmp_path):
    x = keras.Input((None, 3), ragged=True)
    y = lodestar.sequence.attention(x, x, x, causal=True)
    assert y.ragged and y.shape == (None, None, 3)
    target = keras.Input((3,))
    z = lodestar.sequence.attention(target, x, x)
    assert not z.ragged and z.shape == (None, 3)
    model = keras.Model([x, target], [lodestar.sequence.pool(y), z])
    rows = ragged_of(rng.normal(size=(6, 3)), [4, 0, 2], tf.float32)
    ones = tf.ones([3, 3])
    got = model([rows, ones])
    want = lodestar.sequence.attention(rows, rows, rows, causal=True)
    np.testing.assert_allclose(got[0], lodestar.sequence.pool(want), atol=1e-6)
    model.save(tmp_path / "m.keras")
    loaded = keras.models.load_model(tmp_path / "m.keras")
    for ours, theirs in zip(loaded([rows, ones]), got, strict=True):
        np.testing.assert_array_equal(ours, theirs)


def test_errors(rng):
    q, k, v = batch(rng, [2, 1])
    attention = lodestar.sequence.attention
    with pytest.raises(TypeError, match="`key` must be a RaggedTensor"):
        attention(q, k.flat_values, v)
    with pytest.raises(TypeError, match="`value` must have dtype float32"):
        attention(q, k, tf.cast(v, tf.float64))
    with pytest.raises(ValueError, match="`key` must have the row shape"):
        attention(q, v, v)
    with pytest.raises(ValueError, match="static shape"):
        attention(
            *(x.with_flat_values(x.flat_values[:, 0, 0]) for x in (q, k, v))
        )
    with pytest.raises(ValueError, match="`level` must be an integer"):
        attention(q, k, v, level=1)
    with pytest.raises(ValueError, match="`value` must have 1 levels"):
        attention(q, k, tf.RaggedTensor.from_row_lengths(v, [1, 1]))
    other = ragged_of(v.flat_values, [1, 2])
    with pytest.raises(
        tf.errors.InvalidArgumentError,
        match="`value` and `key` must have sequences of the same lengths; the first "
        "that differs is sequence 0",
    ):
        attention(q, k, other)
    with pytest.raises(
        tf.errors.InvalidArgumentError, match="`query` and `key` must have seq"
    ):
        attention(ragged_of(q.flat_values, [1, 2]), k, v, causal=True)
    with pytest.raises(
        tf.errors.InvalidArgumentError,
        match="equally many sequences, got 3 and 2",
    ):
        attention(ragged_of(q.flat_values, [1, 1, 1]), k, v)
