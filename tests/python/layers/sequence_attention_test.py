"""Compares lodestar.layers.SequenceAttention with MultiHeadAttention on padding."""

import keras
import numpy as np
import pytest
import tensorflow as tf

import lodestar
from lodestar import sequence
from lodestar.layers import SequenceAttention

LENGTHS = [3, 0, 17, 1, 5, 2, 9]
OTHERS = [2, 5, 0, 1, 30, 2, 1]


def batch(rng, lengths=LENGTHS, dim=6):
    rows = rng.normal(size=(sum(lengths), dim)).astype(np.float32)
    return tf.RaggedTensor.from_row_lengths(rows, lengths)


def by_padding(keras_layer, query, value, key=None, **options):
    """Returns the rows of MultiHeadAttention on padded sequences."""
    padded, lengths = sequence.pad(query)
    values, value_lengths = sequence.pad(value)
    keys = values if key is None else sequence.pad(key)[0]
    mask = tf.sequence_mask(value_lengths, values.shape[1])[:, tf.newaxis]
    rows = keras_layer(padded, values, keys, attention_mask=mask, **options)
    return sequence.unpad(rows, lengths)


def same_layer(layer, *shapes):
    """Returns a MultiHeadAttention with the weights of `layer`, whose biases differ."""
    theirs = keras.layers.MultiHeadAttention(
        layer.num_heads,
        layer.key_dim,
        layer.value_dim,
        use_bias=layer.use_bias,
        output_shape=layer.output_dim,
    )
    theirs.build(*shapes)
    rng = np.random.default_rng(5)
    layer.set_weights([rng.normal(size=w.shape) for w in layer.get_weights()])
    theirs.set_weights(layer.get_weights())
    return theirs


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("options", [{}, {"value_dim": 5, "use_bias": False}])
def test_self_attention_and_gradients(causal, options, rng):
    x = batch(rng)
    layer = SequenceAttention(3, 4, causal=causal, **options)
    layer(x)
    theirs = same_layer(layer, x.shape, x.shape)
    with tf.GradientTape(persistent=True) as tape:
        tape.watch(x.flat_values)
        ours = layer(x).flat_values
        wanted = by_padding(theirs, x, x, use_causal_mask=causal).flat_values
        our_loss, loss = (tf.reduce_sum(y**2) for y in (ours, wanted))
    np.testing.assert_allclose(ours, wanted, atol=1e-5)
    for mine, other in zip(
        tape.gradient(our_loss, [x.flat_values, *layer.trainable_weights]),
        tape.gradient(loss, [x.flat_values, *theirs.trainable_weights]),
        strict=True,
    ):
        np.testing.assert_allclose(mine, other, rtol=1e-4, atol=1e-3)


def test_values_and_keys_of_their_own(rng):
    query, value, key = batch(rng), batch(rng, OTHERS, 4), batch(rng, OTHERS, 3)
    layer = SequenceAttention(2, 4, output_dim=7)
    got = layer(query, value, key)
    assert got.shape == (7, None, 7)
    np.testing.assert_array_equal(got.row_splits, query.row_splits)
    theirs = same_layer(layer, query.shape, value.shape, key.shape)
    wanted = by_padding(theirs, query, value, key)
    nonempty = [b for b, length in enumerate(OTHERS) if length]
    np.testing.assert_allclose(
        tf.gather(layer(query, value, key), nonempty).flat_values,
        tf.gather(wanted, nonempty).flat_values,
        atol=1e-5,
    )
    # Without values there is only the bias.
    bias = layer.get_weights()[-1]
    np.testing.assert_allclose(
        layer(query, value, key)[2], np.tile(bias, (17, 1)), rtol=1e-6
    )


def test_a_dense_query_is_one_per_sequence(rng):
    query = tf.constant(rng.normal(size=(7, 6)), tf.float32)
    value = batch(rng)
    layer = SequenceAttention(2, 4)
    got = layer(query, value)
    assert got.shape == (7, 6)
    ragged = tf.RaggedTensor.from_row_lengths(query, [1] * 7)
    np.testing.assert_allclose(got, layer(ragged, value).flat_values, atol=1e-6)
    symbolic = layer(keras.Input((6,)), keras.Input((None, 6), ragged=True))
    assert symbolic.shape == (None, 6) and not symbolic.ragged


def test_dropout_only_in_training(rng):
    x = batch(rng)
    layer = SequenceAttention(2, 3, dropout=0.5, seed=3)
    plain = SequenceAttention(2, 3)
    plain.build(x.shape)
    layer.build(x.shape)
    plain.set_weights(layer.get_weights())
    np.testing.assert_array_equal(layer(x).flat_values, plain(x).flat_values)
    first, second = (layer(x, training=True).flat_values for _ in "ab")
    assert np.any(first != plain(x).flat_values)
    assert np.any(first != second)


def test_errors(rng):
    x = batch(rng)
    for size in ("num_heads", "key_dim", "value_dim", "output_dim"):
        with pytest.raises(ValueError, match=f"`{size}`"):
            SequenceAttention(**{"num_heads": 1, "key_dim": 1, size: 0})
    with pytest.raises(TypeError, match="no argument `use_causal_mask`"):
        SequenceAttention(1, 2, use_causal_mask=True)
    layer = SequenceAttention(2, 3, causal=True, name="steps")
    with pytest.raises(
        ValueError, match="`query` of the layer 'steps' must be rag"
    ):
        layer(tf.zeros([2, 3, 6]))
    with pytest.raises(
        ValueError, match="`value` of the layer 'steps' must be rag"
    ):
        layer(x, tf.zeros([7, 3, 6]))
    with pytest.raises(ValueError, match="must have a static last dimension"):
        SequenceAttention(1, 2)(keras.Input((None, None), ragged=True))
    with pytest.raises(tf.errors.InvalidArgumentError, match="same lengths"):
        layer(x, batch(rng, OTHERS))


def test_an_export_loads_without_warnings(tmp_path, caplog):
    x = keras.Input((None, 4), ragged=True, name="x")
    y = SequenceAttention(num_heads=2, key_dim=2, causal=True)(x)
    model = keras.Model(x, sequence.pool(y, "last"))
    lodestar.export.save(model, tmp_path / "served")
    caplog.clear()
    tf.saved_model.load(tmp_path / "served")
    assert not caplog.records


def test_a_list_is_refused(rng):
    x = batch(rng)
    with pytest.raises(TypeError, match="as separate arguments, got a list"):
        SequenceAttention(2, 3)([x, x])
