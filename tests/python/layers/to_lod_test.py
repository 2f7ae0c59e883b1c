"""lodestar.layers.ToLoD: the LoDTensor that a model's own layers see."""

import keras
import numpy as np
import tensorflow as tf

from lodestar import LoDTensor
from lodestar.layers import ToLoD, ToRagged


def _batch():
    return tf.RaggedTensor.from_nested_row_lengths(
        tf.reshape(tf.range(6.0), [6, 1]), [[2, 0, 1], [3, 0, 3]]
    )


def test_rows_and_levels_are_those_of_the_input():
    x = _batch()
    lod = ToLoD()(x)
    assert isinstance(lod, LoDTensor)
    assert lod.values is x.flat_values
    assert [level.numpy().tolist() for level in lod.lod] == [
        [0, 2, 2, 3],
        [0, 3, 3, 6],
    ]
    again = ToLoD()(lod)
    assert isinstance(again, LoDTensor)
    assert again.values is x.flat_values


def test_int32_splits_become_levels():
    lod = ToLoD()(_batch().with_row_splits_dtype(tf.int32))
    assert [level.dtype for level in lod.lod] == [tf.int64, tf.int64]


class _Lengths(keras.layers.Layer):
    """A layer of a user's own: the lengths of the innermost sequences."""

    def call(self, *, x):
        assert isinstance(x, LoDTensor)
        return tf.cast(x.lengths()[-1], tf.float32)[:, tf.newaxis]

    def compute_output_spec(self, *, x):
        return keras.KerasTensor((None, 1))


def test_own_layer_takes_it_by_keyword():
    inputs = keras.Input((None, None, 1), ragged=True)
    lod = ToLoD()(inputs)
    assert lod.ragged
    assert lod.shape == inputs.shape
    model = keras.Model(inputs, keras.layers.Dense(1)(_Lengths()(x=lod)))
    x = _batch()
    kernel, bias = model.get_weights()
    np.testing.assert_allclose(
        model.predict(x, verbose=0), [[3.0], [0.0], [3.0]] * kernel + bias
    )


def test_gradient_passes():
    rows = tf.Variable(tf.ones([6, 1]))
    with tf.GradientTape() as tape:
        lod = ToLoD()(_batch().with_flat_values(rows.value()))
        loss = tf.reduce_sum(ToRagged()(lod).flat_values * 3.0)
    np.testing.assert_array_equal(tape.gradient(loss, rows), np.full([6, 1], 3))
