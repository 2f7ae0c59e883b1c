"""lodestar.layers.SequencePool: eager, symbolic, saved."""

import keras
import numpy as np
import pytest
import tensorflow as tf

import lodestar
from lodestar.layers import SequencePool


def test_eager_input():
    x = tf.ragged.constant([[1.0, 3.0], []])
    assert SequencePool("mean", 9.0)(x).numpy().tolist() == [2, 9]
    assert SequencePool()(
        lodestar.LoDTensor.from_ragged(x)
    ).numpy().tolist() == [
        4,
        0,
    ]


def test_model_trains_saves_and_loads(tmp_path):
    inputs = keras.Input((None, 3), ragged=True)
    pooled = SequencePool("sqrtn")(inputs)
    assert pooled.shape == (None, 3)
    model = keras.Model(inputs, keras.layers.Dense(1)(pooled))
    model.compile("sgd", "mse")
    x = tf.RaggedTensor.from_row_lengths(tf.ones([6, 3]), [1, 0, 3, 2])
    model.fit(x, np.ones([4, 1]), verbose=0)
    path = str(tmp_path / "model.keras")
    model.save(path)
    loaded = keras.saving.load_model(path)
    np.testing.assert_array_equal(loaded(x), model(x))
    layer = loaded.layers[1]
    assert (layer.combiner, layer.pad_value) == ("sqrtn", 0.0)


def test_two_ragged_dimensions_leave_one():
    inputs = keras.Input((None, None, 2), ragged=True)
    pooled = SequencePool()(inputs)
    assert pooled.shape == (None, None, 2)
    assert pooled.ragged
    twice = keras.Model(inputs, SequencePool()(pooled))
    x = tf.ragged.constant(
        [[[[1.0, 2.0]], []], []], ragged_rank=2, inner_shape=(2,)
    )
    assert twice(x).numpy().tolist() == [[1, 2], [0, 0]]


def test_what_is_refused():
    with pytest.raises(ValueError, match="'average', which is called 'mean'"):
        SequencePool("average")
    with pytest.raises(ValueError, match="needs a ragged input"):
        SequencePool()(keras.Input((4, 3)))
