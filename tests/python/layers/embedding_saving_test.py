"""Saving and resuming by checkpoints, .keras and weights, in fresh processes too.

A resumed model must continue bitwise like one that was not interrupted.
"""

import copy
import os

import keras
import numpy as np
import pytest
import tensorflow as tf

import lodestar

X = np.random.default_rng(5).integers(-(2**62), 2**62, (32, 3))
Y = np.random.default_rng(6).normal(size=(32, 1)).astype(np.float32)


def functional():
    ids = keras.Input((3,), dtype="int64", name="ids")
    rows = lodestar.layers.DynamicEmbedding(4, name="rows")(ids)
    table = lodestar.EmbeddingVariable(2, name="shared")
    one = lodestar.layers.DynamicEmbedding(table=table, combiner="sum")(ids)
    two = lodestar.layers.DynamicEmbedding(table=table, combiner="max")(ids)
    x = keras.layers.Concatenate()([keras.layers.Flatten()(rows), one, two])
    return keras.Model(ids, keras.layers.Dense(1)(x))


class Subclassed(keras.Model):
    def __init__(self):
        super().__init__()
        table = lodestar.EmbeddingVariable(2, name="t")
        self.embed = lodestar.layers.EmbeddingCollection(
            {
                "a": lodestar.Feature(table, combiner="sum"),
                "b": lodestar.Feature(table, combiner="mean", salt="b"),
                "c": lodestar.Feature(
                    lodestar.EmbeddingVariable(3, name="u"), combiner="max"
                ),
            }
        )
        self.dense = keras.layers.Dense(1)

    def call(self, ids, training=None):
        rows = self.embed(dict.fromkeys("abc", ids), training=training)
        return self.dense(tf.concat(list(rows.values()), 1))


def tables(model):
    found = []
    for child in tf.train.TrackableView(model).descendants():
        if isinstance(child, lodestar.EmbeddingVariable):
            found.append(child)
    return sorted(found, key=lambda t: (t.output_dim, t.name))


def compiled(model, optimizer="adam"):
    model.compile(lodestar.optimizers.wrap(optimizer), "mse")
    return model


def fit(model, epochs):
    model.fit(X, Y, batch_size=8, epochs=epochs, shuffle=False, verbose=0)
    return model


def assert_same_state(a, b):
    for s, t in zip(tables(a), tables(b), strict=True):
        for name, want in s._export_all().items():
            np.testing.assert_array_equal(t._export_all()[name], want, name)
        assert int(s.size()) > 0
    np.testing.assert_array_equal(
        a.predict(X, verbose=0), b.predict(X, verbose=0)
    )


def assert_resumes(a, b):
    assert_same_state(a, b)
    assert int(a.optimizer.iterations) == int(b.optimizer.iterations)
    assert_same_state(fit(a, 1), fit(b, 1))


@pytest.mark.parametrize(
    "make, optimizer",
    [
        (functional, "adam"),
        (functional, "ftrl"),
        (Subclassed, "adagrad"),
        (Subclassed, "sgd"),
    ],
)
def test_checkpoint_resumes_bitwise(make, optimizer, tmp_path):
    a = fit(compiled(make(), optimizer), 2)
    path = tf.train.Checkpoint(model=a, optimizer=a.optimizer).save(
        str(tmp_path / "c")
    )
    b = fit(compiled(make(), optimizer), 1)
    tf.train.Checkpoint(model=b, optimizer=b.optimizer).restore(
        path
    ).assert_consumed()
    assert_resumes(a, b)


@pytest.mark.parametrize("optimizer", ["adam", "adagrad"])
def test_keras_file_resumes_bitwise(optimizer, tmp_path):
    a = fit(compiled(functional(), optimizer), 2)
    path = str(tmp_path / "m.keras")
    a.save(path)
    b = keras.saving.load_model(path)
    one, two = (
        layer
        for layer in b.layers
        if getattr(layer, "combiner", None) in ("sum", "max")
    )
    assert one.table is two.table
    assert_resumes(a, b)
    c = keras.saving.load_model(path)
    assert not {id(t) for t in tables(b)} & {id(t) for t in tables(c)}


@pytest.mark.parametrize("make", [functional, Subclassed])
def test_weights_file(make, tmp_path):
    a = fit(compiled(make()), 2)
    path = str(tmp_path / "m.weights.h5")
    a.save_weights(path)
    b = fit(compiled(make()), 1)
    b.load_weights(path)
    assert_same_state(a, b)


def test_layer_optimizer_in_a_keras_file(tmp_path):
    ids = keras.Input((3,), dtype="int64")
    layer = lodestar.layers.DynamicEmbedding(
        1, combiner="sum", optimizer=keras.optimizers.Adagrad(0.5)
    )
    a = fit(compiled(keras.Model(ids, layer(ids))), 2)
    path = str(tmp_path / "m.keras")
    a.save(path)
    b = keras.saving.load_model(path)
    assert_resumes(a, b)
    assert tables(b)[0].export().optimizer == "adagrad"


def test_model_checkpoint_and_backup_callbacks(tmp_path):
    a = compiled(functional())
    a.fit(
        X,
        Y,
        epochs=2,
        verbose=0,
        shuffle=False,
        callbacks=[
            keras.callbacks.ModelCheckpoint(str(tmp_path / "m.keras")),
            keras.callbacks.BackupAndRestore(str(tmp_path / "backup")),
        ],
    )
    assert_same_state(a, keras.saving.load_model(str(tmp_path / "m.keras")))


def test_clone_has_tables_of_its_own():
    a = functional()
    with lodestar.layers.clone_scope():
        b = keras.models.clone_model(a)
    assert len(tables(b)) >= 2
    assert not {id(t) for t in tables(a)} & {id(t) for t in tables(b)}


_CHILD = """
import sys
import numpy as np, tensorflow as tf, keras, lodestar
sys.path.insert(0, {here!r})
from embedding_saving_test import *
kind, path, out = sys.argv[1:]
if kind == "keras":
    model = keras.saving.load_model(path)
else:
    make = functional if kind == "functional" else Subclassed
    model = compiled(make())
    model.build((None, 3)) if kind == "functional" else model(X[:1])
    model.optimizer.build(model.trainable_variables)
    tf.train.Checkpoint(model=model, optimizer=model.optimizer).restore(
        path).assert_consumed()
fit(model, 1)
np.save(out, model.predict(X, verbose=0))
"""


@pytest.mark.parametrize("kind", ["keras", "subclassed"])
def test_fresh_process_resumes_bitwise(kind, tmp_path, fresh_process):
    make = Subclassed if kind == "subclassed" else functional
    model = fit(compiled(make()), 2)
    if kind == "keras":
        path = str(tmp_path / "m.keras")
        model.save(path)
    else:
        path = tf.train.Checkpoint(model=model, optimizer=model.optimizer).save(
            str(tmp_path / "c")
        )
    out = str(tmp_path / "out.npy")
    here = os.path.dirname(os.path.abspath(__file__))
    fresh_process.run(_CHILD.format(here=here), kind, path, out)
    want = fit(model, 1).predict(X, verbose=0)
    np.testing.assert_array_equal(np.load(out), want)


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
    with pytest.warns(UserWarning, match="so its 2 other weights"):
        other.load_own_variables(store)
