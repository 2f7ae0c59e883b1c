"""Keras's recurrent layers between lodestar.sequence.pad and unpad."""

import keras
import numpy as np
import pytest
import tensorflow as tf

import lodestar
from lodestar.ragged import LoDTensor
from lodestar.sequence import pad, pool, unpad

_LENGTHS = [3, 0, 1, 5, 0]
_UPPER = [2, 0, 3]
_WIDTH = 2


def _batch(levels=1, lengths=_LENGTHS, seed=5):
    rng = np.random.default_rng(seed)
    rows = rng.normal(size=(sum(lengths), _WIDTH)).astype(np.float32)
    x = tf.RaggedTensor.from_row_lengths(rows, lengths)
    return x if levels == 1 else tf.RaggedTensor.from_row_lengths(x, _UPPER)


def _input(levels=1):
    return keras.Input((*[None] * levels, _WIDTH), ragged=True, name="x")


def _make_recurrent(kind):
    uniform = keras.initializers.RandomUniform(-0.5, 0.5, seed=3)
    options = {
        "return_sequences": True,
        "kernel_initializer": uniform,
        "recurrent_initializer": uniform,
    }
    if kind == "bidirectional":
        return keras.layers.Bidirectional(keras.layers.LSTM(2, **options))
    return {"gru": keras.layers.GRU, "lstm": keras.layers.LSTM}[kind](
        3, **options
    )


def _loop(layer, x):
    """Applies `layer` to each innermost sequence alone."""
    rows, splits = x.flat_values, x.nested_row_splits[-1].numpy()
    outputs = [
        layer(rows[tf.newaxis, begin:end])[0]
        for begin, end in zip(splits, splits[1:], strict=False)
        if begin < end
    ]
    return x.with_flat_values(tf.concat(outputs, 0))


def _steps(layer, x):
    padded, lengths = pad(x)
    return unpad(layer(padded), lengths, like=x)


def _model(kind, levels, inside=lambda x: x):
    """Returns a model of pad, recurrent layer and unpad, and the recurrent layer."""
    inputs = _input(levels)
    layer = _make_recurrent(kind)
    outputs = _steps(layer, inside(inputs))
    return keras.Model(inputs, LoDTensor.to_ragged(outputs)), layer


class Subclassed(keras.Model):
    """The same model, with the functions in `call`."""

    def __init__(self, layer):
        super().__init__()
        self.layer = layer

    def call(self, x):
        return _steps(self.layer, x)


@pytest.mark.parametrize("kind", ["gru", "lstm", "bidirectional"])
@pytest.mark.parametrize("levels", [1, 2])
def test_recurrent_layer_equals_a_loop_over_sequences(kind, levels):
    model, layer = _model(kind, levels)
    x = _batch(levels)
    variables = layer.trainable_variables
    target = tf.reshape(tf.range(4.0 * 9), [9, 4])[:, : layer.output.shape[-1]]

    def step(call):
        with tf.GradientTape() as tape:
            tape.watch(x.flat_values)
            y = call(x)
            loss = tf.reduce_sum(y.flat_values * target)
        return y, tape.gradient(loss, [x.flat_values, *variables])

    want, want_gradients = step(lambda x: _loop(layer, x))
    assert np.ptp(want.flat_values) > 0.1
    calls = [model, tf.function(model), tf.function(Subclassed(layer))]
    if kind != "lstm":
        # Keras's LSTM cannot be called eagerly with a mask.
        calls.append(lambda x: _steps(layer, x))
    for call in calls:
        got, gradients = step(call)
        np.testing.assert_allclose(
            got.flat_values, want.flat_values, rtol=1e-4, atol=1e-6
        )
        assert got.ragged_rank == levels
        for mine, theirs in zip(
            got.nested_row_splits, x.nested_row_splits, strict=True
        ):
            np.testing.assert_array_equal(mine, theirs)
        for mine, theirs in zip(gradients, want_gradients, strict=True):
            np.testing.assert_allclose(mine, theirs, rtol=1e-4, atol=1e-5)


def test_lod_inside_the_model_changes_nothing():
    x = _batch(2)
    model, layer = _model("gru", 2, inside=LoDTensor.from_ragged)
    np.testing.assert_allclose(
        model(x).flat_values, _loop(layer, x).flat_values, atol=1e-6
    )


