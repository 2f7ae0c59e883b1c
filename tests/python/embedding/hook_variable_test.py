"""Tests of the variable that carries a table's gradient."""

import gc

import keras
import numpy as np
import pytest
import tensorflow as tf

import lodestar
from lodestar.embedding.hook_variable import HookVariable, as_hook


def table(**options):
    return lodestar.EmbeddingVariable(4, name="hooked", **options)


def test_hook_is_one_empty_trainable_variable():
    t = table()
    assert isinstance(t.hook, keras.Variable)
    assert t.trainable_variables == [t.hook] and t.hook is t.hook
    assert t.hook.shape == (0, 4) and t.hook.trainable
    assert t.hook.table is t


def test_watched_variables_lead_back_to_the_hook():
    t = table()
    with tf.GradientTape() as tape:
        t.lookup([1], training=True)
    assert [as_hook(v) for v in tape.watched_variables()] == [t.hook]
    assert as_hook(tf.Variable(1.0)) is None
    assert as_hook(keras.Variable(1.0)) is None


@pytest.mark.parametrize("eager", [False, True])
@pytest.mark.parametrize(
    "optimizer", ["sgd", "adam", "adagrad", "lion", "adafactor"]
)
def test_plain_optimizer_raises_the_line_to_paste(optimizer, eager):
    ids = keras.Input((2,), dtype="int64")
    x = lodestar.layers.DynamicEmbedding(4)(ids)
    model = keras.Model(ids, keras.layers.Dense(1)(x))
    model.compile(optimizer, "mse", run_eagerly=eager)
    with pytest.raises(Exception) as raised:
        model.fit(np.ones((4, 2), int), np.ones((4, 2, 1)), verbose=0)
    name = type(model.optimizer).__name__
    assert (
        "model.compile(optimizer=lodestar.optimizers."
        f"DynamicEmbeddingOptimizer(keras.optimizers.{name}(learning_rate="
    ) in str(raised.value)


def test_plain_optimizer_after_the_wrapper_raises_too():
    layer = lodestar.layers.DynamicEmbedding(1, combiner="sum")
    ids = keras.Input((2,), dtype="int64")
    model = keras.Model(ids, layer(ids))
    x, y = np.ones((4, 2), int), np.ones((4, 1))
    model.compile(lodestar.optimizers.DynamicEmbeddingOptimizer("sgd"), "mse")
    model.fit(x, y, verbose=0)
    model.compile("sgd", "mse")
    with pytest.raises(RuntimeError, match="Wrap the optimizer"):
        model.fit(x, y, verbose=0)


def test_gradient_is_never_made_dense():
    t = table()
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(t.lookup([1], training=True))
    gradient = tape.gradient(loss, t.hook)
    assert isinstance(gradient, tf.IndexedSlices)
    with pytest.raises(RuntimeError, match="cannot be made a dense tensor"):
        tf.convert_to_tensor(gradient)


def test_hook_of_a_dead_table():
    hook = table().hook
    gc.collect()
    assert isinstance(hook, HookVariable)
    with pytest.raises(RuntimeError, match="is gone"):
        _ = hook.table


@pytest.mark.parametrize("name", ["of users", "naïve/ü"])
def test_any_name_of_a_table_can_be_in_a_saved_model(name, tmp_path):
    module = tf.Module()
    module.table = lodestar.EmbeddingVariable(4, name=name)
    module.table.lookup([1], training=True)
    signature = tf.function(
        lambda ids: module.table.lookup(ids),
        input_signature=[tf.TensorSpec([None], tf.int64)],
    )
    tf.saved_model.save(module, tmp_path, signatures=signature)
    loaded = tf.saved_model.load(tmp_path)
    (rows,) = loaded.signatures["serving_default"](
        tf.constant([1], tf.int64)
    ).values()
    np.testing.assert_array_equal(rows, module.table.lookup([1]))
