"""Columns with names that TensorFlow accepts for neither resources nor scopes."""

import keras
import numpy as np
import pytest
import tensorflow as tf

import lodestar
from lodestar import layers, snapshot
from lodestar.data import Column, Schema

NAMES = ["_id", "a/b", "é ü", "$x"]
IDS = tf.ragged.constant([[1, 2], [3], []], tf.int64)


def layers_of_columns(inputs):
    feature = lodestar.Feature(output_dim=2, combiner="sum")
    embed = layers.EmbeddingCollection(dict.fromkeys(NAMES, feature))
    lookup = layers.IdLookup([1, 2, 3], name="_id_lookup", output_mode="count")
    return [*embed(inputs).values(), lookup(inputs["_id"])]


def named_layers(inputs):
    feature = lodestar.Feature(output_dim=2, combiner="sum")
    embed = layers.EmbeddingCollection({"_id": feature}, name="_all")
    layer = layers.DynamicEmbedding(2, combiner="sum", name="_id_rows")
    rows = [embed(inputs)["_id"], layer(inputs["_id"])]
    for name in NAMES:
        # A layer cannot have the same name as an input.
        table = lodestar.EmbeddingVariable(2, name=name)
        of_table = layers.DynamicEmbedding(table=table, combiner="sum")
        rows.append(of_table(inputs[name]))
    return rows


def model_of(front):
    schema = Schema([Column.label("y"), *map(Column.sparse, NAMES)])
    inputs = schema.inputs()
    rows = keras.layers.Concatenate()(front(inputs))
    model = keras.Model(inputs, keras.layers.Dense(1, name="top")(rows))
    model.compile(
        lodestar.optimizers.Adagrad(0.1),
        "mse",
    )
    return model


@pytest.mark.parametrize("front", [layers_of_columns, named_layers])
def test_columns_from_fit_to_serving(front, tmp_path):
    model = model_of(front)
    features = dict.fromkeys(NAMES, IDS)
    model.fit(features, np.ones([3, 1]), verbose=0)
    wanted = model.predict(features, verbose=0)

    model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    assert np.array_equal(loaded.predict(features, verbose=0), wanted)

    for export in (
        lodestar.export.save,
        lodestar.export.save_plain,
    ):
        path = str(tmp_path / export.__name__)
        export(model, path)
        checked = lodestar.export.verify(model, path, features)
        assert checked.signatures == ("serve", "serving_default")
        # As TensorFlow Serving loads it.
        with tf.Graph().as_default(), tf.compat.v1.Session() as session:
            tf.compat.v1.saved_model.load(session, ["serve"], path)

    snapshot.save(model, str(tmp_path / "snapshots"))
    checkpoint = tf.train.Checkpoint(model=model).write(str(tmp_path / "ckpt"))
    for restore in (
        lambda m: snapshot.restore(m, str(tmp_path / "snapshots")),
        lambda m: tf.train.Checkpoint(model=m).read(checkpoint),
    ):
        restored = model_of(front)
        restore(restored)
        assert np.array_equal(restored.predict(features, verbose=0), wanted)


@pytest.mark.parametrize(
    "layer",
    [
        lambda: layers.DynamicEmbedding(2, combiner="sum", name="_id"),
        lambda: layers.IdLookup([1, 2], name="_id"),
    ],
)
def test_layer_at_the_root_of_a_graph(layer):
    layer = layer()
    ids = tf.constant([[1, 2]], tf.int64)
    traced = tf.function(lambda x: layer(x))(ids)
    assert np.array_equal(traced, layer(ids))
