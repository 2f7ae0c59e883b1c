"""lodestar.layers.PerStep."""

import keras
import numpy as np
import pytest
import tensorflow as tf

import lodestar
from lodestar.layers import PerStep

LENGTHS = [3, 0, 1, 2]


def batch(rng, dim=4, lengths=LENGTHS, dtype=np.float32):
    rows = rng.normal(size=(sum(lengths), dim)).astype(dtype)
    return tf.RaggedTensor.from_row_lengths(rows, lengths)


LAYERS = {
    "dense": lambda: keras.layers.Dense(3, activation="relu"),
    "normalization": keras.layers.LayerNormalization,
    "dropout": lambda: keras.layers.Dropout(0.5, seed=1),
    "model": lambda: keras.Sequential(
        [keras.layers.Dense(5, activation="tanh"), keras.layers.Dense(2)]
    ),
    "activation": lambda: keras.layers.Activation("gelu"),
    "function": lambda: tf.nn.relu,
}


@keras.saving.register_keras_serializable("test")
def doubled(rows):
    return rows * 2


@pytest.mark.parametrize("name", LAYERS)
def test_equals_the_layer_on_the_rows(name, rng):
    layer = LAYERS[name]()
    x = batch(rng)
    got = PerStep(layer)(x)
    np.testing.assert_array_equal(got.row_splits, x.row_splits)
    np.testing.assert_array_equal(got.flat_values, layer(x.flat_values))


@pytest.mark.parametrize(
    "make", [keras.layers.Add, keras.layers.Multiply, keras.layers.Concatenate]
)
def test_layers_of_several_inputs(make, rng):
    x, y = batch(rng), batch(rng)
    got = PerStep(make())([x, y])
    want = make()([x.flat_values, y.flat_values])
    np.testing.assert_array_equal(got.flat_values, want)


def test_structures(rng):
    x, y = batch(rng), batch(rng)
    layer = PerStep(
        lambda given: {"sum": given["x"] + given["y"], "x": given["x"]}
    )
    got = layer({"x": x, "y": y})
    np.testing.assert_array_equal(got["x"].flat_values, x.flat_values)
    np.testing.assert_array_equal(
        got["sum"].flat_values, x.flat_values + y.flat_values
    )
    inputs = {k: keras.Input((None, 4), ragged=True, name=k) for k in "xy"}
    symbolic = layer(inputs)
    assert symbolic["sum"].ragged and symbolic["sum"].shape == (None, None, 4)
    narrow = PerStep(lambda x: x)(x.with_row_splits_dtype(tf.int32))
    assert narrow.row_splits.dtype == tf.int32


def test_a_registered_function_is_saved(rng, tmp_path):
    x = keras.Input((None, 4), ragged=True, dtype="float64")
    model = keras.Model(x, lodestar.sequence.pool(PerStep(doubled)(x)))
    rows = batch(rng, dtype=np.float64)
    want = model(rows)
    assert want.dtype == tf.float64
    model.save(tmp_path / "m.keras")
    loaded = keras.models.load_model(tmp_path / "m.keras")
    np.testing.assert_array_equal(loaded(rows), want)


def test_a_subclassed_model_is_loaded_with_its_weights(rng, tmp_path):
    @keras.saving.register_keras_serializable("test")
    class Wrapped(keras.Model):
        def __init__(self, **kwargs):
            super().__init__(**kwargs)
            # A model without a shape, which builds its layers when it is called.
            self.rows = PerStep(LAYERS["model"]())

        def call(self, x):
            return lodestar.sequence.pool(self.rows(x), "sum")

    model = Wrapped()
    x = batch(rng)
    want = model(x)
    model.save(tmp_path / "m.keras")
    loaded = keras.models.load_model(tmp_path / "m.keras")
    np.testing.assert_array_equal(loaded(x), want)


def test_gradients(rng):
    x = batch(rng)
    layer = keras.layers.Dense(3, activation="tanh")
    with tf.GradientTape(persistent=True) as tape:
        tape.watch(x.flat_values)
        ours = tf.reduce_sum(PerStep(layer)(x).flat_values ** 2)
        theirs = tf.reduce_sum(layer(x.flat_values) ** 2)
    watched = [x.flat_values, *layer.trainable_weights]
    for mine, wanted in zip(
        tape.gradient(ours, watched),
        tape.gradient(theirs, watched),
        strict=True,
    ):
        np.testing.assert_array_equal(mine, wanted)


def test_layers_that_fail_without_rows(rng):
    """Keras takes a tensor of shape (0, D) for a bias."""
    x = batch(rng, lengths=[0, 0])
    assert PerStep(keras.layers.Add())([x, x]).to_list() == [[], []]


