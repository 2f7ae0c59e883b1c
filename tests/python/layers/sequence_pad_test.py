"""lodestar.layers.SequencePad: padding, and the mask that comes with it."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from lodestar import LoDTensor
from lodestar.layers import SequencePad, SequencePool


def _batch(lengths=(2, 0, 3)):
    rows = tf.reshape(tf.range(1.0, 1 + 2 * sum(lengths)), [-1, 2])
    return tf.RaggedTensor.from_row_lengths(rows, lengths)


def test_padding_and_mask():
    padded = SequencePad(pad_value=-1.0)(_batch())
    assert padded.numpy().tolist() == [
        [[1, 2], [3, 4], [-1, -1]],
        [[-1, -1], [-1, -1], [-1, -1]],
        [[5, 6], [7, 8], [9, 10]],
    ]
    assert SequencePad(4).compute_mask(_batch()).numpy().tolist() == [
        [True, True, False, False],
        [False, False, False, False],
        [True, True, True, False],
    ]


def test_two_levels_pad_the_last():
    nested = tf.RaggedTensor.from_row_lengths(_batch(), [2, 0, 1])
    layer = SequencePad()
    np.testing.assert_array_equal(layer(nested), layer(_batch()))
    np.testing.assert_array_equal(
        layer.compute_mask(nested), layer.compute_mask(_batch())
    )
    np.testing.assert_array_equal(
        layer(LoDTensor.from_ragged(nested)), layer(_batch())
    )


@pytest.mark.parametrize("lengths", [(0, 0), ()])
def test_one_step_at_least(lengths):
    layer = SequencePad()
    x = _batch(lengths)
    assert layer(x).shape == (len(lengths), 1, 2)
    assert layer.compute_mask(x).shape == (len(lengths), 1)
    assert not np.any(layer.compute_mask(x))


@pytest.mark.parametrize("kind", [tf.RaggedTensor, LoDTensor])
def test_mask_reaches_keras_layers(kind):
    # GlobalAveragePooling1D means over what the mask leaves.
    x = _batch()
    want = SequencePool("mean")(x)
    inputs = keras.Input((None, 2), ragged=True)
    average = keras.layers.GlobalAveragePooling1D()
    model = keras.Model(inputs, average(SequencePad(pad_value=7.0)(inputs)))
    for got in (
        average(SequencePad(pad_value=7.0)(x)),
        tf.function(lambda x: average(SequencePad(5, 7.0)(x)))(x),
        model(x),
        model.predict(x, verbose=0),
    ):
        # An empty sequence has no mean: Keras divides by zero.
        np.testing.assert_allclose(
            tf.gather(got, [0, 2]), tf.gather(want, [0, 2])
        )
    if kind is LoDTensor:
        got = average(SequencePad(pad_value=7.0)(LoDTensor.from_ragged(x)))
        np.testing.assert_allclose(got[0], want[0])


def test_sequential_model_saves_and_loads(tmp_path):
    uniform = keras.initializers.RandomUniform(-0.5, 0.5, seed=3)
    model = keras.Sequential(
        [
            keras.Input((None, 2), ragged=True),
            SequencePad(6, pad_value=3.0),
            keras.layers.GRU(4, kernel_initializer=uniform),
        ]
    )
    x = _batch()
    gru = model.layers[-1]
    want = [gru(x[b : b + 1].to_tensor())[0] for b in (0, 2)]
    np.testing.assert_allclose(tf.gather(model(x), [0, 2]), want, atol=1e-6)
    np.testing.assert_array_equal(model(x)[1], np.zeros(4))
    path = str(tmp_path / "model.keras")
    model.save(path)
    np.testing.assert_array_equal(keras.saving.load_model(path)(x), model(x))


def test_symbolic_shapes():
    one = keras.Input((None, 2), ragged=True, batch_size=3)
    assert SequencePad()(one).shape == (3, None, 2)
    assert SequencePad(4)(one).shape == (3, 4, 2)
    two = keras.Input((None, None, 2), ragged=True, batch_size=3)
    assert SequencePad(4)(two).shape == (None, 4, 2)
    assert not SequencePad(4)(two).ragged
    mask = SequencePad(4).compute_mask(one)
    assert (mask.shape, mask.dtype) == ((3, 4), "bool")


def test_integers_are_padded_with_integers():
    x = tf.ragged.constant([[1, 2], [3]], dtype=tf.int64)
    padded = SequencePad(pad_value=-5)(x)
    assert padded.dtype == tf.int64
    assert padded.numpy().tolist() == [[1, 2], [3, -5]]
    with pytest.raises(ValueError, match="`pad_value` is 0.5"):
        SequencePad(pad_value=0.5)(x)


def test_ids_beyond_float_precision_and_strings():
    x = tf.ragged.constant([[1], []], dtype=tf.int64)
    layer = SequencePad(pad_value=2**60 + 1)
    again = SequencePad.from_config(layer.get_config())
    assert again(x).numpy().tolist() == [[1], [2**60 + 1]]
    words = tf.ragged.constant([["a", "b"], []])
    assert SequencePad()(words).numpy().tolist() == [[b"a", b"b"], [b"", b""]]


def test_config():
    layer = SequencePad(7, 1.5, name="pad")
    again = SequencePad.from_config(layer.get_config())
    assert (again.maxlen, again.pad_value, again.name) == (7, 1.5, "pad")
    assert SequencePad.from_config(SequencePad().get_config()).maxlen is None


def test_what_is_refused():
    with pytest.raises(
        ValueError, match="`maxlen` is 0, wanted an integer of 1 or"
    ):
        SequencePad(0)
    with pytest.raises(ValueError, match="`maxlen` is 2.5, wanted an integer"):
        SequencePad(2.5)
    with pytest.raises(tf.errors.InvalidArgumentError, match="3.*2"):
        SequencePad(2)(_batch())
