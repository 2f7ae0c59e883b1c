"""Integers that Keras casts to an input of fewer bits."""

import functools

import keras
import numpy as np
import pytest
import tensorflow as tf
from id_models import FRONTS, embedding, model_of

import lodestar
from lodestar import layers
from lodestar.data import Column, Schema

IDS = np.array([[5], [2**32 + 5], [2**33 + 5], [7]])
LABELS = np.zeros([4, 1], np.float32)
CALLS = ["fit", "evaluate", "predict"]
KINDS = {
    "dense": lambda ids: ids,
    "ragged": lambda ids: tf.RaggedTensor.from_tensor(ids),
    "sparse": lambda ids: tf.sparse.from_dense(ids),
}


def refused(source="int64", dtype="int32"):
    return pytest.raises(
        ValueError,
        match=rf"are {source} in the data, but Keras cast them to {dtype}, "
        r'.*keras.Input\(shape, dtype="int64"\)',
    )


def run(model, call, ids):
    labels = () if call == "predict" else (LABELS,)
    getattr(model, call)({"_id": ids}, *labels, verbose=0)


def tables_of(model):
    for layer in model.layers:
        if isinstance(layer, layers.DynamicEmbedding):
            yield layer.table
        elif isinstance(layer, layers.EmbeddingCollection):
            yield from layer.tables


def table_of(model):
    (table,) = tables_of(model)
    return table


@pytest.mark.parametrize("front", FRONTS)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("call", CALLS)
def test_wide_ids_are_refused(front, kind, call):
    options = {} if kind == "dense" else {kind: True}
    ids = keras.Input((None,), dtype="int32", name="_id", **options)
    model = model_of(front, ids)
    with refused():
        run(model, call, KINDS[kind](IDS))
    assert all(int(table.size()) == 0 for table in tables_of(model))
    # Keras cannot continue after an error in its first trace.
    model = model_of(front, ids)
    run(model, call, KINDS[kind]((IDS % 100).astype("int32")))


@pytest.mark.parametrize(
    ("source", "dtype"),
    [
        *(("int64", narrow) for narrow in ("int8", "int16", "uint8", "uint32")),
        *[("uint64", "int32"), ("uint32", "int32"), ("int32", "uint32")],
    ],
)
def test_other_dtypes(source, dtype):
    ids = keras.Input((1,), dtype=dtype, name="_id")
    model = model_of(embedding, ids)
    with refused(source, dtype):
        run(model, "predict", np.array([[5], [7]], source))
    run(model, "predict", np.array([[5], [7]], dtype))


@pytest.mark.parametrize(
    ("source", "dtype"),
    [
        *[("int32", "int64"), ("uint32", "int64"), ("uint8", "int32")],
        *[("uint64", "int64"), ("bool", "int32")],
    ],
)
def test_dtypes_that_hold_all_ids(source, dtype):
    ids = keras.Input((1,), dtype=dtype, name="_id")
    model = model_of(embedding, ids)
    run(model, "fit", np.array([[1], [0], [1], [1]], source))
    assert sorted(table_of(model).export().ids.numpy()) == [0, 1]


def test_unsigned_ids_keep_their_bits():
    model = model_of(embedding, keras.Input((1,), dtype="int64", name="_id"))
    run(model, "fit", np.array([[2**64 - 1], [1], [1], [1]], "uint64"))
    assert sorted(table_of(model).export().ids.numpy()) == [-1, 1]


def test_inputs_of_a_schema_take_wide_ids():
    inputs = Schema([Column.label("y"), Column.sparse("_id")]).inputs()
    model = model_of(embedding, inputs["_id"])
    run(model, "fit", IDS)
    run(model, "fit", np.array([[1], [2], [3], [4]], "int32"))
    want = sorted([1, 2, 3, 4, *IDS.ravel().tolist()])
    assert sorted(table_of(model).export().ids.numpy()) == want


@pytest.mark.parametrize("front", FRONTS)
def test_a_loaded_model(front, tmp_path):
    ids = keras.Input((1,), dtype="int32", name="_id")
    model_of(front, ids).save(tmp_path / "model.keras")
    model = keras.models.load_model(tmp_path / "model.keras")
    with refused():
        run(model, "predict", IDS)


def test_training_of_lodestar():
    model = model_of(embedding, keras.Input((1,), dtype="int32", name="_id"))
    dataset = tf.data.Dataset.from_tensor_slices(({"_id": IDS}, LABELS))
    with refused():
        lodestar.train.fit(model, dataset.batch(2))


def test_a_batch_and_several_batches_per_call():
    model = model_of(embedding, keras.Input((1,), dtype="int32", name="_id"))
    for call in (
        functools.partial(model.train_on_batch, y=LABELS),
        functools.partial(model.test_on_batch, y=LABELS),
        model.predict_on_batch,
    ):
        with refused():
            call({"_id": IDS})
    model.compile("sgd", "mse", steps_per_execution=2)
    with refused():
        run(model, "predict", IDS)


def test_ids_behind_other_layers_and_in_an_inner_model():
    ids = keras.Input((1,), dtype="int32", name="_id")
    inner = keras.Model(ids, embedding(keras.ops.concatenate([ids, ids], 1)))
    with refused():
        run(inner, "predict", IDS)
    ids = keras.Input((1,), dtype="int64", name="_id")
    with refused():
        run(keras.Model({"_id": ids}, inner({"_id": ids})), "predict", IDS)


def test_a_table_in_a_layer_of_the_user():
    table = lodestar.EmbeddingVariable(2)
    ids = keras.Input((1,), dtype="int32", name="_id")
    rows = keras.layers.Lambda(lambda ids: table.lookup(ids), (1, 2))(ids)
    with pytest.raises(tf.errors.InvalidArgumentError, match="that cast wraps"):
        run(keras.Model({"_id": ids}, rows), "predict", IDS)


def test_a_cast_of_the_model_is_checked_when_it_runs():
    ids = keras.Input((1,), dtype="int64", name="_id")
    model = model_of(embedding, keras.ops.cast(ids % 100, "int32"), inputs=ids)
    run(model, "fit", IDS)
    model = model_of(embedding, keras.ops.cast(ids, "int32"), inputs=ids)
    run(model, "fit", IDS % 100)
    with pytest.raises(tf.errors.InvalidArgumentError, match="that cast wraps"):
        run(model, "fit", IDS)


@pytest.mark.parametrize("source", ["float32", "int64"])
@pytest.mark.parametrize("in_collection", [False, True])
def test_weights(source, in_collection):
    ids = keras.Input((1,), dtype="int64", name="ids")

    def rows(weights):
        if in_collection:
            feature = lodestar.Feature(output_dim=2, combiner="sum")
            embed = layers.EmbeddingCollection({"a": feature})
            return embed({"a": ids}, weights={"a": weights})["a"]
        layer = layers.DynamicEmbedding(2, combiner="sum")
        return layer(ids, weights=weights)

    for dtype in ("int32", source):
        given = keras.Input((1,), dtype=dtype, name="weights")
        model = keras.Model([ids, given], rows(given))
        data = {"ids": IDS, "weights": np.ones([4, 1], source)}
        if dtype == source:
            model.predict(data, verbose=0)
            continue
        with pytest.raises(
            ValueError,
            match=rf"(?s)`weights.* are {source} in the data.*dtype=.{source}",
        ):
            model.predict(data, verbose=0)
