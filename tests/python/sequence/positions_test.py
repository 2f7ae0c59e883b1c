"""lodestar.sequence.positions."""

import keras
import numpy as np
import pytest
import tensorflow as tf

import lodestar
from lodestar.ragged import LoDTensor


def test_levels_and_kinds():
    x = tf.ragged.constant([[[7, 8], [9]], [], [[], [1, 2, 3]]], ragged_rank=2)
    assert lodestar.sequence.positions(x).to_list() == [
        [[0, 1], [0]],
        [],
        [[], [0, 1, 2]],
    ]
    lod = LoDTensor.from_ragged(x)
    got = lodestar.sequence.positions(lod, level=0, from_end=True)
    assert isinstance(got, LoDTensor)
    assert got.values.numpy().tolist() == [2, 1, 0, 2, 1, 0]
    with pytest.raises(ValueError, match="`level` must be an integer"):
        lodestar.sequence.positions(x, level=2)
    with pytest.raises(TypeError, match="must be a RaggedTensor"):
        lodestar.sequence.positions(tf.zeros([2, 3]))


def test_position_embeddings_in_a_functional_model():
    ids = keras.Input((None,), dtype="int64", ragged=True)
    places = lodestar.sequence.positions(ids, from_end=True)
    assert places.ragged and places.dtype == "int64"
    rows = lodestar.layers.DynamicEmbedding(4)(ids)
    rows = rows + keras.layers.Embedding(8, 4)(places)
    model = keras.Model(ids, lodestar.sequence.pool(rows, "sum"))
    x = tf.ragged.constant([[5, 6], [], [7]], tf.int64)
    embedding = next(
        layer
        for layer in model.layers
        if isinstance(layer, keras.layers.Embedding)
    )
    weights = embedding.get_weights()[0]
    np.testing.assert_allclose(
        model.predict(x, verbose=0),
        [weights[:2].sum(0), np.zeros(4), weights[0]],
        atol=1e-6,
    )