def test_lod_outside_of_a_model():
    x = _batch(2)
    layer = _make_recurrent("gru")
    got = _steps(layer, LoDTensor.from_ragged(x))
    assert isinstance(got, LoDTensor)
    np.testing.assert_allclose(
        got.values, _loop(layer, x).flat_values, atol=1e-6
    )


@pytest.mark.parametrize("kind", ["gru", "lstm"])
@pytest.mark.parametrize("lengths", [[0, 0, 0, 0, 0], [2, 2, 2, 2, 2]])
def test_batches_of_empty_sequences_alone(kind, lengths):
    model, _ = _model(kind, 2)
    got = model(_batch(2, lengths))
    assert got.flat_values.shape == (sum(lengths), 3)
    np.testing.assert_array_equal(got.values.row_lengths(), lengths)


def test_batch_without_any_sequence():
    x = _batch(2)[1:2]
    assert x.values.nrows() == 0
    for kind, call in (("gru", lambda f: f), ("lstm", tf.function)):
        got = call(_model(kind, 2)[0])(x)
        assert got.to_list() == [[]]
        assert got.flat_values.shape == (0, 3)


def test_clone_shares_nothing():
    model, layer = _model("gru", 1)
    clone = keras.models.clone_model(model, input_tensors=_input())
    clone.set_weights([2 * w for w in model.get_weights()])
    x = _batch()
    np.testing.assert_allclose(
        model(x).flat_values, _loop(layer, x).flat_values, atol=1e-6
    )
    assert np.ptp(model(x).flat_values - clone(x).flat_values) > 0.01


@pytest.mark.parametrize("levels", [1, 2])
@pytest.mark.parametrize("run_eagerly", [False, True])
def test_fit_equals_training_on_a_loop(levels, run_eagerly):
    x = _batch(levels)
    # One value per sequence, so that Keras's loss averages over sequences.
    target = np.array([[0.5], [1.0], [-1.0], [2.0], [0.0]], np.float32)
    inputs = _input(levels)
    layer = _make_recurrent("gru")
    head = keras.layers.Dense(1, kernel_initializer="ones")
    pooled = pool(_steps(layer, inputs))
    if levels == 2:
        pooled = pool(pooled)
        target = target[:3]
    model = keras.Model(inputs, head(pooled))
    variables = model.trainable_variables
    start = [v.numpy() for v in variables]

    with tf.GradientTape() as tape:
        pooled = tf.reduce_sum(_loop(layer, x), axis=levels)
        if levels == 2:
            pooled = tf.reduce_sum(pooled, axis=1)
        loss = tf.reduce_mean((head(pooled) - target) ** 2)
    want = [
        value - 0.1 * gradient
        for value, gradient in zip(
            start, tape.gradient(loss, variables), strict=True
        )
    ]
    model.compile(keras.optimizers.SGD(0.1), "mse", run_eagerly=run_eagerly)
    history = model.fit(x, target, epochs=1, batch_size=5, verbose=0)
    np.testing.assert_allclose(history.history["loss"], [loss], rtol=1e-5)
    for got, value in zip(variables, want, strict=True):
        np.testing.assert_allclose(got, value, rtol=1e-4, atol=1e-6)
    # Batches of uneven size, the last one of empty sequences only.
    model.fit(x, target, epochs=2, batch_size=2, verbose=0)


