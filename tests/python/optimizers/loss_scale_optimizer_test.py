"""Tests of loss scaling with tables."""

import dense_reference as reference
import keras
import numpy as np
import pytest
import tensorflow as tf

import lodestar

wrap = lodestar.optimizers.wrap
Scaled = lodestar.optimizers.LossScaleOptimizer
LINE = (
    r"model.compile\(optimizer=lodestar.optimizers.LossScaleOptimizer\("
    r"lodestar.optimizers.\w+\("
    r"learning_rate=0.\d+\)\), loss='mse'"
)


@pytest.mark.parametrize(
    "make, graph",
    [
        (lambda: keras.optimizers.SGD(0.1, global_clipnorm=0.05), True),
        (lambda: keras.optimizers.Adagrad(0.1), False),
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
    optimizer = Scaled(wrap("nadam"), initial_scale=1e38)
    before = reference.rows(dynamic)
    data = [(p, y * 1e6) for p, y in reference.batches(count=1)]
    reference.train(dynamic, optimizer, data, graph)
    np.testing.assert_array_equal(reference.rows(dynamic), before)
    assert float(optimizer.dynamic_scale.value) == pytest.approx(5e37)
    assert int(optimizer.iterations) == int(dynamic.embed.table.step) == 0
    product = optimizer.inner_optimizer.variables[-1]
    assert product.path.endswith("u_product") and float(product.value) == 1.0


@pytest.fixture
def mixed_policy(request):
    before = keras.config.dtype_policy()
    keras.config.set_dtype_policy(request.param)
    yield request.param
    keras.config.set_dtype_policy(before)


def mixed_model():
    ids = keras.Input((3,), dtype="int64")
    layer = lodestar.layers.DynamicEmbedding(4, combiner="mean")
    out = keras.layers.Dense(1, dtype="float32")(layer(ids))
    return keras.Model(ids, out), layer


X, Y = np.arange(24).reshape(8, 3), np.ones((8, 1))


@pytest.mark.parametrize(
    "mixed_policy, make",
    [("mixed_float16", Scaled), ("mixed_bfloat16", lambda inner: inner)],
    indirect=["mixed_policy"],
)
def test_mixed_policy_in_fit(mixed_policy, make):
    model, layer = mixed_model()
    assert layer(X).dtype == mixed_policy[len("mixed_") :]
    optimizer = make(wrap(keras.optimizers.Adagrad(0.1)))
    model.compile(optimizer, "mse")
    assert model.optimizer is optimizer
    losses = model.fit(X, Y, epochs=20, verbose=0).history["loss"]
    assert losses[-1] < losses[0] / 2
    assert layer.table.lookup([1]).dtype == tf.float32
    assert layer.table.export().optimizer_slots["accumulator"].dtype == (
        tf.float32
    )


@pytest.mark.parametrize("mixed_policy", ["mixed_float16"], indirect=True)
@pytest.mark.parametrize("first, eager", [("adam", False), ("rmsprop", True)])
def test_loss_scaling_of_keras_raises_the_line_to_paste(
    mixed_policy, first, eager
):
    model, layer = mixed_model()
    model.compile(first, "mse", run_eagerly=eager)
    assert isinstance(model.optimizer, keras.optimizers.LossScaleOptimizer)
    model.evaluate(X, Y, verbose=0)
    with pytest.raises(RuntimeError, match=LINE):
        model.fit(X, Y, verbose=0)
    assert int(layer.table.step) == 0
    model.predict(X, verbose=0)
    # As the message advises.
    model.compile(Scaled(wrap("adam")), "mse", run_eagerly=eager)
    model.fit(X, Y, verbose=0)
    assert int(layer.table.step) == 1


@pytest.mark.parametrize("mixed_policy", ["mixed_float16"], indirect=True)
def test_a_model_compiled_so_is_loaded_and_read(mixed_policy, tmp_path):
    model, _ = mixed_model()
    model.compile("adam", "mse")
    model.save(tmp_path / "m.keras")
    loaded = keras.saving.load_model(tmp_path / "m.keras")
    loaded.evaluate(X, Y, verbose=0)
    with pytest.raises(RuntimeError, match=LINE):
        loaded.fit(X, Y, verbose=0)
    optimizer = wrap("adagrad")
    optimizer.build(loaded.trainable_variables)

    def step():
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(tf.cast(loaded(X, training=True), tf.float32))
        gradients = tape.gradient(loss, loaded.trainable_variables)
        optimizer.apply(gradients, loaded.trainable_variables)

    step()


# These do not call Lodestar before the gradient becomes dense.
@pytest.mark.parametrize("mixed_policy", ["mixed_float16"], indirect=True)
@pytest.mark.parametrize(
    "make, eager", [(keras.optimizers.get, True), (wrap, False)]
)
def test_other_loss_scaling_raises(mixed_policy, make, eager):
    model, layer = mixed_model()
    model.compile(make("sgd"), "mse", run_eagerly=eager)
    with pytest.raises(RuntimeError, match=LINE):
        model.fit(X, Y, verbose=0)
    assert int(layer.table.step) == 0


def test_scale_of_the_inner_optimizer_is_switched_off():
    inner = keras.optimizers.SGD(0.1, loss_scale_factor=64.0)
    Scaled(wrap(inner))
    assert inner.loss_scale_factor is None


def test_arguments():
    with pytest.raises(ValueError, match="1 gradients, but there are 0 var"):
        Scaled(wrap("sgd")).apply([tf.constant(1.0)])
    a = Scaled(wrap("adagrad"), initial_scale=8.0)
    b = keras.optimizers.deserialize(keras.optimizers.serialize(a))
    assert isinstance(b, Scaled) and b.get_config() == a.get_config()

    with pytest.raises(
        ValueError, match="must be one of lodestar.optimizers, got SGD"
    ):
        Scaled(keras.optimizers.SGD())
