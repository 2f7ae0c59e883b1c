"""Saving of subclassed models and layers; tests/python/persistence has others."""

import copy

import keras
import numpy as np
import pytest
import tensorflow as tf

import lodestar

X = np.arange(96).reshape(32, 3) % 40
Y = np.ones((32, 1), np.float32)


class Subclassed(keras.Model):
    def __init__(self):
        super().__init__()
        table = lodestar.EmbeddingVariable(4, name="table")
        self.embed = lodestar.layers.EmbeddingCollection(
            {
                "a": lodestar.Feature(table, combiner="sum"),
                "b": lodestar.Feature(table, combiner="max", salt="b"),
            }
        )
        self.alone = lodestar.layers.DynamicEmbedding(2, combiner="mean")
        self.dense = keras.layers.Dense(1)

    def call(self, ids, training=None):
        rows = self.embed({"a": ids, "b": ids}, training=training)
        alone = self.alone(ids, training=training)
        return self.dense(tf.concat([*rows.values(), alone], 1))


def fitted(epochs):
    model = Subclassed()
    model.compile(lodestar.optimizers.Adam(), "mse")
    model.fit(X, Y, batch_size=8, epochs=epochs, shuffle=False, verbose=0)
    return model


@pytest.mark.parametrize("way", ["checkpoint", "weights"])
def test_a_subclassed_model_resumes_bitwise(way, tmp_path):
    first, second = fitted(2), fitted(1)
    if way == "checkpoint":
        path = tf.train.Checkpoint(model=first).save(str(tmp_path / "c"))
        tf.train.Checkpoint(model=second).restore(path).assert_consumed()
    else:
        first.save_weights(tmp_path / "m.weights.h5")
        second.load_weights(tmp_path / "m.weights.h5")
    for _ in range(2):
        tables = [[*m.embed.tables, m.alone.table] for m in (first, second)]
        for s, t in zip(*tables, strict=True):
            assert int(s.size()) > 0
            for name, want in s._export_all().items():
                np.testing.assert_array_equal(t._export_all()[name], want, name)
        np.testing.assert_array_equal(
            first.predict(X, verbose=0), second.predict(X, verbose=0)
        )
        for model in (first, second):
            model.fit(X, Y, batch_size=8, shuffle=False, verbose=0)


@keras.saving.register_keras_serializable(package="tests")
class Scaled(lodestar.layers.DynamicEmbedding):
    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.scale = self.add_weight(shape=(4,), initializer="ones")
        self.shift = self.add_weight(
            shape=(), initializer="zeros", trainable=False
        )

    def call(self, ids, training=None):
        rows = super().call(ids, training=training)
        return rows * self.scale + self.shift


@keras.saving.register_keras_serializable(package="tests")
class ScaledCollection(lodestar.layers.EmbeddingCollection):
    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.scale = self.add_weight(shape=(4,), initializer="ones")

    def call(self, inputs, weights=None, training=None):
        rows = super().call(inputs, weights=weights, training=training)
        return {name: row * self.scale for name, row in rows.items()}


def _with_own_weights(of_collection):
    ids = keras.Input((3,), dtype="int64", name="ids")
    if of_collection:
        feature = lodestar.Feature(output_dim=4, combiner=None)
        layer = ScaledCollection({"ids": feature}, name="rows")
        rows = layer({"ids": ids})["ids"]
    else:
        rows = Scaled(4, name="rows")(ids)
    return keras.Model(ids, keras.layers.Flatten()(rows))


@pytest.mark.parametrize("of_collection", [False, True])
def test_weights_of_a_subclass_are_saved_and_copied(of_collection, tmp_path):
    model = _with_own_weights(of_collection)
    model.compile(lodestar.optimizers.Adam(), loss="mse")
    model.fit(X, np.ones([32, 12], np.float32), epochs=2, verbose=0)
    layer = model.get_layer("rows")
    assert (layer.scale.numpy() != 1).all()
    if not of_collection:
        layer.shift.assign(0.5)
    want = model.predict(X, verbose=0)
    model.save(tmp_path / "m.keras")
    model.save_weights(tmp_path / "m.weights.h5")
    weights_into = _with_own_weights(of_collection)
    weights_into.load_weights(tmp_path / "m.weights.h5")
    for other in (
        keras.saving.load_model(tmp_path / "m.keras"),
        weights_into,
        copy.deepcopy(model),
    ):
        np.testing.assert_array_equal(other.predict(X, verbose=0), want)
    copied = copy.deepcopy(layer)
    assert type(copied) is type(layer)
    np.testing.assert_array_equal(copied.scale, layer.scale)


def test_own_weights_that_were_not_saved_or_differ():
    store = {}
    layer = Scaled(4)
    layer.save_own_variables(store)
    other = Scaled(4)
    del store["own_weight_1"]
    with pytest.raises(ValueError, match="must have shapes .*, got"):
        other.load_own_variables(store)
    del store["own_weight_0"]
    with pytest.raises(ValueError, match=r"got \[\] in the file"):
        other.load_own_variables(store)
