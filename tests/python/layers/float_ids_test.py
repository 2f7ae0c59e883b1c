"""Floats that Keras casts to ids before a layer sees them."""

import warnings

import keras
import numpy as np
import pytest
import tensorflow as tf

import lodestar
from lodestar import layers
from lodestar.data import Column, Schema

SCHEMA = Schema([Column.label("y"), Column.sparse("_id")])
REFUSED = (
    "`.*` of the layer '.*' are the column '_id', which the schema of the model "
    "declares as ids, but the data has float32, .*schema=model"
)
FLOATS = np.array([[1.0, 2.0], [3.0, 4.0]], np.float32)
LABELS = np.zeros([2, 1], np.float32)


def embedding(ids, **options):
    return layers.DynamicEmbedding(2, combiner="sum", **options)(ids)


def collection(ids, **options):
    feature = lodestar.Feature(output_dim=2, combiner="sum", **options)
    return layers.EmbeddingCollection({"_id": feature})({"_id": ids})["_id"]


def lookup(ids, **options):
    mask = options.get("padding_id")
    return layers.IdLookup(
        [1, 2, 3],
        mask_token=mask,
        output_mode="count",
        max_tokens=5,
        pad_to_max_tokens=True,
    )(ids)


FRONTS = [embedding, collection, lookup]


def model_of(front, ids, **options):
    score = keras.layers.Dense(1)(front(ids, **options))
    model = keras.Model({"_id": ids}, score)
    optimizer = lodestar.optimizers.SGD(0.1)
    model.compile(optimizer, "mse", metrics=["mae"])
    return model


def plain():
    return keras.Input((None,), dtype="int64", ragged=True, name="_id")


def warnings_of(call):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        call()
    return [str(w.message) for w in caught if "were cast" in str(w.message)]


@pytest.mark.parametrize("front", FRONTS)
@pytest.mark.parametrize("options", [{}, {"padding_id": 0}], ids=str)
@pytest.mark.parametrize("call", ["fit", "evaluate", "predict"])
def test_floats_for_declared_ids_are_refused(front, options, call):
    model = model_of(front, SCHEMA.inputs()["_id"], **options)
    labels = () if call == "predict" else (LABELS,)
    with pytest.raises(ValueError, match=REFUSED):
        getattr(model, call)({"_id": FLOATS}, *labels, verbose=0)
    with pytest.raises(ValueError, match=REFUSED):
        ragged = tf.RaggedTensor.from_tensor(FLOATS)
        getattr(model, call)({"_id": ragged}, *labels, verbose=0)


@pytest.mark.parametrize("front", FRONTS)
def test_floats_are_refused_by_a_loaded_model(front, tmp_path):
    model_of(front, SCHEMA.inputs()["_id"]).save(tmp_path / "model.keras")
    model = keras.models.load_model(tmp_path / "model.keras")
    with pytest.raises(ValueError, match=REFUSED):
        model.predict({"_id": FLOATS}, verbose=0)


@pytest.mark.parametrize("front", FRONTS)
def test_integers_are_accepted(front):
    model = model_of(front, SCHEMA.inputs()["_id"])
    for ids in (FLOATS.astype(np.int64), FLOATS.astype(np.int32)):
        assert not warnings_of(lambda: model.predict({"_id": ids}, verbose=0))  # noqa: B023
    model.fit({"_id": FLOATS.astype(np.int64)}, LABELS, verbose=0)


@pytest.mark.parametrize("front", FRONTS)
def test_without_a_schema_floats_warn_once(front):
    model = model_of(front, plain())
    (text,) = warnings_of(lambda: model.predict({"_id": FLOATS}, verbose=0))
    assert "were cast from float32" in text and "schema.inputs()" in text
    data = {"_id": FLOATS}
    assert not warnings_of(lambda: model.fit(data, LABELS, verbose=0))


def test_a_layer_on_several_columns_names_them():
    inputs = Schema([Column.sparse("b"), Column.sparse("a")]).inputs()
    shared = layers.DynamicEmbedding(2, combiner="sum")
    rows = keras.layers.Add()([shared(ids) for ids in inputs.values()])
    model = keras.Model(inputs, rows)
    with pytest.raises(ValueError, match="the column 'a' and 'b', which"):
        model.predict({"a": FLOATS, "b": FLOATS}, verbose=0)


def test_a_cast_of_the_model_is_its_own():
    price = Schema([Column.dense("price")]).inputs()["price"]
    ids = keras.ops.cast(price, "int64")
    model = keras.Model({"price": price}, embedding(ids))
    prices = {"price": np.array([[1.0]], np.float32)}
    assert not warnings_of(lambda: model.predict(prices, verbose=0))
