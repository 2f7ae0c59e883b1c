"""Tests of warnings about lookups that are not trained, and of false alarms."""

import keras
import numpy as np
import pytest
import tensorflow as tf

import lodestar

X = np.arange(24).reshape(8, 3)
Y = np.sin(np.arange(8.0)).reshape(8, 1)
K = keras.optimizers
EAGER = pytest.mark.parametrize("eager", [False, True])
LOST = "'hidden' output_dim=2 dtype=float32> is looked up in training, but"


def wrap(inner="adam"):
    return lodestar.optimizers.wrap(inner)


def table():
    return lodestar.EmbeddingVariable(2, name="hidden")


def bare():
    t = table()
    return t, lambda ids: t.lookup(ids, combiner="sum")


def layer():
    t = table()
    hidden = lodestar.layers.DynamicEmbedding(table=t, combiner="sum")
    return t, lambda ids: hidden(ids)


def collection():
    t = table()
    feature = lodestar.Feature(t, combiner="sum")
    hidden = lodestar.layers.EmbeddingCollection({"f": feature})
    return t, lambda ids: hidden({"f": ids})["f"]


def function():
    t = table()
    # Whether a tape records is visible when a function is traced, not later.
    lookup = tf.function(
        lambda ids: t.lookup(ids, training=True, combiner="sum")
    )
    return t, lambda ids: lookup(ids)


def branch():
    t = table()
    return t, lambda ids: tf.cond(
        tf.reduce_sum(ids) > -1,
        lambda: t.lookup(ids, combiner="sum"),
        lambda: tf.zeros([tf.shape(ids)[0], 2]),
    )


HIDDEN = [bare, layer, collection, function, branch]


def model_of(lookup, way="lambda"):
    if way == "lambda":
        ids = keras.Input((3,), dtype="int64")
        rows = keras.layers.Lambda(lookup, output_shape=(2,))(ids)
        return keras.Model(ids, keras.layers.Dense(1)(rows))

    class Plain:  # which Keras does not search
        pass

    class Model(keras.Model):
        def __init__(self):
            super().__init__()
            self.dense = keras.layers.Dense(1)
            self.plain = Plain()
            self.plain.lookup = lookup

        def call(self, ids):
            return self.dense(self.plain.lookup(ids))

    return Model()


@pytest.mark.parametrize(
    "hidden, way, optimizer, eager",
    [
        (bare, "lambda", wrap, False),
        (bare, "plain object", K.Adam, True),
        (layer, "plain object", wrap, True),
        (layer, "lambda", K.Adam, False),
        (collection, "lambda", wrap, True),
        (collection, "plain object", K.Adam, False),
        (function, "lambda", K.Adam, True),
        (function, "plain object", wrap, False),
        (branch, "lambda", wrap, False),
        (branch, "plain object", K.Adam, True),
    ],
)
def test_fit_raises_at_the_first_step(hidden, way, optimizer, eager):
    # Keras traces a model before the optimizer is known, and does not trace a
    # function that it calls again, so the error cannot name the model.
    known = hidden is not function or way == "lambda"
    t, lookup = hidden()
    model = model_of(lookup, way)
    model.compile(optimizer(), "mse", run_eagerly=eager)
    dense = model.layers[-1]
    with pytest.raises(RuntimeError, match=LOST) as raised:
        model.fit(X, Y, verbose=0)
    message = str(raised.value)
    assert ("Keras does not find the table" in message) == known
    is_plain = optimizer is not wrap
    assert ("compile(optimizer=lodestar.optimizers." in message) == is_plain
    np.testing.assert_array_equal(dense.bias, [0.0])


@EAGER
def test_fit_raises_if_a_function_was_traced_before(eager):
    t = table()
    lookup = tf.function(
        lambda ids: t.lookup(ids, training=True, combiner="sum"),
        input_signature=[tf.TensorSpec([None, 3], tf.int64)],
    )
    lookup(X)
    model = model_of(lookup, "plain object")
    model.compile(wrap(), "mse", run_eagerly=eager)
    with pytest.raises(RuntimeError, match=LOST):
        model.fit(X, Y, verbose=0)


def test_fit_raises_under_mixed_float16():
    keras.config.set_dtype_policy("mixed_float16")
    try:
        model = model_of(bare()[1])
        optimizer = lodestar.optimizers.LossScaleOptimizer(wrap())
        model.compile(optimizer, "mse")
        with pytest.raises(RuntimeError, match=LOST):
            model.fit(X, Y, verbose=0)
    finally:
        keras.config.set_dtype_policy("float32")


def test_fit_raises_though_another_model_trains_the_table():
    t = table()
    ids = keras.Input((3,), dtype="int64")
    rows = lodestar.layers.DynamicEmbedding(table=t, combiner="sum")(ids)
    seen = keras.Model(ids, keras.layers.Dense(1)(rows))
    seen.compile(wrap(), "mse")
    seen.fit(X, Y, verbose=0)
    model = model_of(lambda ids: t.lookup(ids, combiner="sum"))
    model.compile(wrap(), "mse")
    with pytest.raises(RuntimeError, match=LOST):
        model.fit(X, Y, verbose=0)
    seen.fit(X, Y, verbose=0)


