"""Layers over tables that are partitioned over several devices."""

import copy

import keras
import numpy as np
import pytest
import tensorflow as tf

import lodestar

DEVICES = ["/CPU:0", "/CPU:1"]


def wrap(inner="adagrad"):
    return lodestar.optimizers.wrap(inner)


def collection(user_devices, item_devices):
    def own(name, dim, devices):
        return lodestar.EmbeddingVariable(
            dim, seed=(dim, 2), name=name, devices=devices
        )

    user, item = own("user", 3, user_devices), own("item", 2, item_devices)
    return lodestar.layers.EmbeddingCollection(
        {
            "viewer": lodestar.Feature(user, combiner=None, padding_id=0),
            "liked": lodestar.Feature(item, "mean", salt="a", max_length=2),
            "friends": lodestar.Feature(user, "sqrtn", default_id=5),
            "seen": lodestar.Feature(item, "max", salt="b", default_id=1),
        }
    )


def inputs(rng):
    def bags():
        lengths = rng.integers(0, 4, 6)
        values = tf.constant(rng.integers(0, 9, lengths.sum()), tf.int64)
        return tf.RaggedTensor.from_row_lengths(values, lengths)

    return {
        "viewer": tf.constant(rng.integers(0, 9, (6, 2)), tf.int64),
        "liked": bags(),
        "friends": bags(),
        "seen": tf.constant(rng.integers(0, 9, (6, 3)), tf.int64),
    }


@pytest.mark.parametrize("graph", [False, True])
@pytest.mark.parametrize(
    "user, item", [(DEVICES, DEVICES), (None, DEVICES), (DEVICES, None)]
)
def test_collections_are_the_same(user, item, graph, rng):
    embeds = [collection(None, None), collection(user, item)]
    batches = [inputs(rng) for _ in range(3)]
    results = []
    for embed in embeds:
        optimizer = wrap(keras.optimizers.Adam(0.1))
        optimizer.build(embed.trainable_variables)

        def step(batch, embed=embed, optimizer=optimizer):
            with tf.GradientTape() as tape:
                rows = embed(batch)
                loss = tf.add_n([tf.reduce_sum(x**2) for x in rows.values()])
            variables = embed.trainable_variables
            optimizer.apply(tape.gradient(loss, variables), variables)
            return rows

        if graph:
            step = tf.function(step, autograph=False)
        results.append([step(batch) for batch in batches])
        results[-1].append(embed(batches[0], training=False))
    for here, there in zip(*results, strict=True):
        for name in here:
            np.testing.assert_array_equal(here[name], there[name], name)
    for a, b in zip(*(embed.tables for embed in embeds), strict=True):
        np.testing.assert_array_equal(a.export().ids, b.export().ids)
        np.testing.assert_array_equal(a.export().rows, b.export().rows)
    counted = [embed.stats(reset=True) for embed in embeds]
    assert counted[0] == counted[1]
    assert list(counted[0]) == list(counted[1]) == list(batches[0])
    assert counted[0]["viewer"]["ids"] == 36
    assert embeds[1].stats()["viewer"]["ids"] == 0


def model_of(**options):
    ids = keras.Input((None,), dtype="int64", ragged=True)
    embed = lodestar.layers.DynamicEmbedding(
        4, combiner="mean", seed=(1, 1), name="embed", **options
    )
    return keras.Model(
        ids, keras.layers.Dense(1, kernel_initializer="ones")(embed(ids))
    )


def fit(model, rng):
    lengths = rng.integers(0, 4, 32)
    values = tf.constant(rng.integers(0, 50, lengths.sum()), tf.int64)
    x = tf.RaggedTensor.from_row_lengths(values, lengths)
    y = tf.constant(rng.normal(size=(32, 1)), tf.float32)
    model.fit(x, y, batch_size=8, epochs=2, shuffle=False, verbose=0)
    return x


