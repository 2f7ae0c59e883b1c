"""Pooling of fetched rows equals pooling with local tables."""

from typing import NamedTuple

import numpy as np
import pytest
import tensorflow as tf

import lodestar
from lodestar.embedding.lookup_arguments import ROW_DTYPES
from lodestar.layers.lookup_counters import LookupCounters
from lodestar.ops import embedding_collection_ops as collection_ops
from lodestar.ops import embedding_ops
from lodestar.ops import embedding_partition_ops as ops
from lodestar.ops.embedding_collection_ops import FeatureAttrs, FeatureInputs

WEIGHTED = embedding_ops.WEIGHTED_COMBINERS


def random_feature(rng, f, num_tables):
    maybe = lambda x: x if rng.integers(2) else None  # noqa: E731
    combiner = [None, *embedding_ops.COMBINERS][rng.integers(7)]
    return FeatureAttrs(
        name=f"f{f}",
        table=int(rng.integers(num_tables)),
        combiner=combiner,
        salt=maybe(int(rng.integers(-(2**62), 2**62))),
        padding_id=maybe(int(rng.integers(3))),
        default_id=maybe(int(rng.integers(30))),
        max_length=maybe(int(rng.integers(1, 4))) if combiner else None,
    )


def random_input(rng, feature):
    def drawn(shape):
        weights = None
        if feature.combiner in WEIGHTED and rng.integers(2):
            drawn = rng.integers(-2, 5, size=shape) / 2
            weights = tf.constant(drawn, tf.float32)
        return tf.constant(rng.integers(30, size=shape), tf.int64), weights

    if feature.combiner and rng.integers(2):
        lengths = rng.integers(5, size=rng.integers(6))
        splits = np.concatenate([[0], np.cumsum(lengths)])
        ids, weights = drawn([splits[-1]])
        return FeatureInputs(ids, tf.constant(splits, tf.int64), weights)
    shape = rng.integers(5, size=rng.integers(1, 4))
    ids, weights = drawn(shape)
    return FeatureInputs(ids, None, weights)


class Batch(NamedTuple):
    tables: list
    hooks: list
    features: list
    inputs: list


def random_batch(rng, dtypes, num_features):
    tables = [
        lodestar.EmbeddingVariable(
            dim, embeddings_initializer="uniform", dtype=dtype
        )
        for dim, dtype in zip((1, 5, 40), dtypes, strict=False)
    ]
    features = [
        random_feature(rng, f, len(tables)) for f in range(num_features)
    ]
    return Batch(
        tables,
        [tf.zeros([0, t.output_dim], t.dtype) for t in tables],
        features,
        [random_input(rng, f) for f in features],
    )


def lookup(batch, missing="initial", insert=False, counters=None):
    return collection_ops.collection_lookup(
        [t.resource_handle for t in batch.tables],
        batch.hooks,
        [tf.zeros([0], t.dtype) for t in batch.tables],
        [missing] * len(batch.tables),
        batch.features,
        batch.inputs,
        insert=insert,
        count=insert,
        counters=counters.resource_handle if counters else None,
    )


def fetch(batch, t, ids, missing="initial"):
    table = batch.tables[t]
    rows, _ = embedding_ops.find(
        table.resource_handle,
        tf.zeros([0, table.output_dim], table.dtype),
        ids,
        tf.zeros([0], table.dtype),
        missing=missing,
    )
    return rows


def default_rows(batch):
    rows = []
    for f in batch.features:
        if f.default_id is not None:
            id_ = f.default_id
            if f.salt is not None:
                id_ = lodestar.ops.id_hash.mix64(id_ ^ f.salt)
            rows.append(fetch(batch, f.table, tf.constant([id_], tf.int64))[0])
    return rows


class Fetched(NamedTuple):
    rows: list
    unique_ids: list
    positions: list
    default_rows: list


def fetched(batch):
    unique_ids, positions = ops.unique_features(
        batch.features, batch.inputs, len(batch.tables)
    )
    rows = [fetch(batch, t, ids) for t, ids in enumerate(unique_ids)]
    return Fetched(rows, unique_ids, positions, default_rows(batch))


def pool(batch, far):
    return ops.pool_features(
        batch.hooks,
        far.rows,
        far.unique_ids,
        far.positions,
        batch.features,
        batch.inputs,
        far.default_rows,
    )


def same(got, want):
    assert len(got) == len(want)
    for x, y in zip(got, want, strict=True):
        assert (x is None) == (y is None)
        if isinstance(y, tf.IndexedSlices):
            same([x.values, x.indices], [y.values, y.indices])
            assert x.dense_shape.numpy().tolist() == [-1, y.values.shape[1]]
        elif y is not None:
            assert (x.dtype, x.shape) == (y.dtype, y.shape)
            assert x.numpy().tobytes() == y.numpy().tobytes()


def loose(structure):
    """Returns specs of tensors of which only the rank is known."""
    return tf.nest.map_structure(
        lambda x: tf.TensorSpec([None] * x.shape.rank, x.dtype), structure
    )


def in_graph(function, batch, far):
    """Returns `function`, traced for tensors of unknown dimensions."""
    flat = tf.nest.flatten(list(batch.inputs))
    given = [x for x in flat if x is not None]

    @tf.function(input_signature=[loose(given), loose(list(far))])
    def traced(given, far):
        left = iter(given)
        flat_inputs = [None if x is None else next(left) for x in flat]
        inputs = tf.nest.pack_sequence_as(list(batch.inputs), flat_inputs)
        return function(batch._replace(inputs=inputs), Fetched(*far))

    return traced(given, list(far))


