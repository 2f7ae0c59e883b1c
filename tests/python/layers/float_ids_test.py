"""Floats that Keras casts to ids before a layer sees them."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from id_models import FRONTS, embedding, model_of

from lodestar import layers
from lodestar.data import Column, Schema

SCHEMA = Schema([Column.label("y"), Column.sparse("_id")])
REFUSED = (
    "`.*` of the layer '.*' are the column '_id', which the schema of the model "
    "declares as ids, but the data has float32, .*schema=model"
)
FLOATS = np.array([[1.0, 2.0], [3.0, 4.0]], np.float32)
LABELS = np.zeros([2, 1], np.float32)


def plain():
    return keras.Input((None,), dtype="int64", ragged=True, name="_id")


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
    for ids in (FLOATS.astype(np.int64), FLOATS.astype(np.int32), FLOATS > 1):
        model.predict({"_id": ids}, verbose=0)
    model.fit({"_id": FLOATS.astype(np.int64)}, LABELS, verbose=0)


@pytest.mark.parametrize("front", FRONTS)
@pytest.mark.parametrize("call", ["fit", "evaluate", "predict"])
def test_floats_are_refused_without_a_schema(front, call):
    model = model_of(front, plain())
    labels = () if call == "predict" else (LABELS,)
    for data in (FLOATS, FLOATS.astype("float64"), FLOATS.astype("float16")):
        with pytest.raises(
            ValueError, match="must be integers, but the data has float.*schema"
        ):
            getattr(model, call)({"_id": data}, *labels, verbose=0)


def test_floats_are_refused_behind_other_layers():
    ids = plain()
    pairs = keras.ops.concatenate([ids, ids], axis=1)
    model = keras.Model({"_id": ids}, embedding(pairs))
    with pytest.raises(ValueError, match="must be integers, but the data has"):
        model.predict({"_id": FLOATS}, verbose=0)


class Outer(keras.Model):
    """Passes its inputs to a functional model."""

    def __init__(self):
        super().__init__()
        ids = keras.Input((2,), dtype="int64")
        self.inner = keras.Model(ids, embedding(ids))

    def call(self, ids):
        return self.inner(ids)


def test_a_functional_model_in_a_model():
    with pytest.raises(ValueError, match="must be integers, but the data has"):
        Outer().predict(FLOATS, verbose=0)


def test_the_signature_that_keras_traces_with_floats(tmp_path):
    model = Outer()
    model.predict(FLOATS.astype(np.int64), verbose=0)
    signature = [tf.TensorSpec([None, 2], tf.int64)]
    model.export(tmp_path, verbose=False, input_signature=signature)
    loaded = tf.saved_model.load(tmp_path)
    assert loaded.serve(tf.constant([[1, 2]], tf.int64)).shape == (1, 2)
    tf.saved_model.save(model, tmp_path)
    loaded = tf.saved_model.load(tmp_path)
    served = loaded.signatures["serving_default"]
    served(tf.constant(FLOATS))  # exact integers
    for wrong in np.nan, 2.0**24:
        with pytest.raises(tf.errors.InvalidArgumentError, match="has NaN or"):
            served(tf.constant([[1.0, wrong]]))


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
    model.predict(prices, verbose=0)
