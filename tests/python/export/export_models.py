"""Briefly trained models that the export tests share."""

import functools
import pathlib
import tempfile

import keras
import numpy as np
import tensorflow as tf

import lodestar

# Each signature, with the options that it needs for `collection_model`.
SIGNATURES = {
    "ragged": {},
    "values_and_lengths": {},
    "examples": {},
    "padded": {"padding_id": {"viewer": 0, "items": ""}},
}


def collection_inputs():
    """Returns a batch of three examples for `collection_model`."""
    return {
        "viewer": tf.ragged.constant([[1, 2, 2**62], [], [-7]], tf.int64),
        "author": tf.constant([3, 4, 5], tf.int64),
        "items": tf.ragged.constant([["a"], ["b", "c"], []]),
        "age": tf.constant([[0.5, 1.0], [1.5, -1.0], [0.0, 2.0]]),
    }


def collection_model():
    """Returns a model of three features, two tables, a vocabulary and dense inputs."""
    user = lodestar.EmbeddingVariable(8, name="user", default_row="initial")
    item = lodestar.EmbeddingVariable(
        4,
        name="item",
        default_row=lodestar.SharedRows(7),
        admission=lodestar.MinCount(2),
    )
    inputs = {
        "viewer": keras.Input(
            (None,), dtype="int64", ragged=True, name="viewer"
        ),
        "author": keras.Input((), dtype="int64", name="author"),
        "items": keras.Input(
            (None,), dtype="string", ragged=True, name="items"
        ),
        "age": keras.Input((2,), name="age"),
    }
    words = lodestar.layers.IdLookup(["a", "b"], name="words")
    rows = lodestar.layers.EmbeddingCollection(
        {
            "viewer": lodestar.Feature(user, combiner="mean", salt="viewer"),
            "author": lodestar.Feature(user, combiner=None),
            "items": lodestar.Feature(item, combiner="sum"),
        },
        name="embed",
    )({**inputs, "items": words(inputs["items"])})
    x = keras.layers.Concatenate()(
        [rows["viewer"], rows["author"], rows["items"], inputs["age"]]
    )
    hidden = keras.layers.Dense(4, activation="tanh", name="hidden")(x)
    outputs = {
        "score": keras.layers.Dense(1, name="score")(hidden),
        "hidden": hidden,
    }
    model = keras.Model(inputs, outputs)
    model.compile(
        lodestar.optimizers.Adam(),
        {"score": "mse", "hidden": None},
    )
    model.fit(
        collection_inputs(),
        {"score": np.ones((3, 1))},
        batch_size=3,
        epochs=2,
        verbose=0,
    )
    return model


@functools.cache
def shared_collection_model():
    """Returns one `collection_model` for all tests that only read and export it."""
    return collection_model()


@functools.cache
def _exports():
    return tempfile.TemporaryDirectory()


@functools.cache
def exported_collection(signature):
    """Returns the folder of one export of the shared model, with `from_rows`."""
    path = pathlib.Path(_exports().name) / signature
    lodestar.export.save(
        shared_collection_model(),
        path,
        signature,
        from_rows=True,
        **SIGNATURES[signature],
    )
    return path


def ragged_model(**options):
    """Returns a model of one ragged input `x`: summed rows of dimension 2."""
    ids = keras.Input((None,), dtype="int64", ragged=True, name="x")
    layer = lodestar.layers.DynamicEmbedding(
        2, combiner="sum", name="embed", **options
    )
    return keras.Model(ids, layer(ids))
