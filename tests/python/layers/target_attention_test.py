"""Compares lodestar.layers.TargetAttention with padded sequences."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from lodestar import sequence
from lodestar.layers import TargetAttention
from lodestar.ragged import LoDTensor

LENGTHS = [3, 0, 7, 1]


def batch(rng, dim=4):
    rows = rng.normal(size=(sum(LENGTHS), dim)).astype(np.float32)
    return tf.RaggedTensor.from_row_lengths(rows, LENGTHS)


def by_padding(layer, target, history):
    """Returns the result of padded histories with the weights of `layer`."""
    padded, lengths = sequence.pad(history)
    mask = tf.sequence_mask(lengths, padded.shape[1])
    targets = tf.broadcast_to(target[:, tf.newaxis], padded.shape)
    x = tf.concat([targets, padded, targets - padded, targets * padded], -1)
    weights = iter(layer.trainable_weights)
    for kernel, bias in zip(weights, weights, strict=True):
        x = x @ tf.convert_to_tensor(kernel) + tf.convert_to_tensor(bias)
        if kernel.shape[-1] != 1:
            x = layer.activation(x)
    scores = x[..., 0]
    if layer.normalize:
        scores = tf.nn.softmax(tf.where(mask, scores, scores.dtype.min))
    scores = tf.where(mask, scores, 0.0)
    return tf.einsum("bt,btd->bd", scores, padded)


@pytest.mark.parametrize("normalize", [False, True])
@pytest.mark.parametrize("units", [(), (6,), (8, 5)], ids=str)
def test_equals_padded_histories(normalize, units, rng):
    history = batch(rng)
    target = tf.constant(rng.normal(size=(4, 4)), tf.float32)
    layer = TargetAttention(units, "tanh", normalize)
    with tf.GradientTape(persistent=True) as tape:
        tape.watch([target, history.flat_values])
        ours = layer(target, history)
        theirs = by_padding(layer, target, history)
        our_loss, loss = (tf.reduce_sum(y**2) for y in (ours, theirs))
    np.testing.assert_allclose(ours, theirs, atol=1e-5)
    np.testing.assert_array_equal(ours[1], np.zeros(4))
    watched = [target, history.flat_values, *layer.trainable_weights]
    for mine, other in zip(
        tape.gradient(our_loss, watched),
        tape.gradient(loss, watched),
        strict=True,
    ):
        np.testing.assert_allclose(mine, other, atol=1e-4)


def test_levels_and_kinds(rng):
    history = batch(rng)
    target = tf.constant(rng.normal(size=(4, 4)), tf.float32)
    nested = tf.RaggedTensor.from_row_lengths(history, [1, 0, 3])
    targets = tf.RaggedTensor.from_row_lengths(target, [1, 0, 3])
    layer = TargetAttention((3,))
    flat = layer(target, history)
    got = layer(targets, nested)
    np.testing.assert_array_equal(got.flat_values, flat)
    np.testing.assert_array_equal(got.row_splits, [0, 1, 1, 4])
    lod = layer(target, LoDTensor.from_ragged(history))
    np.testing.assert_array_equal(lod, flat)
    symbolic = layer(
        keras.Input((None, 4), ragged=True),
        keras.Input((None, None, 4), ragged=True),
    )
    assert symbolic.ragged and symbolic.shape == (None, None, 4)


def test_errors(rng):
    history = batch(rng)
    with pytest.raises(ValueError, match="`units`"):
        TargetAttention((8, 0))
    layer = TargetAttention((3,), name="interest")
    with pytest.raises(
        ValueError, match="same static last dimension, got 5 and 4"
    ):
        layer(tf.zeros([4, 5]), history)
    layer = TargetAttention((3,), name="interest")
    with pytest.raises(
        ValueError, match="`history` of the layer 'interest' must"
    ):
        layer(tf.zeros([4, 4]), tf.zeros([4, 3, 4]))
    with pytest.raises(tf.errors.InvalidArgumentError):
        layer(tf.zeros([3, 4]), history)


def test_arguments_of_other_kinds(rng):
    with pytest.raises(
        TypeError, match="`units` must be a list of sizes, got 36"
    ):
        TargetAttention(36)
    with pytest.raises(
        TypeError, match="`activation` must be a name or a function"
    ):
        TargetAttention((3,), keras.layers.PReLU())
    with pytest.raises(
        ValueError, match="one row for each sequence of `history`"
    ):
        TargetAttention((3,))(tf.zeros([4, 1, 4]), batch(rng))
