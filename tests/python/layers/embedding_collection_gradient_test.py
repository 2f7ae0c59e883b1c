"""Tests of the collection's registered gradient: tapes, graphs, SavedModels."""

import numpy as np
import pytest
import tensorflow as tf

import lodestar
from lodestar.optimizers.gradients import merge_duplicates

Feature = lodestar.Feature
COMBINERS = ("sum", "mean", "sqrtn")


def ragged(bags, dtype=tf.int64):
    return tf.ragged.constant(bags, dtype)


def table(dim=3, name="gradient"):
    return lodestar.EmbeddingVariable(dim, default_row="initial", name=name)


def collection(**features):
    return lodestar.layers.EmbeddingCollection(features)


def by_id(slices):
    """Returns {id: row} of an IndexedSlices, which has unique ids."""
    ids = slices.indices.numpy().tolist()
    assert len(set(ids)) == len(ids)
    return dict(zip(ids, slices.values.numpy(), strict=True))


def assert_same(got, want):
    assert got.keys() == want.keys()
    for i in want:
        np.testing.assert_allclose(got[i], want[i], 1e-5, 1e-6)


def laid_out(kind, bags, weights):
    bags = ragged(bags)
    weights = ragged(weights, tf.float32)
    if kind == "sparse":
        return bags.to_sparse(), weights.to_sparse()
    return bags, weights


BAGS = [[1, 2, 1], [], [5, 9], [0, 3]]
WEIGHTS = [[1.0, -2.0, 0.5], [], [1.5, -1.5], [3.0, 0.5]]


@pytest.mark.parametrize(
    "training, graph", [(False, True), (True, False), (True, True)]
)
@pytest.mark.parametrize(
    "kind, combiner",
    [
        *[("ragged", combiner) for combiner in COMBINERS],
        *[("sparse", "mean"), ("dense", "sum"), ("dense", "sqrtn")],
    ],
)
def test_gradients_of_rows_and_weights(combiner, kind, training, graph):
    t = table()
    layer = collection(
        x=Feature(t, combiner=combiner, padding_id=9),
        y=Feature(t, combiner=combiner, salt="y"),
    )
    if kind == "dense":
        ids = tf.constant([[1, 2, 1], [9, 9, 9], [5, 9, 3]], tf.int64)
        weights = tf.constant([[1.0, -2, 0.5], [1, 1, 1], [1.5, 1, 3]])
    else:
        ids, weights = laid_out(kind, BAGS, WEIGHTS)
    flat = weights if kind == "dense" else weights.values
    salted = lodestar.Feature(t, combiner="mean", salt="y").table_ids(ids)

    def together(flat):
        w = flat if kind == "dense" else weights.with_values(flat)
        rows = layer({"x": ids, "y": ids}, {"x": w}, training=training)
        return rows["x"], rows["y"]

    def one_by_one(flat):
        w = flat if kind == "dense" else weights.with_values(flat)
        options = {"combiner": combiner, "training": training}
        return (
            t.lookup(ids, weights=w, padding_id=9, **options),
            t.lookup(salted, **options),
        )

    def gradients(lookup):
        def run():
            with tf.GradientTape() as tape:
                tape.watch(flat)
                x, y = lookup(flat)
                loss = tf.reduce_sum(tf.sin(x * 3)) + tf.reduce_sum(y**2)
            return tape.gradient(loss, [t, flat])

        return (tf.function(run) if graph else run)()

    slices, got = gradients(together)
    both, want = gradients(one_by_one)
    assert_same(by_id(slices), by_id(merge_duplicates(both)))
    np.testing.assert_allclose(got, want, 1e-4, 1e-5)
    assert slices.dense_shape.dtype == tf.int32


def test_ids_beyond_max_length_have_no_gradient():
    t = table()
    layer = collection(x=Feature(t, combiner="sum", max_length=2))
    ids, weights = laid_out("ragged", [[1, 2, 3], [4]], [[1.0, 1, 1], [2.0]])
    with tf.GradientTape() as tape:
        tape.watch(weights.values)
        rows = layer({"x": ids}, {"x": weights}, training=True)["x"]
    slices, got = tape.gradient(rows, [t, weights.values])
    assert_same(
        by_id(slices), {1: np.ones(3), 2: np.ones(3), 4: np.full(3, 2.0)}
    )
    want = tf.reduce_sum(t.lookup([1, 2, 3, 4]), 1).numpy() * [1, 1, 0, 1]
    np.testing.assert_allclose(got, want, 1e-5)


