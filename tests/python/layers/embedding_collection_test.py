"""Tests of EmbeddingCollection: equal to separate features, but fused."""

import collections

import keras
import numpy as np
import pytest
import tensorflow as tf

import lodestar
from lodestar.optimizers.gradients import merge_duplicates

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
        "a": Feature(two, combiner="mean"),
        "b": Feature(two, combiner="mean", salt="b"),
        "c": Feature(two, combiner="sum"),
        "d": Feature(three, combiner="max", default_id=2),
        "e": Feature(three, combiner=None),
        "f": Feature(three, combiner=None, padding_id=0),
        "g": Feature(three, combiner=None),
        "h": Feature(two, combiner="mean", padding_id=0),
        "i": Feature(two, combiner="mean"),
        "j": Feature(two, combiner="sum", salt="j", default_id=7),
        "k": Feature(two, combiner="sum"),
    }


def inputs(batch=3):
    x = {
        "a": ragged([[1, 2], [], [5]]),
        "b": ragged([[1], [1, 1], []]),
        "c": np.array([[1, 2], [3, 4], [5, 6]]),
        "d": ragged([[9, 8], [], [2]]),
        "e": ragged([[4], [], [6, 7]]),
        "f": np.array([[0, 3], [3, 0], [0, 0]]),
        "g": np.array([1, 2, 3]),
        "h": np.array([[0, 3], [3, 0], [0, 0]]),
        "i": ragged([[[1], [2, 3]], [], [[]]]),
        "j": tf.RaggedTensor.from_row_splits(
            tf.constant([[1, 2], [3, 3]], tf.int64), [0, 1, 1, 2]
        ),
        "k": np.arange(6).reshape(3, 2, 1),
        "not a feature": np.ones(3, np.float32),
    }
    x = {name: value[:batch] for name, value in x.items()}
    return {**x, "d": x["d"].to_sparse()}


def unknown(name, x):
    """Returns the type of `x` without known sizes, for one input without a rank."""
    x = (
        x
        if isinstance(x, tf.RaggedTensor | tf.SparseTensor)
        else tf.constant(x)
    )
    shape = [None] * x.shape.rank
    if isinstance(x, tf.RaggedTensor):
        shape = [None] * (x.ragged_rank + 1) + x.shape[x.ragged_rank + 1 :]
        return tf.RaggedTensorSpec(shape, x.dtype, x.ragged_rank)
    if isinstance(x, tf.SparseTensor):
        return tf.SparseTensorSpec(shape, x.dtype)
    return tf.TensorSpec(None if name == "c" else shape, x.dtype)


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
    signature = [{name: unknown(name, x) for name, x in inputs().items()}]
    for training in (True, False):

        def call(x, training=training):
            return layer(x, training=training)

        if graph:
            call = tf.function(call, input_signature=signature)
        for batch in (3, 1, 0):
            x = inputs(batch)
            want = one_by_one(others, x, training)
            assert_equal(dict(sorted(call(x).items())), want)
    for ours, theirs in zip(layer.tables, tables(), strict=True):
        assert int(ours.size()) > 0 and ours.name == theirs.name


def test_one_op_forward_and_one_back_for_all_tables():
    two, three = tables()
    specs = {
        f"f{i}": Feature(two, combiner="mean", salt=str(i)) for i in range(26)
    }
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
        gradients = tape.gradient(loss, [two, three])
        slices.append([merge_duplicates(g) for g in gradients])
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


