"""SparseTensors that Keras makes dense before a layer sees them."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from id_models import FRONTS, collection, embedding, lookup, model_of

import lodestar
from lodestar import layers
from lodestar.data import Column, Schema

RAGGED = tf.ragged.constant([[7, 8, 9], [], [7]], dtype=tf.int64)
WORDS = tf.ragged.constant([["a", "b"], [], ["a"]])
LABELS = np.zeros([3, 1], np.float32)
CALLS = ["fit", "evaluate", "predict"]


def refused(filler="0", option="padding_id"):
    return pytest.raises(
        ValueError,
        match=rf"are sparse in the data, but Keras made them dense.*{filler}.*"
        rf"RaggedTensor.from_sparse.*sparse=True.*`{option}`={filler}",
    )


def run(model, call, ids):
    labels = () if call == "predict" else (LABELS,)
    getattr(model, call)({"_id": ids}, *labels, verbose=0)


def table_of(model):
    (layer,) = (
        x for x in model.layers if isinstance(x, layers.DynamicEmbedding)
    )
    return layer.table


def ids_of(model):
    return sorted(table_of(model).export().ids.numpy().tolist())


def ids_input(**options):
    options = {"shape": (None,), "dtype": "int64", "name": "_id", **options}
    return keras.Input(**options)


@pytest.mark.parametrize("front", FRONTS)
@pytest.mark.parametrize("ragged", [True, False])
@pytest.mark.parametrize("call", CALLS)
def test_the_filler_of_keras_is_refused(front, ragged, call):
    model = model_of(front, ids_input(ragged=ragged))
    option = "mask_token" if front is lookup else "padding_id"
    with refused(option=option):
        run(model, call, RAGGED.to_sparse())


@pytest.mark.parametrize("front", FRONTS)
def test_another_padding_is_no_excuse(front):
    model = model_of(front, ids_input(ragged=True), padding_id=-1)
    with pytest.raises(ValueError, match="filled short rows with 0"):
        run(model, "predict", RAGGED.to_sparse())


def test_inputs_of_a_schema():
    inputs = Schema([Column.label("y"), Column.sparse("_id")]).inputs()
    model = model_of(embedding, inputs["_id"])
    with refused():
        run(model, "fit", RAGGED.to_sparse())
    model = model_of(embedding, inputs["_id"])
    run(model, "fit", tf.RaggedTensor.from_sparse(RAGGED.to_sparse()))
    assert ids_of(model) == [7, 8, 9]


@pytest.mark.parametrize("front", FRONTS)
def test_a_loaded_model(front, tmp_path):
    model_of(front, ids_input(ragged=True)).save(tmp_path / "model.keras")
    model = keras.models.load_model(tmp_path / "model.keras")
    with pytest.raises(ValueError, match="filled short rows with 0"):
        run(model, "predict", RAGGED.to_sparse())


def test_training_of_lodestar_and_parsed_examples():
    records = [
        tf.train.Example(
            features=tf.train.Features(
                feature={
                    "_id": tf.train.Feature(
                        int64_list=tf.train.Int64List(value=row)
                    )
                }
            )
        ).SerializeToString()
        for row in RAGGED.to_list()
    ]
    parsed = tf.data.Dataset.from_tensors(records).map(
        lambda batch: (
            tf.io.parse_example(batch, {"_id": tf.io.VarLenFeature(tf.int64)}),
            LABELS,
        )
    )
    for fit in (keras.Model.fit, lodestar.train.fit):
        with refused():
            fit(model_of(embedding, ids_input(ragged=True)), parsed)
        model = model_of(embedding, ids_input(sparse=True))
        fit(model, parsed)
        assert ids_of(model) == [7, 8, 9]


@pytest.mark.parametrize("ragged", [True, False])
def test_declared_padding_is_ignored(ragged):
    model = model_of(embedding, ids_input(ragged=ragged), padding_id=0)
    run(model, "fit", RAGGED.to_sparse())
    assert ids_of(model) == [7, 8, 9]
    for front in (collection, lookup):
        model = model_of(front, ids_input(ragged=ragged), padding_id=0)
        run(model, "predict", RAGGED.to_sparse())


@pytest.mark.parametrize(
    ("options", "ids"),
    [
        ({"ragged": True}, RAGGED),
        ({"ragged": False}, RAGGED),
        ({"sparse": True}, RAGGED),
        ({"sparse": True}, RAGGED.to_sparse()),
        ({"ragged": True}, np.array([[7, 8], [8, 9], [9, 7]])),
        ({"ragged": True, "dtype": "int32"}, tf.cast(RAGGED, tf.int32)),
    ],
    ids=["ragged", "ragged for dense", "ragged for sparse", "sparse", "full"]
    + ["int32"],
)
def test_ids_that_nothing_filled(options, ids):
    model = model_of(embedding, ids_input(**options))
    run(model, "fit", ids)
    assert ids_of(model) == [7, 8, 9]


def test_ids_that_are_filled_and_cast():
    model = model_of(embedding, ids_input(ragged=True, dtype="int64"))
    with refused():
        run(model, "fit", tf.cast(RAGGED, tf.int32).to_sparse())
    model = model_of(embedding, ids_input(ragged=True, dtype="int32"))
    with pytest.raises(ValueError, match="are int64 in the data, but Keras ca"):
        run(model, "fit", RAGGED.to_sparse())


def test_strings():
    strings = {"ragged": True, "dtype": "string"}
    with refused("''"):
        run(model_of(embedding, ids_input(**strings)), "fit", WORDS.to_sparse())
    model = model_of(embedding, ids_input(**strings), padding_id="")
    run(model, "fit", WORDS.to_sparse())
    assert ids_of(model) == sorted(lodestar.hash_ids(["a", "b"]).numpy())
    words = ids_input(**strings)
    model = keras.Model({"_id": words}, layers.IdLookup(["a"])(words))
    with refused("''", "mask_token"):
        run(model, "predict", WORDS.to_sparse())
    for token in ("", b""):
        found = layers.IdLookup(["a"], mask_token=token)(words)
        run(keras.Model({"_id": words}, found), "predict", WORDS.to_sparse())


def test_ids_behind_other_operations():
    ids = ids_input()
    pairs = keras.ops.concatenate([ids, ids], axis=1)
    model = keras.Model({"_id": ids}, embedding(pairs))
    with refused():
        run(model, "predict", RAGGED.to_sparse())


class Outer(keras.Model):
    """Looks ids up itself, or by an inner functional model."""

    def __init__(self, inner):
        super().__init__()
        ids = ids_input()
        self.layer = lodestar.layers.DynamicEmbedding(2, combiner="sum")
        self.inner = keras.Model(ids, embedding(ids)) if inner else None

    def call(self, inputs):
        ids = inputs["_id"]
        if self.inner is None:
            return self.layer(tf.sparse.to_dense(ids))
        return self.inner(ids)


def test_a_fill_of_the_model_is_its_own():
    run(Outer(inner=False), "predict", RAGGED.to_sparse())
    with refused():
        run(Outer(inner=True), "predict", RAGGED.to_sparse())
