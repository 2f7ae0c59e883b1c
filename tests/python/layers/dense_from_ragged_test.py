"""Tests of errors from ragged rows where a dense tensor is needed."""

import functools

import keras
import numpy as np
import pytest
import tensorflow as tf

import lodestar

IDS = tf.ragged.constant([[1, 2], [3]], tf.int64)
HINT = "PerStep.*`combiner=` of the embedding .* lodestar.sequence.pad"


def dynamic(ids):
    return lodestar.layers.DynamicEmbedding(4)(ids)


def collection(ids):
    return lodestar.layers.EmbeddingCollection({"a": 4})({"a": ids})["a"]


LAYERS = {
    "GRU": (lambda: keras.layers.GRU(2), "lodestar.sequence.pad"),
    "LSTM": (lambda: keras.layers.LSTM(2), "lodestar.sequence.pad"),
    "Bidirectional": (
        lambda: keras.layers.Bidirectional(keras.layers.GRU(2)),
        "lodestar.sequence.pad",
    ),
    "MultiHeadAttention": (
        lambda: functools.partial(
            keras.layers.MultiHeadAttention(1, 2), value=keras.Input((3, 4))
        ),
        "lodestar.layers.SequenceAttention",
    ),
    "GlobalAveragePooling1D": (
        keras.layers.GlobalAveragePooling1D,
        "lodestar.sequence.pool",
    ),
    "Conv1D": (lambda: keras.layers.Conv1D(2, 2), "SequenceConv"),
    "Dense": (lambda: keras.layers.Dense(1), "PerStep.Dense"),
    "Dropout": (lambda: keras.layers.Dropout(0.5), "PerStep.Dropout"),
    "LayerNormalization": (keras.layers.LayerNormalization, "PerStep"),
}


@pytest.mark.parametrize("embed", [dynamic, collection])
@pytest.mark.parametrize("name", LAYERS)
def test_a_layer_of_keras_raises_when_it_is_called(embed, name):
    make, advice = LAYERS[name]
    ids = keras.Input((None,), dtype="int64", ragged=True)
    with pytest.raises(
        TypeError, match=rf"\({name}\) got ragged rows.*{advice}"
    ):
        make()(embed(ids))


def test_every_operation_of_a_graph_is_checked():
    rows = dynamic(keras.Input((None,), dtype="int64", ragged=True))
    for ragged in (
        rows + rows,
        lodestar.sequence.reverse(rows),
        lodestar.layers.SequenceConv(3)(rows),
        lodestar.layers.PerStep(keras.layers.Dense(2))(rows),
        lodestar.layers.SequenceAttention(1, 2)(rows),
    ):
        with pytest.raises(TypeError, match="got ragged rows"):
            keras.layers.GRU(2)(ragged)


def test_what_takes_ragged_rows_is_not_refused():
    class Ours(keras.layers.Layer):
        def call(self, rows):
            return tf.reduce_sum(rows, axis=1)

    ids = keras.Input((None,), dtype="int64", ragged=True)
    rows = dynamic(ids)
    inner = keras.Input((None, 4), ragged=True)
    layers = [
        keras.layers.Lambda(lambda rows: tf.reduce_sum(rows, axis=1)),
        keras.Model(inner, lodestar.sequence.pool(inner)),
        Ours(),
    ]
    sums = [layer(rows) for layer in layers]
    sums.append(keras.ops.sum(rows, axis=1))
    model = keras.Model(ids, sums)
    first, *others = model(IDS)
    for other in others:
        np.testing.assert_allclose(other, first, rtol=1e-6)
    # Layers for ids keep them ragged.
    places = keras.layers.Embedding(9, 2)(lodestar.sequence.positions(ids))
    assert places.ragged


@pytest.mark.parametrize("embed", [dynamic, collection])
@pytest.mark.parametrize("graph", [False, True])
def test_a_subclassed_model_raises_with_advice(embed, graph):
    class Model(keras.Model):
        def __init__(self):
            super().__init__()
            self.dense = keras.layers.Dense(1)

        def call(self, ids):
            return self.dense(embed(ids))

    model = Model()
    model.compile(lodestar.optimizers.SGD(), "mse", run_eagerly=not graph)
    with pytest.raises(TypeError, match=HINT):
        model.fit(IDS, np.ones((2, 1)), verbose=0)


def test_layers_that_accept_ragged_rows_still_do():
    rows = lodestar.layers.DynamicEmbedding(4, seed=1)(IDS, training=True)
    assert isinstance(rows, tf.RaggedTensor)
    np.testing.assert_array_equal((rows * 2.0).to_tensor()[0], rows[0] * 2.0)
    assert tf.reduce_sum(rows, axis=1).shape == (2, 4)
    assert tf.concat([rows, rows], axis=1).shape[0] == 2
    assert lodestar.sequence.pad(rows)[0].shape[-1] == 4


def test_other_ragged_tensors_are_left_to_tensorflow():
    for ragged in (IDS, tf.cast(IDS, tf.float32)):
        with pytest.raises((TypeError, ValueError)) as raised:
            tf.convert_to_tensor(ragged)
        assert "sequence.pad" not in str(raised.value)