def test_models_are_trained_saved_and_copied(tmp_path):
    models = []
    for options in ({}, {"devices": DEVICES}):
        model = model_of(**options)
        model.compile(wrap(), "mse")
        x = fit(model, np.random.default_rng(7))
        models.append(model)
    here, there = models
    np.testing.assert_array_equal(
        here.predict(x, verbose=0), there.predict(x, verbose=0)
    )
    there.save(tmp_path / "m.keras")
    there.save_weights(tmp_path / "m.weights.h5")
    loaded = keras.saving.load_model(tmp_path / "m.keras")
    assert loaded.get_layer("embed").table.devices == (
        there.get_layer("embed").table.devices
    )
    plain = model_of()
    plain.load_weights(tmp_path / "m.weights.h5")
    copied = copy.deepcopy(there.get_layer("embed"))
    assert copied.table is not there.get_layer("embed").table
    assert len(copied.table._parts) == 2
    wanted = there.predict(x, verbose=0)
    for model in (loaded, plain):
        np.testing.assert_array_equal(model.predict(x, verbose=0), wanted)
    fit(loaded, np.random.default_rng(8))
    fit(there, np.random.default_rng(8))
    np.testing.assert_array_equal(
        loaded.predict(x, verbose=0), there.predict(x, verbose=0)
    )
    assert set(lodestar.callbacks.table_stats.model_stats(there)) > {
        "table/embed/rows"
    }


def test_devices_belong_to_a_table():
    table = lodestar.EmbeddingVariable(2, devices=DEVICES)
    layer = lodestar.layers.DynamicEmbedding(table=table)
    assert layer.get_config()["table"]["config"]["devices"] is not None
    with pytest.raises(ValueError, match="`devices` cannot be combined with"):
        lodestar.layers.DynamicEmbedding(table=table, devices=DEVICES)
    with pytest.raises(ValueError, match="`devices` cannot be combined with"):
        lodestar.Feature(table, devices=DEVICES)
    embed = lodestar.layers.EmbeddingCollection(
        {"a": lodestar.Feature(output_dim=2, devices=DEVICES)}
    )
    assert len(embed.tables[0]._parts) == 2
    again = lodestar.layers.EmbeddingCollection.from_config(embed.get_config())
    assert len(again.tables[0]._parts) == 2


def test_a_table_that_the_step_leaves_out_is_noticed():
    table = lodestar.EmbeddingVariable(2, devices=DEVICES, name="lost")
    dense = tf.Variable([1.0, 1.0])
    optimizer = wrap("sgd")
    optimizer.build([dense])
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(table.lookup([1, 2], training=True) * dense)
    gradient = tape.gradient(loss, dense)
    with pytest.raises(RuntimeError, match="'lost'.*never gets its gradient"):
        optimizer.apply([gradient], [dense])


@pytest.mark.parametrize("combiner", ["max", None])
def test_exports_score_like_the_model(tmp_path, combiner):
    rng = np.random.default_rng(7)
    ids = tf.constant(rng.integers(0, 30, (20, 3)), tf.int64)
    layers = keras.Input([3], dtype="int64", name="ids")
    embed = lodestar.layers.DynamicEmbedding(
        4, combiner=combiner, devices=DEVICES, seed=(1, 2), name="embed"
    )
    model = keras.Model(
        layers, keras.layers.Dense(1)(keras.layers.Flatten()(embed(layers)))
    )
    model.compile(wrap(), "mse")
    model.fit(ids[:10], np.ones([10, 1]), verbose=0)
    wanted = model.predict(ids, verbose=0)
    lodestar.export.save(model, tmp_path / "ours", from_rows=True)
    lodestar.export.save_plain(model, tmp_path / "plain")
    for kind in ("ours", "plain"):
        loaded = tf.saved_model.load(tmp_path / kind)
        (found,) = loaded.signatures["serving_default"](ids=ids).values()
        np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-5)
    # Numbers of the table are sums over its parts.
    numbers = lodestar.serving.openmetrics(
        tf.saved_model.load(tmp_path / "ours")
    )
    assert f'rows{{table="embed"}} {int(embed.table.size())}' in numbers
