"""Tests of loss scaling with tables."""

import dense_reference as reference
import keras
import numpy as np
import pytest
import tensorflow as tf

import lodestar

wrap = lodestar.optimizers.DynamicEmbeddingOptimizer
Scaled = lodestar.optimizers.LossScaleOptimizer


@pytest.mark.parametrize("graph", [False, True])
@pytest.mark.parametrize(
    "make",
    [
        lambda: keras.optimizers.SGD(0.1),
        lambda: keras.optimizers.SGD(0.1, global_clipnorm=0.05),
        lambda: keras.optimizers.Adagrad(0.1),
    ],
)
def test_equals_keras_on_a_dense_matrix(make, graph):
    data = reference.batches()
    dynamic, dense = reference.models()
    reference.train(dynamic, Scaled(wrap(make())), data, graph)
    reference.train(
        dense, keras.optimizers.LossScaleOptimizer(make()), data, graph
    )
    reference.assert_same(dynamic, dense)


@pytest.mark.parametrize("graph", [False, True])
def test_step_that_is_not_finite_changes_nothing(graph):
    dynamic, _ = reference.models()
    optimizer = Scaled(wrap("sgd"), initial_scale=1e38)
    before = reference.rows(dynamic)
    data = [(p, y * 1e6) for p, y in reference.batches(count=1)]
    reference.train(dynamic, optimizer, data, graph)
    np.testing.assert_array_equal(reference.rows(dynamic), before)
    assert float(optimizer.dynamic_scale.value) == pytest.approx(5e37)


def test_mixed_float16_policy_in_fit():
    policy = keras.config.dtype_policy()
    keras.config.set_dtype_policy("mixed_float16")
    try:
        ids = keras.Input((3,), dtype="int64")
        layer = lodestar.layers.DynamicEmbedding(4, combiner="mean")
        rows = layer(ids)
        assert rows.dtype == "float16"
        out = keras.layers.Dense(1, dtype="float32")(rows)
        model = keras.Model(ids, out)
        optimizer = Scaled(wrap(keras.optimizers.Adagrad(0.1)))
        model.compile(optimizer, "mse")
        assert model.optimizer is optimizer
        x = np.arange(24).reshape(8, 3)
        losses = model.fit(x, np.ones((8, 1)), epochs=20, verbose=0).history
        assert losses["loss"][-1] < losses["loss"][0] / 2
        assert layer.table.lookup([1]).dtype == tf.float32
    finally:
        keras.config.set_dtype_policy(policy)


def test_config_round_trip():
    a = Scaled(wrap("adagrad"), initial_scale=8.0)
    b = keras.optimizers.deserialize(keras.optimizers.serialize(a))
    assert isinstance(b, Scaled) and b.get_config() == a.get_config()


def test_only_the_wrapper_is_taken():
    with pytest.raises(ValueError, match="`inner_optimizer` is a SGD"):
        Scaled(keras.optimizers.SGD())