def test_a_feature_twice_in_a_bag_sums_in_one_row():
    t = table()
    layer = collection(
        a=Feature(t, combiner="sum"), b=Feature(t, combiner=None)
    )
    with tf.GradientTape() as tape:
        rows = layer(
            {"a": ragged([[7, 7], [8]]), "b": np.array([8, 7, 7])},
            training=True,
        )
        loss = tf.reduce_sum(rows["a"]) + 10 * tf.reduce_sum(rows["b"])
    got = by_id(tape.gradient(loss, t))
    assert_same(got, {7: np.full(3, 22.0), 8: np.full(3, 11.0)})


@pytest.fixture
def simple():
    """Returns a layer of two tables, their hooks, a loss and its gradients by id."""
    t, u = table(name="t"), table(2, name="u")
    layer = collection(
        a=Feature(t, combiner="max"),
        b=Feature(u, combiner="mean"),
        c=Feature(t, combiner=None),
    )
    x = {"a": ragged(BAGS), "b": ragged(BAGS), "c": np.array([[1, 77]])}
    layer(x, training=True)

    def loss():
        rows = layer(x, training=True)
        return tf.add_n([tf.reduce_sum(tf.sin(r)) for r in rows.values()])

    with tf.GradientTape() as tape:
        value = loss()
    hooks = [t, u]
    want = [by_id(g) for g in tape.gradient(value, hooks)]
    return layer, hooks, loss, want


def assert_all_same(gradients, want):
    for got, wanted in zip(gradients, want, strict=True):
        assert_same(by_id(got), wanted)


@pytest.mark.parametrize("tape_inside", [False, True])
def test_nested_functions(simple, tape_inside):
    _, hooks, loss, want = simple
    inner = tf.function(loss)

    def gradients():
        with tf.GradientTape() as tape:
            value = tf.function(lambda: 2 * inner())() / 2
        return tape.gradient(value, hooks)

    run = tf.function(gradients) if tape_inside else gradients
    assert_all_same(run(), want)


@pytest.mark.parametrize("taken", [False, True])
def test_cond(simple, taken):
    _, hooks, loss, want = simple

    @tf.function
    def gradients(flag):
        with tf.GradientTape() as tape:
            value = tf.cond(flag, loss, lambda: 0.0)
        return tape.gradient(value, hooks)

    got = gradients(tf.constant(taken))
    assert_all_same(got, want if taken else [{}, {}])


def test_loaded_saved_model_is_differentiable(tmp_path, simple):
    layer, hooks, loss, want = simple

    @tf.function(input_signature=[])
    def step():
        with tf.GradientTape() as tape:
            value = loss()
        slices = tape.gradient(value, hooks)
        return [(g.indices, g.values) for g in slices]

    module = tf.Module()
    module.layer = layer
    module.step = step
    module.loss = tf.function(loss, input_signature=[])
    tf.saved_model.save(module, str(tmp_path / "m"))
    loaded = tf.saved_model.load(str(tmp_path / "m"))
    for (ids, values), wanted in zip(loaded.step(), want, strict=True):
        got = dict(zip(ids.numpy().tolist(), values.numpy(), strict=True))
        assert_same(got, wanted)
    with tf.GradientTape() as tape:
        value = loaded.loss()
    hooks = [loaded.layer._table_0.hook, loaded.layer._table_1.hook]
    assert_all_same(tape.gradient(value, hooks), want)


def test_weights_gradient_is_not_computed_unless_wanted():
    t = table()
    layer = collection(x=Feature(t, combiner="mean"))
    x, w = ragged([[1]]), ragged([[2.0]], tf.float32)

    @tf.function
    def step():
        with tf.GradientTape() as tape:
            rows = layer({"x": x}, {"x": w}, training=True)["x"]
        return tape.gradient(rows, t).values

    ops = {
        op.type for op in step.get_concrete_function().graph.get_operations()
    }
    assert "Lodestar>EmbeddingCollectionGradient" in ops
    assert "Lodestar>EmbeddingFindForGradient" not in ops
