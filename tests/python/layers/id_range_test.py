"""Tests of `ids=(low, high)` of features and layers."""

import keras
import numpy as np
import pytest
import tensorflow as tf

import lodestar
from lodestar.layers import DynamicEmbedding, EmbeddingCollection

MESSAGE = r"(?s)The ids of feature `item` must be in \[10, 20\), got"


def collection(**options):
    return EmbeddingCollection(
        {
            "user": 2,
            "item": lodestar.Feature(
                output_dim=2, **{"ids": (10, 20), "combiner": "sum", **options}
            ),
        }
    )


def fails(call, message=MESSAGE):
    with pytest.raises(tf.errors.InvalidArgumentError, match=message):
        call()


def inputs(item):
    return {"user": tf.constant([1], tf.int64), "item": item}


LAYOUTS = {
    "dense": lambda ids: tf.constant([ids], tf.int64),
    "ragged": lambda ids: tf.ragged.constant([ids], dtype=tf.int64),
    "sparse": lambda ids: tf.sparse.from_dense(tf.constant([ids], tf.int64)),
    "int32": lambda ids: tf.constant([ids], tf.int32),
}


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize(
    "graph, training", [(False, True), (True, False), (True, True)]
)
def test_a_collection(layout, graph, training):
    layer = collection()
    as_ids = LAYOUTS[layout]

    def call(item):
        return layer(inputs(item), training=training)["item"]

    if graph:
        call = tf.function(call)
    call(as_ids([10, 19]))
    size = [int(t.size()) for t in layer.tables]
    for wrong in (9, 20, -(2**31), 2**31 - 1):
        fails(
            lambda wrong=wrong: call(as_ids([10, wrong, 19])),
            f"{MESSAGE}.*{wrong}",
        )
    assert [int(t.size()) for t in layer.tables] == size


def test_a_layer():
    layer = DynamicEmbedding(2, ids=(-3, 5), name="items")
    assert layer(tf.constant([-3, 4], tf.int64)).shape == [2, 2]
    assert layer(tf.zeros([0], tf.int64)).shape == [0, 2]
    for wrong in (-4, 5, 2**63 - 1, -(2**63)):
        fails(
            lambda wrong=wrong: layer(
                tf.constant([1, wrong, 99], tf.int64), training=True
            ),
            rf"(?s)The ids of layer `items` must be in \[-3, 5\), got.*{wrong}",
        )
    assert int(layer.table.size()) == 0


def test_the_whole_range_of_int64():
    layer = DynamicEmbedding(2, ids=(-(2**63), 2**63))
    layer(tf.constant([-(2**63), 2**63 - 1], tf.int64))
    layer = DynamicEmbedding(2, ids=(0, 2**63))
    layer(tf.constant([2**63 - 1], tf.int64))
    fails(lambda: layer(tf.constant([-1], tf.int64)), "(?s)got.*-1")


def test_padding_is_no_error():
    layer = collection(padding_id=-1, salt="s")
    layer(inputs(tf.constant([[10, -1]], tf.int64)))
    fails(
        lambda: layer(inputs(tf.constant([[10, -2]], tf.int64))), "(?s)got.*-2"
    )


def test_fit_and_predict_and_files(tmp_path):
    ids = keras.Input((1,), dtype="int64")
    rows = DynamicEmbedding(2, combiner="sum", ids=(0, 9), name="items")(ids)
    model = keras.Model(ids, keras.layers.Dense(1)(rows))
    model.compile(lodestar.optimizers.SGD(), "mse")
    x = np.array([[1], [8]])
    model.fit(x, np.ones((2, 1)), verbose=0)
    bad = np.array([[1], [9]])
    message = r"The ids of layer `items` must be in \[0, 9\), got"
    fails(lambda: model.fit(bad, np.ones((2, 1)), verbose=0), message)
    fails(lambda: model.predict(bad, verbose=0), message)
    model.save(str(tmp_path / "m.keras"))
    again = keras.models.load_model(str(tmp_path / "m.keras"))
    fails(lambda: again.predict(bad, verbose=0), message)
    model.export(str(tmp_path / "keras_export"), verbose=False)
    lodestar.export.save(model, str(tmp_path / "export"))
    lodestar.export.save_plain(model, str(tmp_path / "plain"))
    for folder in ("keras_export", "export", "plain"):
        loaded = tf.saved_model.load(str(tmp_path / folder))
        serve = loaded.signatures["serving_default"]
        (name,) = serve.structured_input_signature[1]
        serve(**{name: tf.constant(x)})
        fails(lambda s=serve, n=name: s(**{n: tf.constant(bad)}), message)


def test_config():
    layer = collection()
    config = layer.get_config()
    again = EmbeddingCollection.from_config(config)
    assert again.features["item"].ids == (10, 20)
    # As JSON makes it.
    assert lodestar.Feature(output_dim=2, ids=[10, 20]).ids == (10, 20)
    layer = DynamicEmbedding(2, ids=(0, 5))
    assert DynamicEmbedding.from_config(layer.get_config())._feature.ids == (
        0,
        5,
    )


@pytest.mark.parametrize(
    "ids", [(1, 1), (2, 1), (1,), 5, (0, 2**63 + 1), (0.0, 5), "ab", (1, 2, 3)]
)
def test_bad_ranges(ids):
    with pytest.raises(ValueError, match=r"`ids` must be a pair \(low, high\)"):
        lodestar.Feature(output_dim=2, ids=ids)


def test_strings_have_no_range():
    layer = DynamicEmbedding(2, ids=(0, 5))
    with pytest.raises(ValueError, match="`ids` has dtype string, but must be"):
        layer(tf.constant(["a"]))