class Normalized(keras.layers.Layer):
    """A layer whose `call` does not name `training`."""

    def __init__(self):
        super().__init__()
        self.normal = keras.layers.BatchNormalization()

    def call(self, rows):
        return self.normal(rows)


STATISTICS = {
    "plain": keras.layers.BatchNormalization,
    "inside": Normalized,
    "regularized": lambda: keras.Sequential(
        [
            keras.layers.Dense(4, activity_regularizer="l2"),
            keras.layers.BatchNormalization(),
        ]
    ),
}


@pytest.mark.parametrize("name", STATISTICS)
@pytest.mark.parametrize("graph", [False, True])
def test_statistics_do_not_change_without_rows(name, graph, rng):
    layer = PerStep(STATISTICS[name]())
    call = tf.function(layer) if graph else layer
    # The first call also builds the layer.
    call(batch(rng, lengths=[0, 0]), training=True)
    mean, variance = layer.non_trainable_weights
    np.testing.assert_array_equal(mean, np.zeros(4))
    np.testing.assert_array_equal(variance, np.ones(4))
    call(batch(rng), training=True)
    assert np.any(keras.ops.convert_to_numpy(mean) != 0)


def test_statistics_with_losses_train(rng):
    x = keras.Input((None, 4), ragged=True)
    rows = PerStep(STATISTICS["regularized"]())(x)
    model = keras.Model(x, lodestar.sequence.pool(rows))
    model.compile("sgd", "mse")
    model.fit(batch(rng), np.ones((4, 4)), verbose=0)
    assert np.all(np.isfinite(model.predict(batch(rng), verbose=0)))


@pytest.mark.parametrize(
    "function, x, want",
    [
        (
            lambda x: tf.one_hot(x, 3),
            [[1], [], [2]],
            [[[0, 1, 0]], [], [[0, 0, 1]]],
        ),
        (tf.strings.length, [["a", "bcd"], []], [[1, 3], []]),
    ],
    ids=["integers", "strings"],
)
def test_functions_of_other_dtypes(function, x, want):
    x = tf.ragged.constant(x)
    assert PerStep(function)(x).to_list() == want
    symbolic = PerStep(function)(
        keras.Input((None,), ragged=True, dtype=x.dtype.name)
    )
    assert symbolic.ragged


def test_errors(rng):
    x, y = batch(rng), batch(rng, lengths=[3, 1, 0, 2])
    with pytest.raises(TypeError, match="`layer` must be a Keras layer"):
        PerStep(3)
    with pytest.raises(TypeError, match="no argument `units`"):
        PerStep(keras.layers.Dense(3), units=3)
    layer = PerStep(keras.layers.Add(), name="sums")
    for dense in (tf.zeros([4, 4]), keras.Input((4,))):
        with pytest.raises(
            ValueError, match="`inputs` of the layer 'sums' must be ragged"
        ):
            layer(dense)
    with pytest.raises(
        ValueError, match=r"`inputs\[1\]` of the layer 'sums' mu"
    ):
        layer([x, x.to_tensor()])
    with pytest.raises(
        tf.errors.InvalidArgumentError,
        match=r"`inputs\[1\]` and `inputs\[0\]` must have sequences of the same "
        "lengths; the first that differs is sequence 1",
    ):
        layer([x, y])
    nested = tf.RaggedTensor.from_row_lengths(x, [4])
    with pytest.raises(ValueError, match=r"`inputs\[1\]` must have 1 levels"):
        layer([x, nested])
    with pytest.raises(
        tf.errors.InvalidArgumentError,
        match="must return a row for each step, got 4",
    ):
        PerStep(lambda rows: tf.reduce_sum(rows, 0))(x)
    for rows in (x, keras.Input((None, 4), ragged=True)):
        with pytest.raises(ValueError, match="each step, got a scalar"):
            PerStep(tf.reduce_sum)(rows)
    with pytest.raises(TypeError, match="`layer` must be a Keras layer"):
        PerStep(keras.layers.Dense)
    with pytest.raises(TypeError, match="SequenceAttention acts on sequences"):
        PerStep(lodestar.layers.SequenceAttention(1, 2))
    with pytest.raises(
        TypeError, match="takes one argument, got 2. Pass several"
    ):
        layer(x, x)
    dense = keras.layers.Dense(2)
    with pytest.raises(ValueError, match="uses the variable .*kernel"):
        PerStep(lambda rows: dense(rows))(x)


def test_a_model_with_a_ragged_result_is_explained():
    x = keras.Input((None, 4), ragged=True)
    inner = keras.Model(x, PerStep(keras.layers.Dense(2))(x), name="inner")
    outer = keras.Input((None, 4), ragged=True)
    with pytest.raises(ValueError, match="'inner' .*`compute_output_spec`"):
        PerStep(keras.layers.Dense(3))(inner(outer))
