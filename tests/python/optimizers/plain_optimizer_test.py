"""Tests that plain Keras optimizers train tables correctly or raise an error."""

import keras
import numpy as np
import pytest
import tensorflow as tf

import lodestar


@pytest.fixture(autouse=True)
def same_initial_values():
    """Makes tests independent of rows that a step would change too little."""
    keras.utils.set_random_seed(1)


LINE = r"\n *optimizer = lodestar.optimizers.Adam\(1e-3\)\n?"
K = keras.optimizers
PLAIN = {
    "sgd": lambda: K.SGD(),
    "adam": lambda: K.Adam(),
    "adamw": lambda: K.AdamW(),
    "lamb": lambda: K.Lamb(),
    "loss_scale": lambda: K.SGD(loss_scale_factor=2.0),
    "global_clipnorm": lambda: K.SGD(global_clipnorm=1.0),
    "use_ema": lambda: K.SGD(use_ema=True),
}
# The optimizers of the lines to paste.
OWN = {"adam": "Adam", "adamw": "AdamW", "lamb": r"wrap\(type"}
# These access gradients before variables.
DENSE = {
    "accumulation": (
        lambda: K.SGD(gradient_accumulation_steps=2),
        (RuntimeError, ValueError),
        r"\n *optimizer = lodestar.optimizers.SGD\(learning"
        "|Cannot convert a partially known TensorShape",
    ),
    "loss_scale_optimizer": (
        lambda: K.LossScaleOptimizer(K.SGD()),
        (ValueError, tf.errors.InvalidArgumentError),
        "use_lodestar.optimizers.LossScaleOptimizer|must be >= 0|_and_lodestar",
    ),
}


def own_line(name):
    """Returns a pattern of the line that replaces an optimizer of `PLAIN`."""
    own = OWN.get(name, "SGD")
    return rf"\n *optimizer = lodestar.optimizers.{own}\((optimizer|learning)"


def step_of(optimizer, way):
    t = lodestar.EmbeddingVariable(2, name="plain")
    t.lookup([1, 2], training=True)
    dense = keras.Variable([1.0, 2.0])

    def step():
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(t.lookup([1, 2], True) * dense.value)
        variables = [t, dense]
        if way == "watched_variables":
            variables = tape.watched_variables()
        gradients = tape.gradient(loss, variables)
        if way == "apply":
            optimizer.apply(gradients, variables)
        else:
            optimizer.apply_gradients(zip(gradients, variables, strict=True))

    return t, dense, step


@pytest.mark.parametrize(
    "name, way, graph",
    [
        *((name, "apply", True) for name in PLAIN),
        *((name, "apply_gradients", False) for name in PLAIN),
    ],
)
def test_custom_loop_raises_the_line_to_paste(name, way, graph):
    t, dense, step = step_of(PLAIN[name](), way)
    before = t.lookup([1, 2]).numpy()
    with pytest.raises(RuntimeError, match=own_line(name)):
        (tf.function(step) if graph else step)()
    np.testing.assert_array_equal(t.lookup([1, 2]), before)
    np.testing.assert_array_equal(dense.numpy(), [1.0, 2.0])


@pytest.mark.parametrize("graph", [False, True])
@pytest.mark.parametrize("name", DENSE)
def test_gradient_that_is_made_dense_raises(name, graph):
    make, error, message = DENSE[name]
    t, _, step = step_of(make(), "apply")
    before = t.lookup([1, 2]).numpy()
    with pytest.raises(error, match=message):
        (tf.function(step) if graph else step)()
    np.testing.assert_array_equal(t.lookup([1, 2]), before)


# The raw variables behind hooks have no reference to hooks.
@pytest.mark.parametrize("graph", [False, True])
@pytest.mark.parametrize("name", ["sgd", "adam", "global_clipnorm"])
def test_raw_variables_raise(name, graph):
    t, _, step = step_of(PLAIN[name](), "watched_variables")
    before = t.lookup([1, 2]).numpy()
    errors = (RuntimeError, ValueError, tf.errors.InvalidArgumentError)
    with pytest.raises(errors, match=None if name == "sgd" else own_line(name)):
        (tf.function(step) if graph else step)()
    np.testing.assert_array_equal(t.lookup([1, 2]), before)


@pytest.mark.parametrize("graph", [False, True])
@pytest.mark.parametrize(
    "use",
    [
        tf.convert_to_tensor,
        tf.reduce_sum,
        lambda gradient: gradient + tf.ones([2, 2]),
        lambda gradient: keras.ops.sum(gradient),
    ],
)
def test_a_gradient_made_dense_raises_the_line_to_paste(use, graph):
    t = lodestar.EmbeddingVariable(2, name="plain")

    def step():
        with tf.GradientTape() as tape:
            rows = t.lookup([1, 2], True) + t.lookup([2, 3], True)
        return use(tape.gradient(rows, t))

    with pytest.raises((RuntimeError, TypeError), match=f"{LINE}|unsupported"):
        (tf.function(step) if graph else step)()


