"""Tests that optimizers for tables are the Keras classes of the same name."""

import inspect

import keras
import numpy as np
import pytest
import tensorflow as tf

import lodestar
from lodestar.ops.compile_line import NAMES


def pair(name):
    return getattr(lodestar.optimizers, name), getattr(keras.optimizers, name)


@pytest.mark.parametrize("name", NAMES)
def test_the_constructor_is_that_of_keras(name):
    ours, theirs = pair(name)
    assert issubclass(ours, theirs)
    parameters = dict(inspect.signature(ours).parameters)
    assert parameters.pop("nonfinite").default == "raise"
    assert [(p.name, p.kind, p.default) for p in parameters.values()] == [
        (p.name, p.kind, p.default)
        for p in inspect.signature(theirs).parameters.values()
        if p.kind is not p.VAR_KEYWORD
    ]
    config = ours(name="o").get_config()
    assert config.pop("nonfinite") == "raise"
    assert config == theirs(name="o").get_config()


@pytest.mark.parametrize("name", NAMES)
def test_arguments_by_position_and_by_name(name):
    ours, theirs = pair(name)
    a, b = ours(0.25, clipnorm=2.0, nonfinite="skip"), theirs(0.25)
    assert float(a.learning_rate) == float(b.learning_rate) == 0.25
    assert a.clipnorm == 2.0 and a.nonfinite == "skip"
    with pytest.raises(ValueError, match="`nonfinite`='drop'"):
        ours(nonfinite="drop")
    with pytest.raises(TypeError, match="Did you mean 'learning_rate'"):
        ours(learning_rat=1.0)


@pytest.mark.parametrize("name", NAMES)
def test_get_and_config_round_trips(name):
    ours, _ = pair(name)
    made = ours(0.25, nonfinite="pass", weight_decay=0.5)
    assert keras.optimizers.get(made) is made
    for again in (
        ours.from_config(made.get_config()),
        keras.optimizers.get(keras.optimizers.serialize(made)),
    ):
        assert type(again) is ours
        assert again.get_config() == made.get_config()
    assert type(keras.optimizers.get(f"lodestar>{name}")) is ours


@pytest.mark.parametrize("name", NAMES)
def test_a_model_without_tables_trains_as_with_keras(name):
    x = np.linspace(-1, 1, 24).reshape(12, 2).astype(np.float32)
    y = x.sum(1, keepdims=True)
    weights = []
    for cls in pair(name):
        keras.utils.set_random_seed(1)
        model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(3)])
        model.compile(cls(0.1, weight_decay=0.01, use_ema=True), "mse")
        model.fit(x, np.repeat(y, 3, 1), epochs=3, shuffle=False, verbose=0)
        weights.append(model.get_weights())
    for a, b in zip(*weights, strict=True):
        np.testing.assert_array_equal(a, b)


def test_a_subclass_of_the_users_own_is_trained_by_its_own_rule():
    class Half(lodestar.optimizers.SGD):
        """SGD with half the learning rate."""

        def update_step(self, gradient, variable, learning_rate):
            super().update_step(gradient, variable, learning_rate * 0.5)

    table = lodestar.EmbeddingVariable(2, name="t")
    before = table.lookup([1], training=True).numpy()
    gradient = tf.IndexedSlices(tf.ones([1, 2]), tf.constant([1]))
    Half(1.0).apply([gradient], [table])
    np.testing.assert_allclose(table.lookup([1]), before - 0.5, 1e-6)
