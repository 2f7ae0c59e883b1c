"""lodestar.layers.SequenceUnpad, and recurrent layers between pad and unpad."""

import keras
import numpy as np
import pytest
import tensorflow as tf

import lodestar
from lodestar import LoDTensor
from lodestar.layers import (
    SequencePad,
    SequencePool,
    SequenceUnpad,
    ToLoD,
    ToRagged,
)

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
    """What `layer` makes of each innermost sequence alone, one after another."""
    rows, splits = x.flat_values, x.nested_row_splits[-1].numpy()
    outputs = [
        layer(rows[tf.newaxis, begin:end])[0]
        for begin, end in zip(splits, splits[1:], strict=False)
        if begin < end
    ]
    return x.with_flat_values(tf.concat(outputs, 0))


def _model(kind, levels, inside=lambda x: x):
    """Pad, recurrent, unpad as a model, and the recurrent layer alone."""
    inputs = _input(levels)
    x = inside(inputs)
    layer = _make_recurrent(kind)
    outputs = SequenceUnpad()([layer(SequencePad()(x)), x])
    return keras.Model(inputs, ToRagged()(outputs)), layer


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
    for call in (model, tf.function(model)):
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
    model, layer = _model("gru", 2, inside=ToLoD())
    np.testing.assert_allclose(
        model(x).flat_values, _loop(layer, x).flat_values, atol=1e-6
    )


def test_lod_outside_of_a_model():
    x = _batch(2)
    layer = _make_recurrent("gru")
    lod = LoDTensor.from_ragged(x)
    got = SequenceUnpad()([layer(SequencePad()(lod)), lod])
    assert isinstance(got, LoDTensor)
    np.testing.assert_allclose(
        got.values, _loop(layer, x).flat_values, atol=1e-6
    )


@pytest.mark.parametrize("kind", ["gru", "lstm"])
@pytest.mark.parametrize("lengths", [[0, 0, 0, 0, 0], [2, 2, 2, 2, 2]])
def test_batches_of_empty_sequences_alone(kind, lengths):
    model, layer = _model(kind, 2)
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
    # One number a sequence, so that Keras's loss is a mean over sequences.
    target = np.array([[0.5], [1.0], [-1.0], [2.0], [0.0]], np.float32)
    inputs = _input(levels)
    layer = _make_recurrent("gru")
    steps = SequenceUnpad()([layer(SequencePad()(inputs)), inputs])
    head = keras.layers.Dense(1, kernel_initializer="ones")
    pooled = SequencePool("sum")(steps)
    if levels == 2:
        pooled = SequencePool("sum")(pooled)
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


def test_lengths_in_place_of_like():
    padded = tf.reshape(tf.range(12.0), [2, 3, 2])
    got = SequenceUnpad()([padded, tf.constant([2, 0])])
    assert got.to_list() == [[[0, 1], [2, 3]], []]
    inputs = [keras.Input((3, 2)), keras.Input((), dtype="int32")]
    outputs = SequenceUnpad()(inputs)
    assert (outputs.shape, outputs.ragged) == ((None, None, 2), True)
    model = keras.Model(inputs, outputs)
    got = model.predict([padded, np.array([1, 3], np.int32)], verbose=0)
    np.testing.assert_array_equal(got.row_lengths(), [1, 3])


def test_dtype_is_that_of_padded():
    inputs = _input()
    layer = keras.layers.GRU(3, return_sequences=True, dtype="mixed_float16")
    padded = layer(SequencePad(dtype="mixed_float16")(inputs))
    outputs = SequenceUnpad(dtype="mixed_float16")([padded, inputs])
    assert outputs.dtype == "float16"
    assert keras.Model(inputs, outputs)(_batch()).dtype == tf.float16


def test_no_warning_and_no_mask_behind_it(recwarn):
    inputs = _input()
    padded = _make_recurrent("gru")(SequencePad()(inputs))
    layer = SequenceUnpad()
    layer([padded, inputs])
    x = _batch()
    layer([_make_recurrent("gru")(SequencePad()(x)), x])
    assert layer.compute_mask([padded, inputs]) is None
    assert not [w for w in recwarn if "mask" in str(w.message)]


def test_config():
    layer = SequenceUnpad(name="cut", dtype="mixed_bfloat16")
    again = SequenceUnpad.from_config(layer.get_config())
    assert again.get_config() == layer.get_config()
    assert again.name == "cut"


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        (
            lambda: tf.ones([2, 3, 2]),
            r"cut takes \[padded, like\], found EagerTensor",
        ),
        (
            lambda: [tf.ones([2, 3])] * 3,
            r"cut takes \[padded, like\], found 3 inputs",
        ),
        (
            lambda: [_batch(), _batch()],
            r"cut needs a dense `padded`, found a ragged one of shape \(5, ",
        ),
        (
            lambda: [keras.Input(()), _input()],
            r"cut needs `padded` \[B, T, ...\], found the shape \(None,\)",
        ),
        (
            lambda: [keras.Input((4, 2)), keras.Input((4, 2))],
            r"cut needs a ragged `like`, or integers \[B\], found a dense one "
            r"of shape \(None, 4, 2\) and dtype float32",
        ),
        (
            lambda: [keras.Input((4, 2)), keras.Input(())],
            r"cut needs a ragged `like`, .* dtype float32",
        ),
    ],
)
def test_inputs_that_are_refused(inputs, message):
    with pytest.raises(ValueError, match=message):
        SequenceUnpad(name="cut")(inputs())


def test_lengths_beyond_the_steps_are_refused():
    with pytest.raises(tf.errors.InvalidArgumentError):
        SequenceUnpad()([tf.ones([2, 3, 2]), tf.constant([4, 0])])
    with pytest.raises(tf.errors.InvalidArgumentError):
        SequenceUnpad()([tf.ones([2, 3, 2]), _batch(1, [1, 2, 1])])