MIXES = [*([dtype] * 3 for dtype in ROW_DTYPES), ROW_DTYPES[:3]]


@pytest.mark.parametrize("graph", [False, True])
@pytest.mark.parametrize("dtypes", MIXES, ids=str)
def test_pooled_rows_are_those_of_a_lookup(graph, dtypes, rng):
    for num_features in (1, 2, 7, 12) if graph else (1, 2, 3, 7, 12, 12, 12):
        batch = random_batch(rng, dtypes, num_features)
        for insert in (False, True):
            want = lookup(batch, insert=insert)
            far = fetched(batch)
            run = in_graph if graph else lambda f, *args: f(*args)
            same(run(pool, batch, far), want)


def insert(batch, unique_ids, positions, **options):
    """Returns rows, and whether they exist, from a table on the other side."""
    return [
        embedding_ops.find_or_insert_unique(
            table.resource_handle,
            ids,
            tf.zeros([0], table.dtype),
            occurrences=ops.occurrences(ids, places),
            **options,
        )
        for table, ids, places in zip(
            batch.tables, unique_ids, positions, strict=True
        )
    ]


@pytest.mark.parametrize(
    "dtypes, graph",
    [(MIXES[0], True), (MIXES[1], False), (MIXES[2], False)],
    ids=str,
)
def test_rows_are_made_and_counted_as_by_a_lookup(graph, dtypes, rng):
    batch = random_batch(rng, dtypes, 9)
    near = [
        lodestar.EmbeddingVariable(
            t.output_dim,
            dtype=t.dtype,
            embeddings_initializer="uniform",
            admission=lodestar.MinCount(4, unit="occurrence"),
        )
        for t in batch.tables
    ]
    far = [lodestar.EmbeddingVariable.from_config(t.get_config()) for t in near]
    near_counts, far_counts = LookupCounters(9), LookupCounters(9)

    @tf.function
    def step(inputs):
        unique_ids, positions = ops.unique_features(batch.features, inputs, 3)
        there = batch._replace(tables=far)
        made = insert(there, unique_ids, positions, missing="initial")
        rows, resident = zip(*made, strict=True)
        ops.count_features(
            far_counts.resource_handle,
            positions,
            resident,
            batch.features,
            inputs,
        )
        return Fetched(list(rows), unique_ids, positions, [])

    for _ in range(8):
        features = [f._replace(default_id=None) for f in batch.features]
        inputs = [random_input(rng, f) for f in features]
        batch = batch._replace(features=features, inputs=inputs)
        want = lookup(
            batch._replace(tables=near), insert=True, counters=near_counts
        )
        got = (step if graph else step.python_function)(inputs)
        same(pool(batch, got), want)
    assert near_counts.read() == far_counts.read()
    assert sum(int(t.size()) for t in near) > 0
    for one, other in zip(near, far, strict=True):
        a, b = one._export_all(), other._export_all()
        for key in a:
            np.testing.assert_array_equal(a[key], b[key], key)
        a, b = one.stats(), other.stats()
        assert {k: a[k] for k in ("hits", "misses", "unique_ids")} == {
            k: b[k] for k in ("hits", "misses", "unique_ids")
        }


def test_distinct_ids_are_found_without_occurrences():
    t = lodestar.EmbeddingVariable(2, embeddings_initializer="ones")
    ids = tf.constant([5, 6], tf.int64)
    arguments = t.resource_handle, ids, tf.constant([3.0, 4.0])
    with tf.GradientTape() as tape:
        tape.watch(arguments[2])
        rows, resident = embedding_ops.find_or_insert_unique(
            *arguments, insert=False, missing="vector"
        )
    assert tape.gradient(rows, arguments[2]) is None
    assert rows.numpy().tolist() == [[3, 4], [3, 4]]
    assert resident.numpy().tolist() == [False, False]
    rows, resident = embedding_ops.find_or_insert_unique(*arguments)
    assert rows.numpy().tolist() == [[1, 1], [1, 1]]
    assert resident.numpy().tolist() == [False, False]
    _, resident = embedding_ops.find_or_insert_unique(*arguments, admit=False)
    assert resident.numpy().tolist() == [True, True]
    rows, resident = embedding_ops.find_or_insert_unique(
        t.resource_handle, ids[:0], arguments[2]
    )
    assert rows.shape == (0, 2)
    assert resident.shape == 0


def gradients(rows_of, batch, far):
    weights = [x.weights for x in batch.inputs if x.weights is not None]
    with tf.GradientTape() as tape:
        tape.watch([batch.hooks, weights])
        rows = rows_of(batch, far)
        loss = tf.add_n(
            [
                tf.reduce_sum(
                    tf.cast(x, tf.float64)
                    * tf.reshape(numbers(tf.size(x)), tf.shape(x))
                )
                for x in rows
            ]
        )
    return tape.gradient(loss, [*batch.hooks, *weights])


def numbers(count):
    return tf.cast(tf.range(count) % 7 - 3, tf.float64)


@pytest.mark.parametrize("graph", [False, True])
@pytest.mark.parametrize("dtypes", MIXES, ids=str)
def test_gradients_are_those_of_a_lookup(graph, dtypes, rng):
    for num_features in (1, 6) if graph else (1, 2, 3, 7, 12, 12):
        batch = random_batch(rng, dtypes, num_features)
        lookup(batch, insert=True)
        far = fetched(batch)
        want = gradients(lambda b, _: lookup(b), batch, far)
        run = in_graph if graph else lambda f, *args: f(*args)
        got = run(lambda *args: gradients(pool, *args), batch, far)
        # Tables that no feature reads have no gradient in either case.
        same(got, want)
