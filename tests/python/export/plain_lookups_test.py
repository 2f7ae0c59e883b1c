"""Compares plain lookups, run eagerly, bit by bit with the ops of Lodestar."""

import keras
import numpy as np
import pytest
import tensorflow as tf

import lodestar
from lodestar.export.plain.id_index import IdIndex
from lodestar.export.plain.tables import PlainTables
from lodestar.ops.stand_ins import stand_ins

EDGES = np.array([2**63 - 1, -(2**63), -1, 0, 1], np.int64)
MISSING = {
    "zeros": "zeros",
    "initial": "initial",
    "vector": [1.5, -2.0, 3.0],
    "shared": lodestar.SharedRows(7),
}


def check_equal(function, tables):
    """Checks that `function` returns the same bits by Lodestar's and plain ops."""
    want = function()
    # Loading a model fills the hash table.
    plain = PlainTables(
        {str(i): t for i, t in enumerate(tables)}, "sorted", None
    )
    with stand_ins(plain.functions()):
        got = function()
    for a, b in zip(
        tf.nest.flatten(want, expand_composites=True),
        tf.nest.flatten(got, expand_composites=True),
        strict=True,
    ):
        assert a.dtype == b.dtype and a.shape == b.shape
        np.testing.assert_array_equal(a.numpy(), b.numpy())


def trained(rng, **options):
    table = lodestar.EmbeddingVariable(3, **options)
    ids = np.concatenate([EDGES, rng.integers(0, 40, 50)])
    table.lookup(ids, training=True)
    table.insert_or_assign(ids, rng.normal(size=(len(ids), 3)))
    return table


def batch(rng, bags):
    lengths = rng.integers(0, 9, bags)
    values = rng.choice(np.concatenate([EDGES, np.arange(60)]), lengths.sum())
    ids = tf.RaggedTensor.from_row_lengths(values, lengths)
    weights = rng.normal(size=len(values)).astype(np.float32)
    return ids, ids.with_values(tf.constant(weights))


def lookups(table, ids, weights, padding_id):
    def run():
        dense = np.arange(-4, 44).reshape(4, 2, 6)
        results = [
            table.lookup(ids, padding_id=padding_id),
            table.lookup(dense, padding_id=padding_id),
            *table.find(dense),
        ]
        for combiner in ("sum", "mean", "sqrtn", "max", "first", "last"):
            for default_id in (None, 1, 999):
                results.append(
                    table.lookup(
                        ids,
                        combiner=combiner,
                        padding_id=padding_id,
                        default_id=default_id,
                    )
                )
        for combiner in ("sum", "mean", "sqrtn"):
            results.append(
                table.lookup(
                    ids,
                    combiner=combiner,
                    weights=weights,
                    padding_id=padding_id,
                )
            )
        return results

    return run


@pytest.mark.parametrize("missing", MISSING)
@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_every_lookup(missing, dtype, rng):
    table = trained(rng, dtype=dtype, default_row=MISSING[missing], seed=5)
    for bags, padding_id in ((9, None), (30, 0), (0, 0), (1, None)):
        ids, weights = batch(rng, bags)
        check_equal(lookups(table, ids, weights, padding_id), [table])


@pytest.mark.parametrize(
    "initializer",
    ["zeros", "ones", "uniform", "normal", "truncated_normal", 0.25],
)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_initial_values_of_missing_ids(initializer, dtype, rng):
    if not isinstance(initializer, str):
        initializer = keras.initializers.Constant(initializer)
    table = lodestar.EmbeddingVariable(
        17,
        embeddings_initializer=initializer,
        default_row="initial",
        dtype=dtype,
        seed=(-7, 3),
    )
    ids = np.concatenate([EDGES, rng.integers(-(2**62), 2**62, 3000)])
    check_equal(lambda: table.lookup(ids), [table])


def test_initial_values_are_those_of_a_restored_seed(rng, tmp_path):
    saved = lodestar.EmbeddingVariable(4, seed=(1, 1))
    saved.lookup([5], training=True)
    table = lodestar.EmbeddingVariable(4, seed=(2, 2), default_row="initial")
    before = table.lookup([9]).numpy()
    path = tf.train.Checkpoint(t=saved).write(str(tmp_path / "c"))
    tf.train.Checkpoint(t=table).restore(path)
    assert not np.array_equal(table.lookup([9]), before)
    check_equal(lambda: table.lookup([5, 9]), [table])


@pytest.mark.parametrize("rows", [0, 1])
def test_tables_of_zero_and_one_row(rows, rng):
    for missing in MISSING.values():
        table = lodestar.EmbeddingVariable(3, default_row=missing)
        table.lookup(np.full([rows], 2**63 - 1), training=True)
        ids, weights = batch(rng, 6)
        check_equal(lookups(table, ids, weights, None), [table])


def test_deep_ragged_and_sparse(rng):
    table = trained(rng)
    deep = tf.ragged.constant([[[1, 2], []], [], [[3], [4, 5, 777]]], tf.int64)
    sparse = tf.ragged.constant([[1], [], [2, 999]], tf.int64).to_sparse()
    check_equal(
        lambda: [
            table.lookup(deep),
            table.lookup(deep, combiner="mean"),
            table.lookup(sparse, combiner="sum"),
        ],
        [table],
    )


def test_layers_and_collections(rng):
    user = trained(rng, name="user")
    item = trained(rng, name="item", default_row=lodestar.SharedRows(3))
    embed = lodestar.layers.EmbeddingCollection(
        {
            "mean": lodestar.Feature(user, combiner="mean"),
            "cut": lodestar.Feature(user, "sum", max_length=2),
            "salted": lodestar.Feature(
                user, "last", salt="s", padding_id=0, default_id=1
            ),
            "rows": lodestar.Feature(item, None, salt="t", padding_id=3),
            "short": lodestar.Feature(item, None, max_length=1),
            "dense": lodestar.Feature(item, "sqrtn", max_length=3),
            "words": lodestar.Feature(user, "max"),
        }
    )
    ids, weights = batch(rng, 8)
    x = dict.fromkeys(("mean", "cut", "salted", "rows", "short"), ids)
    x["dense"] = rng.integers(0, 50, (8, 5))
    x["words"] = tf.constant([["a", "b"]] * 8)
    w = {"cut": weights, "dense": rng.normal(size=(8, 5)).astype(np.float32)}
    embed(x, weights=w, training=True)
    x["dense"] += 20
    check_equal(lambda: embed(x, weights=w), [user, item])
    layer = lodestar.layers.DynamicEmbedding(
        table=user, salt="x", padding_id=4, default_id=9, combiner="mean"
    )
    check_equal(lambda: layer(ids), [user])


def test_invalid_row_splits_are_refused(rng):
    table = trained(rng)
    bad = tf.RaggedTensor.from_row_splits(
        np.arange(3), np.array([0, 2, 1, 3]), validate=False
    )
    with (
        stand_ins(PlainTables({"t": table}, "sorted", None).functions()),
        pytest.raises(
            tf.errors.InvalidArgumentError, match="must ascend from 0"
        ),
    ):
        table.lookup(bad, combiner="sum")


def test_a_table_of_no_layer_is_refused(rng):
    table = trained(rng)
    with (
        stand_ins(PlainTables({}, "sorted", None).functions()),
        pytest.raises(ValueError, match="not an attribute of a layer"),
    ):
        table.lookup([1])


def test_hash_index_before_its_initializer_is_an_error():
    index = IdIndex(tf.constant([5, 7], tf.int64), "hash")
    with pytest.raises(tf.errors.FailedPreconditionError):
        index.find(tf.constant([5], tf.int64))
