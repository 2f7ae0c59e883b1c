"""Tests of EmbeddingCollection: equal to its features one by one, but fused."""

import collections

import keras
import numpy as np
import pytest
import tensorflow as tf

import lodestar

Collection = lodestar.layers.EmbeddingCollection
Feature = lodestar.Feature


def ragged(bags, dtype=tf.int64):
    return tf.ragged.constant(bags, dtype)


def tables():
    return (
        lodestar.EmbeddingVariable(2, name="two"),
        lodestar.EmbeddingVariable(3, name="three"),
    )


def features(two, three):
    return {
        "a": Feature(two),
        "b": Feature(two, salt="b"),
        "c": Feature(two, combiner="sum"),
        "d": Feature(three, combiner="max", default_id=2),
        "e": Feature(three, combiner=None),
        "f": Feature(three, combiner=None, padding_id=0),
        "g": Feature(three, combiner=None),
        "h": Feature(two, padding_id=0),
        "i": Feature(two),
    }


def inputs():
    return {
        "a": ragged([[1, 2], [], [5]]),
        "b": ragged([[1], [1, 1], []]),
        "c": np.array([[1, 2], [3, 4], [5, 6]]),
        "d": ragged([[9, 8], [], [2]]).to_sparse(),
        "e": ragged([[4], [], [6, 7]]),
        "f": np.array([[0, 3], [3, 0], [0, 0]]),
        "g": np.array([1, 2, 3]),
        "h": np.array([[0, 3], [3, 0], [0, 0]]),
        "i": ragged([[[1], [2, 3]], [], [[]]]),
        "not a feature": np.ones(3, np.float32),
    }


def one_by_one(specs, x, training, weights=()):
    weights = dict(weights)
    return {
        name: lodestar.layers.DynamicEmbedding(
            table=f.table,
            combiner=f.combiner,
            salt=f.salt,
            padding_id=f.padding_id,
            default_id=f.default_id,
        )(x[name], weights=weights.get(name), training=training)
        for name, f in specs.items()
    }


def assert_equal(got, want):
    assert list(got) == list(want)
    for name in got:
        assert type(got[name]) is type(want[name]), name
        a, b = got[name], want[name]
        if isinstance(a, tf.RaggedTensor):
            for s, t in zip(
                a.nested_row_splits, b.nested_row_splits, strict=True
            ):
                np.testing.assert_array_equal(s, t)
            a, b = a.flat_values, b.flat_values
        np.testing.assert_array_equal(a, b, name)


@pytest.mark.parametrize("graph", [False, True])
def test_equals_one_layer_a_feature(graph):
    specs, others = features(*tables()), features(*tables())
    layer = Collection(specs)
    call = tf.function(layer) if graph else layer
    for training in (True, False):
        got = call(inputs(), training=training)
        assert_equal(got, one_by_one(others, inputs(), training))
    for ours, theirs in zip(layer.tables, tables(), strict=True):
        assert int(ours.size()) > 0 and ours.name == theirs.name


def test_one_op_forward_and_one_back_for_all_tables():
    two, three = tables()
    specs = {f"f{i}": Feature(two, salt=str(i)) for i in range(26)}
    specs |= features(two, three)
    layer = Collection(specs)
    x = inputs() | {f"f{i}": ragged([[1, 2], [3]]) for i in range(26)}

    @tf.function
    def step(x):
        with tf.GradientTape() as tape:
            rows = layer(x, training=True)
            loss = tf.add_n(
                [
                    tf.reduce_sum(getattr(r, "flat_values", r))
                    for r in rows.values()
                ]
            )
        return tape.gradient(loss, layer.trainable_variables)

    ops = collections.Counter(
        op.type.removeprefix("Lodestar>")
        for op in step.get_concrete_function(x).graph.get_operations()
        if op.type.startswith("Lodestar>")
    )
    assert ops == {
        "EmbeddingCollectionLookup": 1,
        "EmbeddingCollectionGradient": 1,
    }
    slices = step(x)
    assert [g.values.shape[1] for g in slices] == [2, 3]


def test_gradients_equal_one_layer_a_feature():
    weights = {"a": ragged([[1.0, 3.0], [], [2.0]], tf.float32)}
    slices = []
    for collected in (True, False):
        two, three = tables()
        specs = features(two, three)
        layer = Collection(specs)
        with tf.GradientTape() as tape:
            rows = (
                layer(inputs(), weights=weights, training=True)
                if collected
                else one_by_one(specs, inputs(), True, weights)
            )
            loss = tf.add_n(
                [
                    tf.reduce_sum(
                        tf.sin(getattr(r, "flat_values", r) * (3.0 + i))
                    )
                    for i, r in enumerate(rows.values())
                ]
            )
        gradients = tape.gradient(loss, [two.hook, three.hook])
        slices.append(
            [lodestar.optimizers.merge_duplicates(g) for g in gradients]
        )
    for a, b in zip(*slices, strict=True):
        order, other = np.argsort(a.indices), np.argsort(b.indices)
        np.testing.assert_array_equal(
            a.indices.numpy()[order], b.indices.numpy()[other]
        )
        np.testing.assert_allclose(
            a.values.numpy()[order], b.values.numpy()[other], 1e-5, 1e-6
        )