@pytest.mark.parametrize("levels", [1, 2])
def test_saved_loaded_exported_and_served(levels, tmp_path):
    model, _ = _model("gru", levels)
    x = _batch(levels)
    want = model(x)

    path = str(tmp_path / "model.keras")
    model.save(path)
    loaded = keras.saving.load_model(path)
    np.testing.assert_array_equal(loaded(x).flat_values, want.flat_values)
    path = str(tmp_path / "model.weights.h5")
    model.save_weights(path)
    other, _ = _model("gru", levels)
    other.set_weights([np.zeros_like(w) for w in other.get_weights()])
    other.load_weights(path)
    np.testing.assert_array_equal(other(x).flat_values, want.flat_values)

    path = str(tmp_path / "exported")
    lodestar.export.save(model, path, "values_and_lengths")
    exported = tf.saved_model.load(path)
    served = exported.serve({"x": x})["output_0"]
    np.testing.assert_allclose(served.flat_values, want.flat_values, atol=1e-6)
    lengths = {"x_lengths": tf.constant(_LENGTHS, tf.int64)}
    if levels == 2:
        lengths = {
            "x_lengths_0": tf.constant(_UPPER, tf.int64),
            "x_lengths_1": lengths["x_lengths"],
        }
    served = exported.signatures["serving_default"](
        x_values=x.flat_values, **lengths
    )["output_0"]
    np.testing.assert_allclose(served.flat_values, want.flat_values, atol=1e-6)
    assert served.ragged_rank == levels


def test_dtype_is_that_of_padded():
    inputs = _input()
    layer = keras.layers.GRU(3, return_sequences=True, dtype="mixed_float16")
    outputs = _steps(layer, inputs)
    assert outputs.dtype == "float16"
    assert keras.Model(inputs, outputs)(_batch()).dtype == tf.float16


def _average(x, **options):
    """Returns GlobalAveragePooling1D of the unmasked steps."""
    return keras.layers.GlobalAveragePooling1D()(pad(x, 7.0, **options)[0])


@pytest.mark.parametrize("maxlen", [None, 6])
def test_mask_reaches_keras_layers(maxlen):
    x = _batch()
    want = pool(x, "mean")
    inputs = _input()
    model = keras.Model(inputs, _average(inputs, maxlen=maxlen))
    for got in (
        _average(x, maxlen=maxlen),
        _average(LoDTensor.from_ragged(x), maxlen=maxlen),
        tf.function(_average)(x, maxlen=maxlen),
        model(x),
        model.predict(x, verbose=0),
    ):
        # An empty sequence has no mean: Keras divides by zero.
        some = [0, 2, 3]
        np.testing.assert_allclose(
            tf.gather(got, some), tf.gather(want, some), rtol=1e-5, atol=1e-6
        )


def test_mask_reaches_the_loss():
    # After a layer that passes the mask on without reading it.
    x = _batch()
    inputs = _input()
    outputs = keras.layers.Dropout(0.5)(pad(inputs, 7.0)[0])
    model = keras.Model(inputs, outputs)
    model.compile("sgd", keras.losses.MeanSquaredError())
    loss = model.evaluate(x, np.zeros([5, 5, _WIDTH]), 5, verbose=0)
    np.testing.assert_allclose(
        loss, np.mean(np.square(x.flat_values)), rtol=1e-5
    )


def test_symbolic_shapes_of_padding_and_mask():
    one = keras.Input((None, 2), ragged=True, batch_size=3)
    padded, lengths = pad(one)
    assert (padded.shape, lengths.shape) == ((3, None, 2), (3,))
    padded, _ = pad(one, maxlen=4)
    mask = padded._keras_mask
    assert padded.shape == (3, 4, 2)
    assert (mask.shape, mask.dtype) == ((3, 4), "bool")
    two = keras.Input((None, None, 2), ragged=True, batch_size=3)
    padded, lengths = pad(two, maxlen=4)
    assert (padded.shape, lengths.shape) == ((None, 4, 2), (None,))
    assert not padded.ragged


def test_lengths_of_the_user():
    inputs = [keras.Input((3, 2)), keras.Input((), dtype="int32")]
    outputs = unpad(*inputs)
    assert (outputs.shape, outputs.ragged) == ((None, None, 2), True)
    model = keras.Model(inputs, outputs)
    padded = tf.reshape(tf.range(12.0), [2, 3, 2])
    got = model.predict([padded, np.array([1, 3], np.int32)], verbose=0)
    np.testing.assert_array_equal(got.row_lengths(), [1, 3])


def test_no_warning_and_no_mask_after_unpad(recwarn):
    layer = _make_recurrent("gru")
    assert getattr(_steps(layer, _input()), "_keras_mask", None) is None
    assert getattr(_steps(layer, _batch()), "_keras_mask", None) is None
    assert not [w for w in recwarn if "mask" in str(w.message)]
