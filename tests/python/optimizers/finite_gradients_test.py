"""Tests that a gradient that is not finite is found before anything is written."""

import keras
import numpy as np
import own_optimizers
import pytest
import tensorflow as tf

import lodestar

ERROR = tf.errors.InvalidArgumentError


def make_table(name="rows", **options):
    table = lodestar.EmbeddingVariable(2, name=name, **options)
    table.insert_or_assign([1, 2], np.ones((2, 2)))
    return table


def of_rows(value=1.0):
    return tf.IndexedSlices(
        tf.constant([[1.0, 1.0], [1.0, value]]),
        tf.constant([1, 2], tf.int64),
        tf.constant([-1, 2], tf.int32),
    )


def bias(name, size=2):
    with keras.name_scope("dense"):
        return keras.Variable(np.ones(size), dtype="float32", name=name)


def contents(variables, optimizer):
    values = [optimizer.iterations.numpy()]
    for variable in variables:
        if isinstance(variable, lodestar.EmbeddingVariable):
            values += [variable.export().rows.numpy(), int(variable.step)]
        else:
            values.append(variable.numpy())
    return values


OPTIONS = {
    "plain": {},
    "clipnorm": {"clipnorm": 1.0},
    "global_clipnorm": {"global_clipnorm": 1.0},
    "clipvalue": {"clipvalue": 1.0},
    "accumulated": {"gradient_accumulation_steps": 2},
    "unscaled": {"loss_scale_factor": 2.0},
}


@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
@pytest.mark.parametrize(
    "devices, value, graph",
    [
        (None, np.nan, True),
        (None, np.inf, False),
        (["CPU:0", "CPU:0"], np.inf, True),
    ],
)
def test_a_dense_gradient_is_checked_first(options, devices, value, graph):
    variables = [make_table(devices=devices), bias("one"), bias("two")]
    optimizer = lodestar.optimizers.Adam(0.1, **options)
    optimizer.build(variables)

    def step(gradient):
        optimizer.apply([of_rows(), tf.ones([2]), gradient], variables)

    step = tf.function(step) if graph else step
    before = contents(variables, optimizer)
    with pytest.raises(
        ERROR,
        match="weight 'dense/two': the gradient is not finite; no row and no "
        "weight was changed. The loss .*learning rate",
    ):
        step(tf.constant([1.0, value]))
    for was, now in zip(before, contents(variables, optimizer), strict=True):
        np.testing.assert_array_equal(was, now)
    step(tf.ones([2]))
    step(tf.ones([2]))
    assert (variables[2].numpy() != 1).all()


@pytest.mark.parametrize("graph", [False, True])
def test_other_kinds_of_gradients(graph):
    matrix = keras.Variable(np.ones((3, 2)), dtype="float32", name="matrix")
    half = keras.Variable(np.ones(2), dtype="float16", name="half")
    optimizer = lodestar.optimizers.wrap(own_optimizers.Own())
    optimizer.build([matrix, half])

    def step(rows, of_half):
        slices = tf.IndexedSlices(rows, tf.constant([0, 2]), [3, 2])
        optimizer.apply([slices, of_half], [matrix, half])

    step = tf.function(step) if graph else step
    bad = tf.constant([[1.0, 1.0], [np.nan, 1.0]])
    with pytest.raises(ERROR, match="weight 'matrix'"):
        step(bad, tf.ones([2], tf.float16))
    with pytest.raises(ERROR, match="weight 'half'"):
        step(tf.ones([2, 2]), tf.constant([np.inf, 1], tf.float16))
    assert (matrix.numpy() == 1).all() and (half.numpy() == 1).all()
    step(tf.ones([2, 2]), tf.ones([2], tf.float16))
    assert (matrix.numpy()[[0, 2]] != 1).all()


@pytest.mark.parametrize("graph", [False, True])
def test_a_joint_norm_blames_the_right_table(graph):
    tables = [make_table("first"), make_table("second")]
    variables = [*tables, bias("one")]
    optimizer = lodestar.optimizers.SGD(0.1, global_clipnorm=1.0)
    optimizer.build(variables)

    def step():
        gradients = [of_rows(), of_rows(np.nan), tf.ones([2])]
        optimizer.apply(gradients, variables)

    before = contents(variables, optimizer)
    with pytest.raises(ERROR, match="table 'second': the gradient is not"):
        (tf.function(step) if graph else step)()
    for was, now in zip(before, contents(variables, optimizer), strict=True):
        np.testing.assert_array_equal(was, now)


@pytest.mark.parametrize("graph", [False, True])
@pytest.mark.parametrize("nonfinite", ["skip", "pass"])
def test_dense_gradients_that_are_skipped_or_passed(nonfinite, graph):
    variables = [make_table(), bias("one"), bias("two")]
    optimizer = lodestar.optimizers.SGD(0.5, nonfinite=nonfinite)
    optimizer.build(variables)

    def step():
        gradients = [of_rows(np.nan), tf.constant([np.nan, 1.0]), tf.ones([2])]
        optimizer.apply(gradients, variables)

    (tf.function(step) if graph else step)()
    first = 1.0 if nonfinite == "skip" else np.nan
    np.testing.assert_array_equal(variables[1].numpy(), [first, 0.5])
    np.testing.assert_array_equal(variables[2].numpy(), [0.5, 0.5])
    rows = variables[0].find([1, 2])[0].numpy()
    np.testing.assert_array_equal(rows[0], [0.5, 0.5])
    assert np.isnan(rows[1, 1]) == (nonfinite == "pass")


def test_a_joint_norm_that_is_skipped_changes_nothing():
    variables = [make_table(), bias("one")]
    optimizer = lodestar.optimizers.SGD(
        0.5, global_clipnorm=1.0, nonfinite="skip"
    )
    optimizer.build(variables)
    optimizer.apply([of_rows(np.nan), tf.ones([2])], variables)
    assert (variables[0].find([1, 2])[0].numpy() == 1).all()
    assert (variables[1].numpy() == 1).all()


class Root(keras.layers.Layer):
    """Adds the root of a weight of 0, whose gradient is infinite."""

    def build(self, shape):
        self.weight = self.add_weight(shape=(), name="radicand")

    def call(self, x):
        return x + keras.ops.sqrt(keras.ops.relu(self.weight))


@pytest.mark.parametrize("tables", [False, True])
def test_fit_names_the_weight(tables):
    if tables:
        ids = keras.Input((2,), dtype="int64")
        x = lodestar.layers.DynamicEmbedding(4, combiner="sum")(ids)
    else:
        ids = x = keras.Input((2,))
    root = Root(name="root")
    root.build(())
    root.weight.assign(1.0)
    model = keras.Model(ids, root(keras.layers.Dense(1)(x)))
    # XLA compiles checks away.
    model.compile(lodestar.optimizers.Adam(0.1), "mse", jit_compile=False)
    data = np.ones((4, 2), "int64"), np.ones((4, 1))
    model.fit(*data, verbose=0)
    root.weight.assign(0.0)
    before = [v.numpy() for v in model.layers[-2].weights]
    with pytest.raises(ERROR, match="weight 'root/radicand'"):
        model.fit(*data, verbose=0)
    for was, now in zip(before, model.layers[-2].weights, strict=True):
        np.testing.assert_array_equal(was, now.numpy())
