"""lodestar.layers.ToRagged: back from LoDTensors inside a model."""

import keras
import numpy as np
import tensorflow as tf

from lodestar import LoDTensor
from lodestar.layers import ToLoD, ToRagged


def test_rows_and_levels_are_those_of_the_input():
    lod = LoDTensor.from_lengths(tf.range(6.0), [[2, 0, 1], [3, 0, 3]])
    ragged = ToRagged()(lod)
    assert ragged.flat_values is lod.values
    assert ragged.to_list() == [[[0, 1, 2], []], [], [[3, 4, 5]]]
    again = ToRagged()(ragged)
    assert isinstance(again, tf.RaggedTensor)
    assert again.flat_values is lod.values


def test_model_that_ends_with_it_predicts_and_fits():
    inputs = keras.Input((None, 2), ragged=True)
    x = tf.RaggedTensor.from_row_lengths(tf.ones([6, 2]), [1, 0, 3, 2])
    ragged = ToRagged()(ToLoD()(inputs))
    assert ragged.ragged
    got = keras.Model(inputs, ragged).predict(x, verbose=0, batch_size=3)
    np.testing.assert_array_equal(got.flat_values, x.flat_values)
    np.testing.assert_array_equal(got.row_lengths(), [1, 0, 3, 2])
    pooled = keras.layers.Lambda(lambda r: tf.reduce_sum(r, axis=1))(ragged)
    model = keras.Model(inputs, keras.layers.Dense(1)(pooled))
    model.compile("sgd", "mse")
    model.fit(x, np.ones([4, 1]), verbose=0)
