"""Compares lodestar.layers.SequenceConv with Conv1D on each sequence alone."""

import keras
import numpy as np
import pytest
import tensorflow as tf

import lodestar
from lodestar.layers import SequenceConv

_LENGTHS = [3, 0, 1, 7, 2]


def _batch(rng, dim=4):
    rows = rng.normal(size=(sum(_LENGTHS), dim)).astype(np.float32)
    return tf.RaggedTensor.from_row_lengths(rows, _LENGTHS)


def _each_alone(conv, x, before, after):
    """Applies `conv` to each sequence alone, padded with zeros."""
    rows = []
    for sequence in x.to_list():
        if sequence:
            padded = np.pad(sequence, [(before, after), (0, 0)])
            rows.append(conv(padded[np.newaxis].astype(np.float32))[0])
    return tf.concat(rows, 0)


@pytest.mark.parametrize(
    ("kernel_size", "start", "before"),
    [(3, None, 1), (1, None, 0), (4, None, 2), (3, -2, 2), (2, 0, 0)],
)
def test_outputs_and_gradients_are_conv1d_s(kernel_size, start, before, rng):
    x = _batch(rng)
    layer = SequenceConv(
        5,
        kernel_size,
        start,
        activation="tanh",
        bias_initializer=keras.initializers.RandomNormal(seed=1),
    )
    conv = keras.layers.Conv1D(5, kernel_size, activation="tanh")
    conv.build((None, None, 4))
    with tf.GradientTape() as tape:
        tape.watch(x.flat_values)
        got = layer(x)
        conv.set_weights(layer.get_weights())
        loss = tf.reduce_sum(got.flat_values**2)
    gradients = tape.gradient(loss, layer.trainable_variables)
    with tf.GradientTape() as tape:
        want = _each_alone(conv, x, before, kernel_size - 1 - before)
        loss = tf.reduce_sum(want**2)
    np.testing.assert_allclose(got.flat_values, want, atol=1e-5)
    np.testing.assert_array_equal(got.row_splits, x.row_splits)
    for mine, theirs in zip(
        gradients, tape.gradient(loss, conv.trainable_variables), strict=True
    ):
        np.testing.assert_allclose(mine, theirs, atol=1e-4)


def test_config_holds_every_option():
    layer = SequenceConv(
        4,
        5,
        -4,
        activation="relu",
        use_bias=True,
        kernel_initializer="he_normal",
        bias_initializer="ones",
        kernel_regularizer=keras.regularizers.L2(0.5),
        bias_regularizer="l1",
        kernel_constraint="max_norm",
        bias_constraint="non_neg",
        padding_trainable=True,
        padding_initializer="ones",
        name="conv",
    )
    config = layer.get_config()
    again = SequenceConv.from_config(config)
    assert again.get_config() == config
    assert (again.filters, again.kernel_size, again.start) == (4, 5, -4)
    assert again.activation is keras.activations.relu
    assert isinstance(again.kernel_initializer, keras.initializers.HeNormal)
    again.build((None, None, 3))
    np.testing.assert_array_equal(again.padding, np.ones((4, 3)))
    assert again.kernel.shape == (5, 3, 4)
    np.testing.assert_array_equal(again.bias, np.ones(4))
    assert isinstance(again.bias.constraint, keras.constraints.NonNeg)
    squares = np.sum(np.square(again.kernel))
    np.testing.assert_allclose(
        sum(again.losses), 0.5 * squares + 0.01 * 4, rtol=1e-5
    )


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"filters": 0}, "`filters` must be an integer of at least 1, got 0"),
        (
            {"filters": 1, "kernel_size": 0},
            "`kernel_size` must be an integer of at least 1, got 0",
        ),
        (
            {"filters": 8.0},
            "`filters` must be an integer of at least 1, got 8.0",
        ),
        ({"filters": 1, "start": 0.5}, "`start` must be an integer .* got 0.5"),
    ],
)
def test_sizes_are_checked(arguments, message):
    with pytest.raises(ValueError, match=message):
        SequenceConv(**arguments)


@pytest.mark.parametrize("shape", [(None,), (None, None)])
def test_rows_without_a_static_width_are_refused(shape):
    with pytest.raises(ValueError, match="static D, got shape"):
        SequenceConv(1)(keras.Input(shape, ragged=True))


def test_rows_around_sequences_are_trained(rng):
    x = _batch(rng)
    layer = SequenceConv(
        3, 4, -1, padding_trainable=True, padding_initializer="ones"
    )
    with tf.GradientTape() as tape:
        y = layer(x)
        loss = tf.reduce_sum(y.flat_values**2)
    # One row above, two below; after the kernel and the bias.
    assert [w.shape for w in layer.weights] == [(4, 4, 3), (3,), (3, 4)]
    assert layer.padding.path.endswith("/padding")
    np.testing.assert_array_equal(
        y.flat_values,
        lodestar.sequence.conv(
            x,
            tf.reshape(layer.kernel.value, [-1, 3]),
            4,
            start=-1,
            bias=layer.bias.value,
            padding=np.ones([3, 4], np.float32),
        ).flat_values,
    )
    gradients = tape.gradient(loss, layer.trainable_variables)
    assert all(np.any(g != 0, axis=-1).all() for g in gradients[2:])
    plain = SequenceConv(3, 4, -1)
    plain.build(x.shape)
    assert len(plain.weights) == 2 and plain.padding is None


def test_filters_of_one_row_have_no_rows_around(rng):
    layer = SequenceConv(2, 1, use_bias=False, padding_trainable=True)
    x = _batch(rng)
    assert layer(x).flat_values.shape == (13, 2)
    assert [w.shape for w in layer.weights] == [(1, 4, 2), (0, 4)]


def test_a_layer_that_lost_the_ragged_type_is_named():
    x = keras.layers.Dense(2, name="tower")(keras.Input((None, 4), ragged=True))
    with pytest.raises(
        ValueError, match=r"'tower' \(Dense\) made it from a ragged tensor"
    ):
        SequenceConv(3)(x)
