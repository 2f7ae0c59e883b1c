"""Tests that nothing adds rows to a frozen table."""

import copy

import keras
import numpy as np
import pytest
import tensorflow as tf

import lodestar
from lodestar import Feature
from lodestar.layers import DynamicEmbedding, EmbeddingCollection

X = np.arange(16).reshape(8, 2)
Y = np.ones((8, 1), np.float32)
IDS = tf.constant([[1, 2]], tf.int64)


def compiled(model, eager=True):
    model.compile(lodestar.optimizers.Adagrad(0.1), "mse", run_eagerly=eager)
    return model


def alone(**options):
    """Returns a compiled model with a table, and the table."""
    ids = keras.Input((2,), dtype="int64", name="ids")
    layer = DynamicEmbedding(4, combiner="sum", name="rows", **options)
    model = keras.Model(ids, keras.layers.Dense(1)(layer(ids)))
    return compiled(model), layer.table


def two_layers():
    ids = keras.Input((2,), dtype="int64")
    table = lodestar.EmbeddingVariable(4, name="shared")
    one = DynamicEmbedding(table=table, combiner="sum", name="rows")(ids)
    two = DynamicEmbedding(table=table, combiner="max", salt="two")(ids)
    both = keras.layers.Concatenate()([one, two])
    return compiled(keras.Model(ids, keras.layers.Dense(1)(both))), table


def collection(**options):
    """Returns a model with a collection of two tables, and one of the tables."""
    ids = keras.Input((2,), dtype="int64")
    layer = EmbeddingCollection(
        {
            "a": Feature(output_dim=4, combiner="sum"),
            "b": Feature(output_dim=4, combiner="mean"),
            "c": Feature(output_dim=4, combiner="max"),
        },
        name="all",
        **options,
    )
    rows = layer(dict.fromkeys("abc", ids))
    both = keras.layers.Concatenate()([*rows.values()])
    model = compiled(keras.Model(ids, keras.layers.Dense(1)(both)))
    return model, layer.features["b"].table


MODELS = {
    "alone": alone,
    "two layers": two_layers,
    "collection": collection,
    "on devices": lambda: alone(devices=["CPU:0", "CPU:0"]),
    "collection on devices": lambda: collection(devices=["CPU:0"]),
}


def fit(model):
    model.fit(X, Y, batch_size=4, verbose=0)


def dataset():
    return tf.data.Dataset.from_tensor_slices((X, Y)).batch(4)


def fit_by_threads(model):
    lodestar.train.fit(model, [dataset(), dataset()], threads=2, verbose=0)


def custom_loop(model):
    @tf.function
    def step(ids, labels):
        with tf.GradientTape() as tape:
            outputs = model(ids, training=True)
            loss = tf.reduce_mean((outputs - labels) ** 2)
        variables = model.trainable_variables
        model.optimizer.apply(tape.gradient(loss, variables), variables)

    step(X, Y)


DOORS = {
    "fit": fit,
    "eager fit": fit,
    "train_on_batch": lambda model: model.train_on_batch(X, Y),
    "lodestar.train.fit": lambda model: lodestar.train.fit(
        model, dataset(), verbose=0
    ),
    "threads": fit_by_threads,
    "custom loop": custom_loop,
    "call": lambda model: model(X, training=True),
}


@pytest.mark.parametrize("door", DOORS)
def test_no_door_adds_rows(door):
    model, table = alone()
    compiled(model, eager=door == "eager fit")
    table.trainable = False
    before = model.predict(X, verbose=0)
    dense = model.layers[-1].kernel.numpy()
    DOORS[door](model)
    assert int(table.size()) == 0
    assert (model.layers[-1].kernel.numpy() == dense).all()  # zeros were read
    bias = model.layers[-1].bias.numpy()
    np.testing.assert_allclose(model.predict(X, verbose=0), before + bias)


@pytest.mark.parametrize("name", MODELS)
def test_only_other_tables_train(name):
    model, table = MODELS[name]()
    table.insert_or_assign([1, 100], np.ones((2, 4)))
    table.trainable = False
    fit(model)
    rows = table.export()
    assert rows.ids.numpy().tolist() == [1, 100]
    assert (rows.rows.numpy() == 1).all() and not rows.frequencies.numpy().any()
    others = {id(v): v for v in model.trainable_variables}.values()
    for other in others:
        if isinstance(other, lodestar.EmbeddingVariable):
            assert other is not table and int(other.size()) == X.size
    table.trainable = True
    compiled(model)
    fit(model)
    assert int(table.size()) > 2


