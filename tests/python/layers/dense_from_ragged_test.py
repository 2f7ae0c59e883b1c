"""Tests of errors from ragged rows where a dense tensor is needed."""

import keras
import numpy as np
import pytest
import tensorflow as tf

import lodestar

IDS = tf.ragged.constant([[1, 2], [3]], tf.int64)
HINT = "`combiner=` of the embedding .* lodestar.sequence.pad"


def dynamic(ids):
    return lodestar.layers.DynamicEmbedding(4)(ids)


def collection(ids):
    return lodestar.layers.EmbeddingCollection({"a": 4})({"a": ids})["a"]


@pytest.mark.parametrize("embed", [dynamic, collection])
@pytest.mark.parametrize("graph", [False, True])
def test_dense_of_keras_raises_with_advice(embed, graph):
    ids = keras.Input((None,), dtype="int64", ragged=True)
    model = keras.Model(ids, keras.layers.Dense(1)(embed(ids)))
    model.compile(
        lodestar.optimizers.SGD(),
        "mse",
        run_eagerly=not graph,
    )
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
