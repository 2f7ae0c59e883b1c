"""Compares lodestar.layers.SequenceConv with Conv1D on each sequence alone."""

import keras
import numpy as np
import pytest
import tensorflow as tf

import lodestar
from lodestar.layers import DynamicEmbedding, SequenceConv

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


def test_two_levels_convolve_the_last(rng):
    x = _batch(rng)
    layer = SequenceConv(2, use_bias=False)
    nested = tf.RaggedTensor.from_row_lengths(x, [2, 0, 3])
    got = layer(nested)
    assert len(layer.weights) == 1
    np.testing.assert_array_equal(got.flat_values, layer(x).flat_values)
    np.testing.assert_array_equal(got.row_splits, nested.row_splits)


def test_mixed_policy_keeps_float32_weights(rng):
    layer = SequenceConv(2, activation="relu", dtype="mixed_float16")
    x = _batch(rng)
    got = layer(x)
    assert got.dtype == tf.float16
    assert {w.dtype for w in layer.weights} == {"float32"}
    exact = SequenceConv(2, activation="relu")
    exact.build(x.shape)
    exact.set_weights(layer.get_weights())
    np.testing.assert_allclose(
        got.flat_values, exact(x).flat_values, rtol=1e-2, atol=1e-2
    )


def test_float64_policy_and_symbolic_activation(rng):
    layer = SequenceConv(3, activation="softmax", dtype="float64")
    got = layer(_batch(rng))
    assert got.dtype == tf.float64
    np.testing.assert_allclose(tf.reduce_sum(got.flat_values, -1), 1.0)


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
        name="conv",
    )
    config = layer.get_config()
    again = SequenceConv.from_config(config)
    assert again.get_config() == config
    assert (again.filters, again.kernel_size, again.start) == (4, 5, -4)
    assert again.activation is keras.activations.relu
    assert isinstance(again.kernel_initializer, keras.initializers.HeNormal)
    again.build((None, None, 3))
    assert again.kernel.shape == (5, 3, 4)
    np.testing.assert_array_equal(again.bias, np.ones(4))
    assert isinstance(again.bias.constraint, keras.constraints.NonNeg)
    squares = np.sum(np.square(again.kernel))
    np.testing.assert_allclose(
        sum(again.losses), 0.5 * squares + 0.01 * 4, rtol=1e-5
    )


def test_weights_file(tmp_path, rng):
    inputs = keras.Input((None, 4), ragged=True)
    path = str(tmp_path / "conv.weights.h5")
    first, second = (
        keras.Model(inputs, SequenceConv(2, name="conv")(inputs))
        for _ in range(2)
    )
    first.save_weights(path)
    second.load_weights(path)
    x = _batch(rng)
    np.testing.assert_array_equal(first(x).flat_values, second(x).flat_values)


def test_embedded_ids_convolved_and_pooled(tmp_path):
    # Whether 7 comes right after 3, which a bag of ids does not show.
    keras.utils.set_random_seed(1)
    rng = np.random.default_rng(3)
    lengths = rng.integers(0, 6, 200)
    ids = tf.RaggedTensor.from_row_lengths(
        rng.choice([3, 7, 2**40], lengths.sum()), lengths
    )
    labels = np.array(
        [[(3, 7) in zip(s, s[1:], strict=False)] for s in ids.to_list()],
        np.float32,
    )
    inputs = keras.Input((None,), dtype="int64", ragged=True, name="ids")
    rows = DynamicEmbedding(8, seed=1, name="embedding")(inputs)
    rows = SequenceConv(16, 2, 0, activation="tanh")(rows)
    assert (rows.shape, rows.ragged) == ((None, None, 16), True)
    pooled = lodestar.sequence.pool(rows, "max")
    outputs = keras.layers.Dense(1, activation="sigmoid")(pooled)
    model = keras.Model(inputs, outputs)
    model.compile(
        lodestar.optimizers.Adam(0.03),
        "binary_crossentropy",
        metrics=["accuracy"],
    )
    history = model.fit(ids, labels, epochs=40, batch_size=50, verbose=0)
    assert history.history["accuracy"][-1] > 0.98
    assert int(model.get_layer("embedding").table.size()) == 3

    want = model.predict(ids, verbose=0)
    path = str(tmp_path / "model.keras")
    model.save(path)
    loaded = keras.saving.load_model(path)
    np.testing.assert_array_equal(loaded.predict(ids, verbose=0), want)
    path = str(tmp_path / "exported")
    lodestar.export.save(model, path)
    exported = tf.saved_model.load(path)
    served = exported.serve({"ids": ids})["output_0"]
    np.testing.assert_allclose(served, want, atol=1e-6)


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


def test_trained_rows_are_saved_and_exported(tmp_path, rng):
    # Only the ends of a sequence distinguish 1 0 from 0 1.
    inputs = keras.Input((None, 1), ragged=True, name="x")
    rows = SequenceConv(
        4, 2, -1, padding_trainable=True, padding_initializer="glorot_normal"
    )(inputs)
    outputs = keras.layers.Dense(1)(lodestar.sequence.pool(rows))
    model = keras.Model(inputs, outputs)
    x = _batch(rng, 1)
    model.compile(keras.optimizers.Adam(0.05), "mse")
    before = model.layers[1].padding.numpy()
    model.fit(x, np.arange(5.0), epochs=3, verbose=0)
    assert (model.layers[1].padding.numpy() != before).any()
    want = model(x)
    model.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    np.testing.assert_array_equal(loaded(x), want)
    lodestar.export.save(model, str(tmp_path / "exported"))
    served = tf.saved_model.load(str(tmp_path / "exported"))
    np.testing.assert_allclose(
        served.serve({"x": x})["output_0"], want, atol=1e-6
    )


def test_padding_under_a_mixed_policy(rng):
    x = _batch(rng)
    options = dict(padding_trainable=True, padding_initializer="ones")
    layer = SequenceConv(2, dtype="mixed_float16", **options)
    assert layer(x).dtype == tf.float16
    assert layer.padding.dtype == "float32"
    exact = SequenceConv(2, **options)
    exact.build(x.shape)
    exact.set_weights(layer.get_weights())
    np.testing.assert_allclose(
        layer(x).flat_values, exact(x).flat_values, rtol=1e-2, atol=1e-2
    )
    again = SequenceConv.from_config(layer.get_config())
    assert again.padding_trainable
    assert isinstance(again.padding_initializer, keras.initializers.Ones)


def test_filters_of_one_row_have_no_rows_around(rng):
    layer = SequenceConv(2, 1, padding_trainable=True)
    x = _batch(rng)
    assert layer(x).flat_values.shape == (13, 2)
    assert layer.padding.shape == (0, 4)


def test_a_layer_that_lost_the_ragged_type_is_named():
    x = keras.layers.Dense(2, name="tower")(keras.Input((None, 4), ragged=True))
    with pytest.raises(
        ValueError, match=r"'tower' \(Dense\) made it from a ragged tensor"
    ):
        SequenceConv(3)(x)