def test_max_length_never_cuts_the_batch():
    two, _ = tables()
    feature = Feature(two, combiner=None, max_length=2, padding_id=0)
    layer = Collection({"x": feature})
    x = np.array([1, 2, 0, 4])
    rows = layer({"x": x}, training=True)["x"]
    assert rows.shape == (4, 2) and int(two.size()) == 3
    np.testing.assert_array_equal(rows._keras_mask, x != 0)
    symbol = keras.Input((), dtype="int64")
    model = keras.Model(symbol, layer({"x": symbol})["x"])
    assert model.output_shape == (None, 2)
    np.testing.assert_array_equal(model(x), rows)
    with pytest.raises(ValueError, match="Feature 'x': .* of known rank"):
        tf.function(layer).get_concrete_function(
            {"x": tf.TensorSpec(None, tf.int64)}
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
        "j": {"shape": (None, 2), "ragged": True},
        "k": {"shape": (2, 1)},
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
        lodestar.optimizers.Adagrad(),
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


def test_masks_of_features_with_padding():
    two, _ = tables()
    layer = Collection(
        {
            "pooled": Feature(two, combiner="mean", padding_id=0),
            "rows": Feature(two, combiner=None, padding_id=0, max_length=2),
            "none": Feature(two, combiner=None),
        }
    )
    x = np.array([[5, 0, 6], [0, 7, 0]])
    rows = layer(dict.fromkeys(("pooled", "rows", "none"), x))
    assert rows["rows"].shape == (2, 2, 2)
    np.testing.assert_array_equal(rows["rows"]._keras_mask, x[:, :2] != 0)
    assert not hasattr(rows["none"], "_keras_mask")
    symbol = keras.Input((3,), dtype="int64")
    rows = layer(dict.fromkeys(("pooled", "rows", "none"), symbol))
    assert rows["rows"].shape == (None, 2, 2)
    pooled = keras.layers.GlobalAveragePooling1D()(rows["rows"])
    got = keras.Model(symbol, pooled)(x, training=True)
    np.testing.assert_allclose(got, two.lookup([5, 7]), 1e-6)


def test_stats_of_features():
    two, _ = tables()
    layer = Collection(
        {
            "a": Feature(two, combiner="mean", padding_id=0, max_length=3),
            "b": Feature(two, combiner=None),
        }
    )
    x = {"a": ragged([[0, 1, 1, 9], [2]]), "b": np.array([1, 5, 5])}
    layer(x, training=False)
    zeros = dict.fromkeys(layer.stats()["a"], 0)
    assert layer.stats() == {"a": zeros, "b": zeros}
    layer(x, training=True)
    a = {
        "ids": 4,
        "padding": 1,
        "unique": 2,
        "hits": 0,
        "misses": 3,
        "unique_ratio": 2 / 3,
        "padding_share": 0.25,
    }
    assert layer.stats()["a"] == a
    assert layer.stats()["b"]["unique"] == 2
    tf.function(layer)(x, training=True)
    assert layer.stats(reset=True)["a"] == {
        **a,
        "ids": 8,
        "padding": 2,
        "unique": 4,
        "hits": 3,
    }
    assert layer.stats()["a"] == zeros


def test_an_id_occurs_once_per_step():
    two, _ = tables()
    layer = Collection(
        {"a": Feature(two, combiner="mean"), "b": Feature(two, combiner=None)}
    )
    x = {"a": ragged([[1, 1], [1]]), "b": np.array([1, 2])}
    for _ in range(2):
        layer(x, training=True)
    two.lookup([2, 3], training=True)
    assert two.frequency([1, 2, 3]).numpy().tolist() == [1, 1, 1]
    two.set_step(1)
    layer(x, training=True)
    assert two.frequency([1, 2, 3]).numpy().tolist() == [2, 2, 1]


def test_admission_and_cap():
    strict = lodestar.EmbeddingVariable(
        2, admission=lodestar.MinCount(2), name="strict"
    )
    capped = lodestar.EmbeddingVariable(
        3, default_row="initial", eviction=lodestar.MaxRows(2), name="capped"
    )
    layer = Collection(
        {
            "a": Feature(strict, combiner="mean"),
            "b": Feature(strict, combiner=None),
            "c": Feature(capped, combiner=None),
        }
    )
    x = {"a": ragged([[1, 2]]), "b": np.array([1, 1]), "c": np.array([5, 6, 7])}
    rows = layer(x, training=True)
    assert int(strict.size()) == 0 and not rows["b"].numpy().any()
    # The id that found no room reads the default row and gets no row.
    assert int(capped.size()) == 2 and rows["c"].numpy().all()
    strict.set_step(1)
    rows = layer({**x, "a": ragged([[1]])}, training=True)
    assert strict.export().ids.numpy().tolist() == [1]
    assert rows["b"].numpy().all()
    assert layer.stats()["b"]["hits"] == 0
    assert capped.stats()["refused"] > 0


def test_shared_rows_for_ids_that_wait():
    table = lodestar.EmbeddingVariable(
        2,
        default_row=lodestar.SharedRows(1),
        admission=lodestar.MinCount(9),
        embeddings_initializer="ones",
        name="waits",
    )
    ids = keras.Input((2,), dtype="int64")
    layer = Collection(
        {
            "a": Feature(table, combiner="sum"),
            "b": Feature(table, combiner="mean", salt="b"),
        }
    )
    rows = layer({"a": ids, "b": ids})
    model = keras.Model(ids, keras.layers.Add()([rows["a"], rows["b"]]))
    model.compile(
        lodestar.optimizers.SGD(0.1),
        "mse",
    )
    x = np.array([[1, 2]])
    before = model.predict(x, verbose=0)  # sum of two and mean of two
    model.fit(x, before - 1, verbose=0)
    # d loss / d output is 1: for two ids of the sum, and half for two of the
    # mean.
    assert int(table.size()) == 0
    want = before - 3 * 0.1 * 3
    np.testing.assert_allclose(model.predict(x, verbose=0), want, 1e-5)


def test_ids_are_salted_in_the_op_as_by_plain_ops():
    two, _ = tables()
    feature = Feature(two, salt="s", combiner=None)
    ids = np.array([0, 1, -1, 2**63 - 1, -(2**63)])
    Collection({"x": feature})({"x": ids}, training=True)
    want = sorted(feature.table_ids(ids).numpy().tolist())
    assert two.export().ids.numpy().tolist() == want


def test_a_table_shared_with_another_layer_and_collection():
    two, _ = tables()
    ids = keras.Input((2,), dtype="int64")
    one = Collection({"x": Feature(two, combiner="sum")})
    other = Collection({"y": Feature(two, combiner="max")})
    alone = lodestar.layers.DynamicEmbedding(table=two, combiner="mean")
    rows = [one({"x": ids})["x"], other({"y": ids})["y"], alone(ids)]
    model = keras.Model(ids, keras.layers.Add()(rows))
    assert len(model.trainable_variables) == 1
    model.compile(
        lodestar.optimizers.SGD(1.0),
        "mse",
    )
    two.insert_or_assign([1, 2], [[1.0, 1.0], [3.0, 3.0]])
    model.fit(np.array([[1, 2]]), np.array([[8.0, 8.0]]), verbose=0)
    # y = 4 + 3 + 2 = 9, d loss / d y = 1: sum and mean reach both ids, max id
    # 2.
    np.testing.assert_allclose(
        two.lookup([1, 2]), [[-0.5, -0.5], [0.5, 0.5]], 1e-6
    )
    assert two.frequency([1, 2]).numpy().tolist() == [1, 1]


def test_keras_file_keeps_features_and_tables(tmp_path):
    two, three = tables()
    specs = {
        "a": Feature(
            two,
            combiner="mean",
            salt="a",
            padding_id=-1,
            default_id=3,
            max_length=4,
        ),
        "b": Feature(two, combiner="max"),
        "c": Feature(three, combiner="sum"),
    }
    ids = keras.Input((3,), dtype="int64", name="ids")
    rows = Collection(specs, name="embed")(dict.fromkeys(specs, ids))
    out = keras.layers.Dense(1)(keras.layers.Concatenate()([*rows.values()]))
    model = keras.Model(ids, out)
    model.compile(lodestar.optimizers.Adam(), "mse")
    x = np.array([[1, 2, -1], [4, 4, 4]])
    model.fit(x, np.ones((2, 1)), verbose=0)
    model.save(tmp_path / "m.keras")
    again = keras.models.load_model(tmp_path / "m.keras")
    layer = again.get_layer("embed")
    assert len(layer.tables) == 2
    assert layer.features["a"].table is layer.features["b"].table
    assert (
        layer.get_config()["features"]
        == model.get_layer("embed").get_config()["features"]
    )
    np.testing.assert_array_equal(
        again.predict(x, verbose=0), model.predict(x, verbose=0)
    )


def test_errors():
    two, _ = tables()
    layer = Collection(
        {"x": Feature(two, combiner="max"), "y": Feature(two, combiner="mean")}
    )
    x = {"x": ragged([[1]]), "y": ragged([[1]])}
    w = ragged([[1.0]], tf.float32)
    with pytest.raises(ValueError, match=r"no ids for the features \['y'\]"):
        layer({"x": x["x"]})
    named = Collection({"user": 2})
    with pytest.raises(ValueError, match=r"'users'\]\. Did you mean 'user'\?"):
        named({"users": x["x"]})
    layer({**x, "other": x["x"]})  # columns of other layers
    with pytest.raises(ValueError, match="unknown feature 'z'"):
        layer(x, weights={"z": w})
    with pytest.raises(ValueError, match="combiner of feature 'x' .*'max'"):
        layer(x, weights={"x": w})
    with pytest.raises(ValueError, match="`features` must not be empty"):
        Collection({})
    with pytest.raises(ValueError, match="`features` must be a dict .* list"):
        Collection([Feature(two, combiner="mean")])
    with pytest.raises(ValueError, match="must be strings, got 1, a int"):
        Collection({1: Feature(two, combiner="mean")})
    with pytest.raises(ValueError, match="`inputs` must be a dict .*Tensor"):
        layer(np.ones((1, 1), int))
    with pytest.raises(ValueError, match="`weights` must be a dict .*Tensor"):
        layer(x, weights=np.ones((1, 1)))
    with pytest.raises(ValueError, match=r"`features\['x'\]` must be .* a str"):
        Collection({"x": "mean"})
    with pytest.raises(
        ValueError, match=r"`inputs\['x'\]` is an input of dtype float32"
    ):
        layer({"x": keras.Input((3,)), "y": keras.Input((3,), dtype="int64")})
    with pytest.raises(ValueError, match="The ids of feature 'x' are sparse"):
        Collection({"x": Feature(two, combiner=None)})(
            {"x": x["x"].to_sparse()}
        )
    sums = Collection({"x": Feature(two, combiner="sum")})
    with pytest.raises(
        ValueError, match="Feature 'x': `weights` must have the"
    ):
        sums({"x": x["x"]}, weights={"x": np.ones((1, 1), np.float32)})
    with pytest.raises(
        ValueError, match="Feature 'x': `weights` must have the"
    ):
        sums({"x": np.ones((1, 2), int)}, weights={"x": np.ones((2, 1))})
    with pytest.raises(ValueError, match=r"`inputs\['x'\]` has dtype float64"):
        sums({"x": np.ones((1, 2))})
    batch = (
        r"`inputs\['x'\]` has shape \(2,\), and combiner='sum' pools the last"
    )
    with pytest.raises(ValueError, match=batch):
        sums({"x": np.array([1, 2])})
    with pytest.raises(ValueError, match=batch):
        tf.function(sums)({"x": tf.constant(["a", "b"])})
    with pytest.raises(ValueError, match=batch.replace("2", "None")):
        sums({"x": keras.Input((), dtype="int64")})
    with pytest.raises(ValueError, match="`table` must be .* a float"):
        Feature(3.0, combiner="mean")
    for length in (0, 2.5, True, "a"):
        with pytest.raises(
            ValueError, match=f"`max_length` must be .* got {length!r}"
        ):
            Feature(two, combiner="mean", max_length=length)
    with pytest.raises(
        ValueError, match="`salt` must be a string or None, got 5"
    ):
        Feature(two, combiner="mean", salt=5)
    with pytest.raises(ValueError, match="`combiner`='avg'"):
        Feature(two, combiner="avg")
    with pytest.raises(ValueError, match="`default_id`=1, .* needs a"):
        Feature(two, combiner=None, default_id=1)


def test_errors_known_only_when_the_op_runs():
    two, _ = tables()
    layer = Collection(
        {"x": Feature(two, combiner="sum"), "y": Feature(two, combiner="mean")}
    )
    good = ragged([[1], [2]])

    def lookup(x, weights=None):
        weights = {} if weights is None else {"x": weights}
        return layer({"x": x, "y": good}, weights, training=True)

    for call in (lookup, tf.function(lookup)):
        for splits, message in (
            ([1, 2], r"`row_splits\[0\]` must be 0, got 1"),
            (
                [0, 2, 1, 2],
                r"`row_splits\[1\]` is 2 and `row_splits\[2\]` is 1",
            ),
            ([0, 3], "must end at 2, the number of ids"),
        ):
            bad = tf.RaggedTensor.from_row_splits(
                tf.constant([1, 2], tf.int64), splits, validate=False
            )
            with pytest.raises(
                tf.errors.InvalidArgumentError,
                match=f"feature 'x': .*{message}",
            ):
                call(bad)
    ids = tf.TensorSpec([None, None], tf.int64)
    weights = tf.TensorSpec([None, None], tf.float32)
    call = tf.function(lookup, input_signature=[ids, weights])
    with pytest.raises(
        tf.errors.InvalidArgumentError,
        match=r"feature 'x': `weights` has shape \[2,1\], but `ids` has shape",
    ):
        call(tf.ones([1, 2], tf.int64), tf.ones([2, 1]))
    call = tf.function(lookup, input_signature=[tf.TensorSpec(None, tf.int64)])
    with pytest.raises(
        tf.errors.InvalidArgumentError, match="feature 'x': `ids` is a scalar"
    ):
        call(tf.constant(1, tf.int64))
    # A call that fails has no effect.
    assert int(two.size()) == 0
    assert layer.stats()["y"]["ids"] == 0