@pytest.mark.parametrize(
    "name, way",
    [
        *[("two layers", "clone"), ("two layers", "config")],
        *[("alone", "file"), ("collection", "file"), ("collection", "copy")],
    ],
)
def test_copies_of_a_model_are_frozen_alike(name, way, tmp_path):
    model, table = MODELS[name]()
    fit(model)
    table.trainable = False
    trained = [v.path for v in model.trainable_variables]
    if way == "file":
        model.save(tmp_path / "model.keras")
        again = keras.models.load_model(tmp_path / "model.keras")
    else:
        copies = {
            "clone": keras.models.clone_model,
            "copy": copy.deepcopy,
            "config": lambda m: keras.Model.from_config(m.get_config()),
        }
        with lodestar.layers.clone_scope():
            again = copies[way](model)
    assert [v.path for v in again.trainable_variables] == trained
    (frozen,) = {
        id(v): v
        for v in again.variables
        if isinstance(v, lodestar.EmbeddingVariable) and not v.trainable
    }.values()
    before = int(frozen.size())
    compiled(again).fit(X + 1000, Y, verbose=0)
    assert int(frozen.size()) == before
    frozen.trainable = True
    compiled(again).fit(X + 1000, Y, verbose=0)
    assert int(frozen.size()) > before


@pytest.mark.parametrize("owned", [True, False])
def test_a_frozen_layer_of_a_table_that_trains(owned):
    table = None if owned else lodestar.EmbeddingVariable(4, name="shared")
    options = {"output_dim": 4} if owned else {"table": table}
    layer = DynamicEmbedding(trainable=False, **options)
    assert not layer.table.trainable
    layer.table.trainable = True
    for again in (
        DynamicEmbedding.from_config(layer.get_config()),
        copy.deepcopy(layer),
    ):
        assert not again.trainable and again.table.trainable
        again(IDS, training=True)
        assert int(again.table.size()) == 0
    both = EmbeddingCollection({"a": 4, "b": 4}, trainable=False)
    both.tables[1].trainable = True
    for again in (
        EmbeddingCollection.from_config(both.get_config()),
        copy.deepcopy(both),
    ):
        assert not again.trainable
        assert [table.trainable for table in again.tables] == [False, True]


def test_the_config_of_a_table_keeps_it():
    table = lodestar.EmbeddingVariable(4, devices=["CPU:0", "CPU:0"])
    table.trainable = False
    again = type(table).from_config(table.get_config())
    assert not again.trainable and len(again._parts) == 2


def test_a_layer_made_with_a_frozen_table_sets_it():
    table = lodestar.EmbeddingVariable(4)
    table.trainable = False
    layer = DynamicEmbedding(table=table)
    assert layer.trainable and not table.trainable
    layer.trainable = False
    layer.trainable = True
    assert table.trainable


@pytest.mark.parametrize("training", [None, True])
def test_a_lookup_in_training(training):
    table = lodestar.EmbeddingVariable(4)
    table.trainable = False
    with tf.GradientTape():
        table.lookup(IDS, training=training)
        table.lookup(IDS, training=training, admit=True)
    assert int(table.size()) == 0 and table.stats()["pending"] == 0


def test_a_frozen_model_of_layers_that_are_not():
    layer = DynamicEmbedding(4, combiner="sum")
    model = keras.Sequential(
        [keras.Input((2,), dtype="int64"), layer, keras.layers.Dense(1)],
        trainable=False,
    )
    assert layer.trainable
    with pytest.warns(UserWarning, match="trainable weights"):
        compiled(model).fit(X, Y, verbose=0)
    assert int(layer.table.size()) == 0


def test_statistics_of_a_collection_are_of_the_lookups_that_train():
    layer = EmbeddingCollection({"a": 4, "b": 4})
    layer.tables[0].trainable = False
    ids = {"a": IDS, "b": IDS}
    layer(ids, training=True)
    layer.tables[0].trainable = True
    layer(ids, training=True)
    stats = layer.stats(reset=True)
    assert [stats[name]["ids"] for name in "ab"] == [2, 4]
    assert [stats[name]["hits"] for name in "ab"] == [0, 2]
    assert not any(stats["ids"] for stats in layer.stats().values())


def test_waiting_gradients_of_a_frozen_table_wait():
    layer = DynamicEmbedding(4, combiner="sum")
    model = keras.Sequential(
        [keras.Input((2,), dtype="int64"), layer, keras.layers.Dense(1)]
    )
    optimizer = lodestar.optimizers.SGD(0.1, gradient_accumulation_steps=2)
    model.compile(optimizer, "mse")
    model.train_on_batch(X, Y)
    before = layer.table.export().rows.numpy()
    layer.table.trainable = False
    model.compile(optimizer, "mse")
    model.train_on_batch(X, Y)
    np.testing.assert_array_equal(layer.table.export().rows.numpy(), before)
    layer.table.trainable = True
    model.compile(optimizer, "mse")
    model.train_on_batch(X, Y)
    model.train_on_batch(X, Y)
    assert (layer.table.export().rows.numpy() != before).any()