@pytest.mark.parametrize("kind", ["ragged", "sparse", "dense"])
def test_max_length(kind):
    two, _ = tables()
    bags = ragged([[1, 2, 3], [4, 5, 6]])
    x = {
        "ragged": bags,
        "sparse": bags.to_sparse(),
        "dense": bags.to_tensor(),
    }[kind]
    layer = Collection({"x": Feature(two, combiner="sum", max_length=2)})
    got = layer({"x": x}, training=True)["x"]
    assert two.export().ids.numpy().tolist() == [1, 2, 4, 5]
    rows = two.lookup([[1, 2], [4, 5]], combiner="sum")
    np.testing.assert_array_equal(got, rows)
    if kind != "sparse":
        layer = Collection({"x": Feature(two, combiner=None, max_length=2)})
        got = layer({"x": x})["x"]
        assert got.shape[:1] == (2,)
        flat = got.flat_values if kind == "ragged" else got
        np.testing.assert_array_equal(
            tf.reshape(flat, [-1, 2]), two.lookup([1, 2, 4, 5])
        )


@pytest.mark.parametrize("eager", [False, True])
def test_functional_model(eager):
    specs = features(*tables())
    layer = Collection(specs)
    options = {
        "c": {"shape": (2,)},
        "d": {"shape": (None,), "sparse": True},
        "f": {"shape": (2,)},
        "g": {"shape": ()},
        "h": {"shape": (2,)},
        "i": {"shape": (None, None), "ragged": True},
    }
    symbols = {
        name: keras.Input(
            **options.get(name, {"shape": (None,), "ragged": True}),
            dtype="int64",
            name=name,
        )
        for name in specs
    }
    rows = layer(symbols)
    assert rows["a"].shape == (None, 2) and not rows["a"].ragged
    assert rows["d"].shape == (None, 3)
    assert rows["e"].ragged and rows["e"].shape == (None, None, 3)
    assert rows["f"].shape == (None, 2, 3)
    assert rows["g"].shape == (None, 3)
    assert rows["i"].ragged and rows["i"].shape == (None, None, 2)
    joined = keras.layers.Concatenate()([rows[n] for n in "abcdgh"])
    model = keras.Model(symbols, keras.layers.Dense(1)(joined))
    model.compile(
        lodestar.optimizers.DynamicEmbeddingOptimizer("adagrad"),
        "mse",
        run_eagerly=eager,
    )
    x = {name: inputs()[name] for name in specs}
    data = tf.data.Dataset.from_tensors((x, np.ones((3, 1))))
    model.fit(data.repeat(2), verbose=0)
    assert int(layer.tables[0].step) == 2
    assert model.predict(data, verbose=0).shape == (3, 1)
    again = keras.saving.deserialize_keras_object(
        keras.saving.serialize_keras_object(layer)
    )
    assert again.get_config()["features"] == layer.get_config()["features"]
    assert len(again.tables) == 2


def test_empty_batch():
    two, _ = tables()
    layer = Collection({"x": Feature(two), "y": Feature(two)})
    empty = tf.RaggedTensor.from_row_splits(tf.zeros([0], tf.int64), [0])
    got = layer({"x": empty, "y": empty}, training=True)
    assert got["x"].shape == (0, 2) and int(two.size()) == 0


def test_frozen_collection_adds_nothing():
    two, _ = tables()
    layer = Collection({"x": Feature(two)}, trainable=False)
    layer({"x": ragged([[1]])}, training=True)
    assert int(two.size()) == 0 and layer.trainable_variables == []


def test_errors():
    two, _ = tables()
    layer = Collection({"x": Feature(two, combiner="max"), "y": Feature(two)})
    x = {"x": ragged([[1]]), "y": ragged([[1]])}
    w = ragged([[1.0]], tf.float32)
    with pytest.raises(ValueError, match=r"no ids for the features \['y'\]"):
        layer({"x": x["x"]})
    with pytest.raises(ValueError, match="`weights` names 'z'"):
        layer(x, weights={"z": w})
    with pytest.raises(ValueError, match="given for 'x' with combiner='max'"):
        layer(x, weights={"x": w})
    with pytest.raises(ValueError, match="`features` is empty"):
        Collection({})
    with pytest.raises(ValueError, match=r"`features\['x'\]` is a str"):
        Collection({"x": "mean"})
    with pytest.raises(ValueError, match=r"`inputs\['x'\]` has dtype float32"):
        layer({"x": keras.Input((3,)), "y": keras.Input((3,), dtype="int64")})
    with pytest.raises(ValueError, match="the ids of 'x' are sparse"):
        Collection({"x": Feature(two, combiner=None)})(
            {"x": x["x"].to_sparse()}
        )
    with pytest.raises(ValueError, match="`table` is a int"):
        Feature(3)
    with pytest.raises(ValueError, match="`max_length`=0"):
        Feature(two, max_length=0)
    with pytest.raises(ValueError, match="`combiner`='avg'"):
        Feature(two, combiner="avg")
    with pytest.raises(ValueError, match="`default_id`=1 needs a combiner"):
        Feature(two, combiner=None, default_id=1)
