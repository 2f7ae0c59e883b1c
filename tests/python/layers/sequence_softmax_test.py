"""lodestar.layers.SequenceSoftmax: attention weights inside a model."""

import keras
import numpy as np
import pytest
import tensorflow as tf

import lodestar
from lodestar.layers import SequenceConv, SequencePool, SequenceSoftmax

_LENGTHS = [3, 0, 1, 2]


def _batch(dtype=np.float32):
    rows = np.random.default_rng(1).normal(size=(6, 4)) * 100
    return tf.RaggedTensor.from_row_lengths(rows.astype(dtype), _LENGTHS)


def _softmax(x):
    """Of every sequence of a ragged `x`, column by column."""
    rows = []
    for sequence in x.to_list():
        if sequence:
            powers = np.exp(np.array(sequence) - np.max(sequence, 0))
            rows.extend(powers / powers.sum(0))
    return np.array(rows)


@pytest.mark.parametrize(
    ("dtype", "tolerance"),
    [("float16", 1e-3), ("bfloat16", 1e-2), ("float32", 1e-6)],
)
def test_columns_of_each_sequence(dtype, tolerance):
    x = tf.cast(_batch(), dtype)
    got = SequenceSoftmax(dtype="mixed_float16")(x)
    assert got.dtype == dtype
    want = _softmax(tf.cast(x, tf.float32))
    np.testing.assert_allclose(
        tf.cast(got.flat_values, tf.float32), want, atol=tolerance
    )


def test_two_levels_act_on_the_last():
    x = tf.RaggedTensor.from_row_lengths(_batch(), [2, 0, 2])
    got = SequenceSoftmax()(x)
    np.testing.assert_allclose(got.flat_values, _softmax(_batch()), atol=1e-6)
    np.testing.assert_array_equal(got.row_splits, x.row_splits)


class _Times(keras.layers.Layer):
    """Keras's own Multiply makes a dense tensor of symbolic ragged ones."""

    def call(self, inputs):
        return inputs[0] * inputs[1]

    def compute_output_spec(self, inputs):
        return keras.KerasTensor(inputs[0].shape, ragged=True)


def test_attention_pooling_trains(tmp_path):
    # The row that counts is marked in its second column.
    keras.utils.set_random_seed(1)
    rng = np.random.default_rng(2)
    lengths = rng.integers(1, 5, 64)
    rows = np.zeros((lengths.sum(), 2), np.float32)
    rows[:, 0] = rng.normal(size=len(rows))
    marked = np.cumsum(lengths) - rng.integers(1, lengths + 1)
    rows[marked, 1] = 1.0
    x = tf.RaggedTensor.from_row_lengths(rows, lengths)
    target = rows[marked, :1]

    inputs = keras.Input((None, 2), ragged=True, name="x")
    scores = SequenceConv(1, 1)(inputs)
    weights = SequenceSoftmax(name="attention")(scores)
    assert (weights.shape, weights.ragged) == ((None, None, 1), True)
    pooled = SequencePool("sum")(_Times()([inputs, weights]))
    model = keras.Model(inputs, keras.layers.Dense(1)(pooled))
    model.compile(keras.optimizers.Adam(0.1), "mse")
    model.fit(x, target, epochs=60, verbose=0)
    assert model.evaluate(x, target, verbose=0) < 0.01
    attention = keras.Model(inputs, weights)
    np.testing.assert_allclose(
        tf.gather(attention(x).flat_values, marked), 1.0, atol=0.2
    )
    path = str(tmp_path / "exported")
    lodestar.export.save(attention, path)
    exported = tf.saved_model.load(path)
    np.testing.assert_allclose(
        exported.serve({"x": x})["output_0"].flat_values,
        attention(x).flat_values,
        atol=1e-6,
    )


def test_integers_are_refused():
    x = tf.ragged.constant([[1, 2]])
    with pytest.raises(TypeError, match="int32"):
        SequenceSoftmax()(x)
    with pytest.raises(TypeError, match="int32"):
        SequenceSoftmax()(keras.Input((None,), ragged=True, dtype="int32"))
