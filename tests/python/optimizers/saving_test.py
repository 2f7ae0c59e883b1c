"""Tests that training after loading continues as if uninterrupted."""

import warnings

import keras
import numpy as np
import pytest
import tensorflow as tf
from own_optimizers import Own

import lodestar

wrap = lodestar.optimizers.wrap
X = np.arange(24).reshape(8, 3) % 10
Y = np.sin(np.arange(8.0)).reshape(8, 1)


def make(inner, **layer_options):
    ids = keras.Input((3,), dtype="int64")
    layer = lodestar.layers.DynamicEmbedding(
        2, combiner="mean", name="embed", **layer_options
    )
    out = keras.layers.Dense(1, kernel_initializer="ones")(layer(ids))
    model = keras.Model(ids, out)
    model.compile(wrap(inner), "mse")
    return model


def fit(model, epochs=2):
    model.fit(X, Y, batch_size=4, epochs=epochs, shuffle=False, verbose=0)


def state(model):
    rows = model.get_layer("embed").table.export()
    arrays = [rows.ids, rows.rows, *rows.optimizer_slots.values()]
    dense = model.layers[-1].get_weights()
    return [np.array(a) for a in arrays + dense] + [
        v.numpy() for v in model.optimizer.variables
    ]


def assert_equal(a, b):
    for left, right in zip(state(a), state(b), strict=True):
        np.testing.assert_array_equal(left, right)


INNERS = {
    "adam": lambda: keras.optimizers.Adam(0.05),
    "nadam": lambda: keras.optimizers.Nadam(0.05),
    "rmsprop": lambda: keras.optimizers.RMSprop(
        0.05, momentum=0.5, centered=True
    ),
    "row_wise_adagrad": lambda: lodestar.optimizers.RowWiseAdagrad(0.05),
    "replayed": lambda: wrap(Own(0.05), nonfinite="skip"),
    "accumulation": lambda: keras.optimizers.Adagrad(
        0.05, gradient_accumulation_steps=3
    ),
}


@pytest.mark.parametrize("name", INNERS)
def test_keras_file_resumes_bit_for_bit(name, tmp_path):
    model = make(INNERS[name]())
    fit(model)
    model.save(tmp_path / "m.keras")
    loaded = keras.saving.load_model(tmp_path / "m.keras")
    assert type(loaded.optimizer) is type(model.optimizer)
    assert loaded.optimizer.get_config() == model.optimizer.get_config()
    assert_equal(model, loaded)
    fit(model)
    fit(loaded)
    assert_equal(model, loaded)


@pytest.mark.parametrize("name", ["nadam", "replayed", "accumulation"])
def test_checkpoint_resumes_bit_for_bit(name, tmp_path):
    model, other = make(INNERS[name]()), make(INNERS[name]())
    fit(model)
    fit(other, epochs=1)
    path = tf.train.Checkpoint(model=model).save(str(tmp_path / "c"))
    tf.train.Checkpoint(model=other).restore(path).assert_consumed()
    assert_equal(model, other)
    fit(model)
    fit(other)
    assert_equal(model, other)


def test_optimizer_of_a_layer_is_saved(tmp_path):
    own = keras.optimizers.Nadam(
        keras.optimizers.schedules.ExponentialDecay(0.1, 2, 0.5)
    )
    model = make(keras.optimizers.SGD(0.1), optimizer=own)
    fit(model)
    model.save(tmp_path / "m.keras")
    loaded = keras.saving.load_model(tmp_path / "m.keras")
    assert isinstance(loaded.get_layer("embed").optimizer, type(own))
    fit(model)
    fit(loaded)
    assert_equal(model, loaded)


def test_loss_scale_wrapper_in_a_keras_file(tmp_path):
    ids = keras.Input((3,), dtype="int64")
    layer = lodestar.layers.DynamicEmbedding(2, combiner="mean", name="embed")
    model = keras.Model(ids, keras.layers.Dense(1)(layer(ids)))
    model.compile(lodestar.optimizers.LossScaleOptimizer(wrap("nadam")), "mse")
    fit(model)
    model.save(tmp_path / "m.keras")
    loaded = keras.saving.load_model(tmp_path / "m.keras")
    assert_equal(model, loaded)
    fit(model)
    fit(loaded)
    assert_equal(model, loaded)


class TrainsItsOwnTable(keras.Model):
    """Trains a table that Keras does not track."""

    def __init__(self, held):
        super().__init__()
        self.dense = keras.layers.Dense(1)
        table = lodestar.EmbeddingVariable(2, name="mine")
        self.held = held
        if held:
            self.rows = table
        self.get_table = lambda: table

    def call(self, ids, training=False):
        rows = self.get_table().lookup(ids, combiner="sum", training=False)
        return self.dense(rows)

    def train_step(self, data):
        table = self.get_table()
        with tf.GradientTape() as tape:
            rows = table.lookup(data[0], combiner="sum", training=True)
            loss = tf.reduce_mean((self.dense(rows) - data[1]) ** 2)
        variables = [*self.dense.trainable_variables, table]
        self.optimizer.apply(tape.gradient(loss, variables), variables)
        return {"loss": loss}

    def get_config(self):
        return {"held": self.held}


@pytest.mark.parametrize("held", [False, True])
@pytest.mark.parametrize("name", ["m.keras", "m.weights.h5"])
def test_rows_that_no_layer_saves(held, name, tmp_path):
    model = TrainsItsOwnTable(held)
    model(X)
    model.compile(wrap(keras.optimizers.Adam(0.05)), "mse", run_eagerly=True)
    fit(model, epochs=1)
    save = model.save if name == "m.keras" else model.save_weights
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        save(tmp_path / name)
    lost = [str(w.message) for w in caught if "trains <" in str(w.message)]
    assert len(lost) == (0 if held else 1), lost
    for message in lost:
        assert "'mine'" in message and "are not in the file" in message