def test_own_optimizer_of_a_table_refuses_options_of_the_running_one():
    t = lodestar.EmbeddingVariable(2, name="own", optimizer="sgd")
    with tf.GradientTape() as tape:
        rows = t.lookup([1, 2], True)
    gradient = tape.gradient(rows, t)
    before = t.lookup([1, 2]).numpy()
    with pytest.raises(RuntimeError, match=r"(?s)Adam\(clipnorm=1.0\).*Adam\("):
        K.Adam(clipnorm=1.0).apply([gradient], [t])
    np.testing.assert_array_equal(t.lookup([1, 2]), before)
    K.Adam().apply([gradient], [t])
    assert np.all(t.lookup([1, 2]) != before)


def test_other_slices_are_made_dense():
    slices = tf.IndexedSlices(tf.ones([1, 2]), tf.constant([1]))
    with pytest.raises(ValueError, match="dense_shape"):
        tf.convert_to_tensor(slices)
    slices = tf.IndexedSlices(
        tf.ones([1, 2]), tf.constant([1]), tf.constant([3, 2])
    )
    np.testing.assert_array_equal(
        tf.convert_to_tensor(slices), [[0, 0], [1, 1], [0, 0]]
    )


def test_optimizers_for_tables_accept_raw_variables():
    optimizer = lodestar.optimizers.SGD(1.0)
    t, _, step = step_of(optimizer, "watched_variables")
    before = t.lookup([1, 2]).numpy()
    step()
    np.testing.assert_allclose(t.lookup([1, 2]), before - [[1.0, 2.0]], 1e-6)


def compiled(optimizer, eager=False, loss="mse"):
    ids = keras.Input((2,), dtype="int64")
    layer = lodestar.layers.DynamicEmbedding(4)
    out = keras.layers.Dense(1, dtype="float32")(layer(ids))
    model = keras.Model(ids, out)
    metrics = ["mae"] if loss == "mse" else None
    model.compile(optimizer, loss, metrics=metrics, run_eagerly=eager)
    return model


X, Y = np.ones((4, 2), int), np.ones((4, 2, 1))


def line_of(model):
    with pytest.raises(RuntimeError, match="lodestar.optimizers") as raised:
        model.fit(X, Y, verbose=0)
    rows = model.layers[1].table.export().rows
    (line,) = (
        text.strip()
        for text in str(raised.value).split("\n")
        if text.strip().startswith("model.compile(")
    )
    return line, rows


class OwnAdam(K.Adam):
    """A class of a user's module."""


SCHEDULE = K.schedules.ExponentialDecay(0.1, 10, 0.5)
PASTED = {
    "by name": (lambda: "adam", "Adam(learning_rate=0.001)"),
    "rate": (lambda: K.SGD(0.05, momentum=0.9), "SGD(learning_rate=0.05, mo"),
    "schedule": (lambda: K.Adagrad(SCHEDULE), "Adagrad(learning_rate=keras."),
    "clipped": (lambda: K.Adam(global_clipnorm=1.0), "global_clipnorm=1.0"),
    "own": (OwnAdam, "lodestar.optimizers.wrap(type(model.optimizer)"),
}


@pytest.mark.parametrize(
    "name, eager", [(name, i % 2 == 0) for i, name in enumerate(PASTED)]
)
def test_the_line_of_compile_is_the_own_optimizer_and_runs(name, eager):
    make, text = PASTED[name]
    model = compiled(make(), eager)
    plain = model.optimizer
    line, before = line_of(model)
    assert text in line
    exec(line, {"model": model, "keras": keras, "lodestar": lodestar})
    assert isinstance(model.optimizer, type(plain))
    config, found = plain.get_config(), model.optimizer.get_config()
    found = found.get("inner", {}).get("config", found)
    assert {**found, **config, "name": found["name"]} == found
    assert model.run_eagerly == eager
    history = model.fit(X, Y, verbose=0)
    assert set(history.history) == {"loss", "mae"}
    assert np.all(model.layers[1].table.export().rows != before)


def test_the_suggested_line_keeps_the_models_loss():
    model = compiled("adam", loss=keras.losses.Huber())
    line, _ = line_of(model)
    exec(line, {"model": model, "keras": keras, "lodestar": lodestar})
    model.fit(X, Y, verbose=0)


@pytest.mark.parametrize(
    "optimizer, eager",
    [
        (lambda: "adam", False),
        (lambda: K.LossScaleOptimizer(K.SGD(0.5)), True),
        (lambda: lodestar.optimizers.SGD(), False),
    ],
)
def test_the_line_under_mixed_float16_scales_the_loss(optimizer, eager):
    keras.config.set_dtype_policy("mixed_float16")
    try:
        model = compiled(optimizer(), eager)
        line, _ = line_of(model)
        assert "=lodestar.optimizers.LossScaleOptimizer(lodestar." in line
        exec(line, {"model": model, "keras": keras, "lodestar": lodestar})
        model.fit(X, Y, verbose=0)
    finally:
        keras.config.set_dtype_policy("float32")