def loop(lookup, model, optimizer, variables):
    def step():
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(model(lookup(X)) ** 2)
        gradients = tape.gradient(loss, variables())
        optimizer.apply(gradients, variables())

    return step


@pytest.mark.parametrize(
    "hidden, eager", [(h, i % 2 == 0) for i, h in enumerate(HIDDEN)]
)
def test_an_own_loop_that_leaves_the_table_out_raises(hidden, eager):
    t, lookup = hidden()
    dense = keras.layers.Dense(1)
    dense.build((None, 2))
    step = loop(lookup, dense, wrap(), lambda: dense.trainable_variables)
    with pytest.raises(RuntimeError, match=LOST + ".*Pass the table"):
        (step if eager else tf.function(step))()
    np.testing.assert_array_equal(dense.bias, [0.0])
    variables = lambda: [*dense.trainable_variables, t]  # noqa: E731
    step = loop(lookup, dense, wrap(), variables)
    (step if eager else tf.function(step))()
    assert t.export().optimizer == "adam"


@EAGER
def test_a_custom_loop_of_an_optimizer_without_hooks_warns(eager):
    other = wrap()  # which trains something else, or nothing yet
    t, lookup = bare()
    dense = keras.layers.Dense(1)
    dense.build((None, 2))
    step = loop(lookup, dense, K.SGD(), lambda: dense.trainable_variables)
    (step if eager else tf.function(step))()
    with pytest.warns(UserWarning, match=LOST):
        t.size()
    del other


# Intentional omissions.


@EAGER
@pytest.mark.parametrize(
    "used",
    [
        lambda t, ids: t.lookup(ids, training=False, combiner="sum"),
        lambda t, ids: tf.stop_gradient(
            t.lookup(ids, training=True, combiner="sum")
        ),
    ],
    ids=["training=False", "stop_gradient"],
)
def test_lookups_not_meant_for_training(used, eager):
    t = table()
    model = model_of(lambda ids: used(t, ids))
    model.compile(wrap(), "mse", run_eagerly=eager)
    model.fit(X, Y, verbose=0)
    model.compile("adam", "mse", run_eagerly=eager)
    model.fit(X, Y, verbose=0)


@EAGER
def test_a_frozen_table(eager):
    t, lookup = bare()
    t.trainable = False
    model = model_of(lookup)
    model.compile(wrap(), "mse", run_eagerly=eager)
    model.fit(X, Y, verbose=0)


class Both(keras.Model):
    def __init__(self, names):
        super().__init__()
        self.rows = lodestar.EmbeddingVariable(2, name=names)
        self.dense = keras.layers.Dense(1)

    def call(self, ids):
        return self.dense(self.rows.lookup(ids, combiner="sum"))


@EAGER
def test_two_optimizers_of_two_models(eager):
    a, b = Both("a"), Both("b")
    a(X), b(X)
    optimizers = wrap(), wrap()

    def step():
        with tf.GradientTape(persistent=True) as tape:
            fake, real = a(X), b(X)
            loss_a = tf.reduce_mean((fake - real) ** 2)
            loss_b = tf.reduce_mean(fake * real)
        for model, loss, optimizer in zip((a, b), (loss_a, loss_b), optimizers):
            variables = model.trainable_variables
            optimizer.apply(tape.gradient(loss, variables), variables)

    step = step if eager else tf.function(step)
    step()
    step()
    assert a.rows.export().optimizer == b.rows.export().optimizer == "adam"


@EAGER
def test_a_subset_of_the_variables_in_an_own_loop(eager):
    model = Both("a")
    model(X)
    optimizer = wrap()

    def step():
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(model(X) ** 2)
        variables = model.dense.trainable_variables
        model.trainable_variables  # noqa: B018 - of which these are some
        optimizer.apply(tape.gradient(loss, variables), variables)

    (step if eager else tf.function(step))()


@EAGER
def test_gradients_that_are_only_looked_at(eager):
    t, lookup = bare()
    w = tf.Variable(tf.ones([8, 2]))

    def look():
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(w * lookup(X))
        return tape.gradient(loss, w)

    model = Both("a")
    model.compile(wrap(), "mse", run_eagerly=eager)
    look = look if eager else tf.function(look)
    look()
    if not eager:
        model.fit(X, Y, verbose=0)


@EAGER
def test_the_variables_that_a_tape_watched(eager):
    t, lookup = bare()
    dense = keras.layers.Dense(1)
    dense.build((None, 2))
    optimizer = wrap()

    def step():
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(dense(lookup(X)) ** 2)
        variables = tape.watched_variables()
        optimizer.apply(tape.gradient(loss, variables), variables)

    (step if eager else tf.function(step))()
    assert t.export().optimizer == "adam"


def test_evaluation_under_a_tape():
    t, lookup = bare()
    model = Both("a")
    model.compile(wrap(), "mse")
    with tf.GradientTape():
        lookup(X)
    model.fit(X, Y, verbose=0)
