"""lodestar.layers.SequencePool: eager, symbolic, saved."""

import keras
import numpy as np
import pytest
import tensorflow as tf

import lodestar
from lodestar.layers import SequencePool


def test_eager_input():
    x = tf.ragged.constant([[1.0, 3.0], []])
    assert SequencePool("mean", 9.0)(x).numpy().tolist() == [2, 9]
    assert SequencePool()(
        lodestar.LoDTensor.from_ragged(x)
    ).numpy().tolist() == [
        4,
        0,
    ]


def test_model_trains_saves_and_loads(tmp_path):
    inputs = keras.Input((None, 3), ragged=True)
    pooled = SequencePool("sqrtn")(inputs)
    assert pooled.shape == (None, 3)
    model = keras.Model(inputs, keras.layers.Dense(1)(pooled))
    model.compile("sgd", "mse")
    x = tf.RaggedTensor.from_row_lengths(tf.ones([6, 3]), [1, 0, 3, 2])
    model.fit(x, np.ones([4, 1]), verbose=0)
    path = str(tmp_path / "model.keras")
    model.save(path)
    loaded = keras.saving.load_model(path)
    np.testing.assert_array_equal(loaded(x), model(x))
    layer = loaded.layers[1]
    assert (layer.combiner, layer.pad_value) == ("sqrtn", 0.0)


def test_two_ragged_dimensions_leave_one():
    inputs = keras.Input((None, None, 2), ragged=True)
    pooled = SequencePool()(inputs)
    assert pooled.shape == (None, None, 2)
    assert pooled.ragged
    twice = keras.Model(inputs, SequencePool()(pooled))
    x = tf.ragged.constant(
        [[[[1.0, 2.0]], []], []], ragged_rank=2, inner_shape=(2,)
    )
    assert twice(x).numpy().tolist() == [[1, 2], [0, 0]]


@pytest.mark.parametrize("policy", ["float32", "mixed_float16"])
@pytest.mark.parametrize(
    "dtype", ["float16", "bfloat16", "float32", "float64", "int32", "int64"]
)
def test_dtype_is_the_input_s(dtype, policy):
    inputs = keras.Input((None, 3), ragged=True, dtype=dtype)
    outputs = SequencePool("mean", dtype=policy)(inputs)
    assert outputs.dtype == dtype
    x = tf.RaggedTensor.from_row_lengths(
        tf.cast([[1, 2, 3], [3, 4, 5]], dtype), [2, 0]
    )
    pooled = keras.Model(inputs, outputs)(x)
    assert pooled.dtype == dtype
    assert pooled.numpy().tolist() == [[2, 3, 4], [0, 0, 0]]


@pytest.mark.parametrize("run_eagerly", [False, True])
def test_subclassed_model_with_lod_inside(run_eagerly):
    class Model(keras.Model):
        def __init__(self):
            super().__init__()
            self.pool = SequencePool("max")
            self.dense = keras.layers.Dense(1)

        def call(self, x):
            return self.dense(self.pool(lodestar.LoDTensor.from_ragged(x)))

    x = tf.RaggedTensor.from_row_lengths(tf.ones([6, 3]), [1, 0, 3, 2])
    model = Model()
    model.compile("sgd", "mse", run_eagerly=run_eagerly)
    dataset = tf.data.Dataset.from_tensor_slices((x, np.ones([4, 1])))
    model.fit(dataset.batch(2), verbose=0)
    assert model.predict(x, verbose=0).shape == (4, 1)


def test_lod_of_two_levels_leaves_one():
    x = lodestar.LoDTensor.from_lengths([1.0, 2.0, 3.0], [[1, 1], [2, 1]])
    pooled = SequencePool()(x)
    assert isinstance(pooled, lodestar.LoDTensor)
    assert pooled.to_ragged().to_list() == [[3.0], [3.0]]


def test_config_and_saved_model(tmp_path):
    layer = SequencePool("max", -2.5, name="pool")
    again = SequencePool.from_config(layer.get_config())
    assert (again.combiner, again.pad_value, again.name) == (
        "max",
        -2.5,
        "pool",
    )
    inputs = keras.Input((None, 3), ragged=True, name="x")
    model = keras.Model(inputs, layer(inputs))
    path = str(tmp_path / "model")
    lodestar.export.save(model, path)
    x = tf.RaggedTensor.from_row_lengths(tf.ones([3, 3]), [1, 0, 2])
    served = tf.saved_model.load(path).serve({"x": x})["output_0"]
    np.testing.assert_array_equal(served, model(x))
    # A dense signature would pool padding: it is refused, and says what to do.
    with pytest.raises(ValueError, match="lodestar.export.save"):
        model.export(str(tmp_path / "dense"), verbose=False)


def test_what_is_refused():
    with pytest.raises(ValueError, match="'average', which is called 'mean'"):
        SequencePool("average")
    with pytest.raises(ValueError, match="needs a ragged input"):
        SequencePool()(keras.Input((4, 3)))
    with pytest.raises(ValueError, match="needs a ragged input, found a dense"):
        SequencePool()(tf.ones([4, 3]))


def test_a_level_above_the_innermost_in_a_model(tmp_path):
    inputs = keras.Input((None, None, 2), ragged=True, name="x")
    outputs = SequencePool("mean", level=0)(inputs)
    assert (outputs.shape, bool(outputs.ragged)) == ((None, 2), False)
    model = keras.Model(inputs, keras.layers.Dense(1)(outputs))
    model.compile("sgd", "mse")
    x = tf.ragged.constant(
        [[[[1.0, 2.0], [3.0, 4.0]], [[8.0, 0.0]]], [], [[[5.0, 5.0]], []]],
        ragged_rank=2,
        inner_shape=(2,),
    )
    np.testing.assert_array_equal(
        SequencePool("mean", level=0)(x), [[4, 2], [0, 0], [5, 5]]
    )
    batches = tf.data.Dataset.from_tensor_slices((x, np.ones([3, 1]))).batch(2)
    model.fit(batches, verbose=0)
    wanted = model(x).numpy()
    path = str(tmp_path / "model.keras")
    model.save(path)
    loaded = keras.saving.load_model(path)
    np.testing.assert_array_equal(loaded(x), wanted)
    assert loaded.layers[1].level == 0
    lodestar.export.save(model, str(tmp_path / "served"))
    served = tf.saved_model.load(str(tmp_path / "served"))
    np.testing.assert_allclose(served.serve({"x": x})["output_0"], wanted)


def test_a_level_between_keeps_those_above():
    inputs = keras.Input((None, None, None, 2), ragged=True)
    outputs = SequencePool(level=1)(inputs)
    assert (outputs.shape, bool(outputs.ragged)) == ((None, None, 2), True)
    x = lodestar.LoDTensor.from_lengths(
        tf.ones([3, 2]), [[2, 0], [1, 1], [2, 1]]
    )
    y = SequencePool(level=1)(x)
    assert y.to_list() == [[[2, 2], [1, 1]], []]
    np.testing.assert_array_equal(
        keras.Model(inputs, outputs)(x.to_ragged()).flat_values, y.values
    )


def test_levels_that_are_none():
    for level in (-2, 0.5, "0"):
        with pytest.raises(
            ValueError, match="`level` is .*, wanted an integer"
        ):
            SequencePool(level=level)
    layer = SequencePool(level=1)
    with pytest.raises(ValueError, match="`level` is 1, wanted -1 to 0"):
        layer(keras.Input((None, 3), ragged=True))
    with pytest.raises(ValueError, match="`level` is 1, wanted -1 to 0"):
        layer(tf.ragged.constant([[1.0]]))
