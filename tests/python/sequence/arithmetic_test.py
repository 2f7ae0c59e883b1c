"""Arithmetic on symbolic ragged rows."""

import operator

import keras
import numpy as np
import pytest
import tensorflow as tf
from batches import ragged_of

import lodestar

LENGTHS = [3, 0, 2]


def rows_of(x, name):
    """Returns symbolic ragged rows of another operation than an input."""
    return lodestar.sequence.slice(x, [0] * 3, LENGTHS, name=name)


def run(function, *rows):
    """Returns the result of a functional model of `function`."""
    inputs = [keras.Input(x.shape[1:], ragged=True) for x in rows]
    symbolic = [rows_of(x, f"rows_{i}") for i, x in enumerate(inputs)]
    result = function(*symbolic)
    assert result.ragged
    got = keras.Model(inputs, result)(list(rows))
    assert got.shape[-1] == result.shape[-1]
    return got


@pytest.fixture(name="x")
def _x(rng):
    return ragged_of(rng.uniform(1, 2, size=(5, 4)), LENGTHS, tf.float32)


@pytest.fixture(name="y")
def _y(rng):
    return ragged_of(rng.uniform(1, 2, size=(5, 4)), LENGTHS, tf.float32)


OPERATORS = [
    operator.add,
    operator.sub,
    operator.mul,
    operator.truediv,
    operator.pow,
]


@pytest.mark.parametrize("apply", OPERATORS)
def test_two_ragged_operands(apply, x, y):
    got = run(apply, x, y)
    np.testing.assert_array_equal(got.row_splits, x.row_splits)
    np.testing.assert_allclose(
        got.flat_values, apply(x.flat_values, y.flat_values), rtol=1e-6
    )


@pytest.mark.parametrize("apply", OPERATORS)
@pytest.mark.parametrize(
    "other",
    [2, 1.5, np.arange(1, 5, dtype=np.float32)],
    ids=["int", "float", "row"],
)
def test_a_number_or_one_row(apply, other, x):
    rows = x.flat_values.numpy()
    for function in (lambda x: apply(x, other), lambda x: apply(other, x)):
        np.testing.assert_allclose(
            run(function, x).flat_values, function(rows), rtol=1e-6
        )


def test_negation_and_longer_expressions(x, y):
    got = run(lambda x, y: -(x + y) * 0.5 - x * y, x, y)
    a, b = x.flat_values, y.flat_values
    np.testing.assert_allclose(
        got.flat_values, -(a + b) * 0.5 - a * b, rtol=1e-6
    )


def test_a_column_scales_the_rows(x, y):
    column = y.with_flat_values(y.flat_values[:, :1])
    got = run(operator.mul, x, column)
    np.testing.assert_allclose(
        got.flat_values, x.flat_values * column.flat_values, rtol=1e-6
    )


def test_a_saved_model_has_the_same_scores(x, tmp_path):
    inputs = keras.Input((None, 4), ragged=True)
    rows = rows_of(inputs, "rows")
    model = keras.Model(
        inputs, lodestar.sequence.pool((2 - rows) * rows + [1.0, 2.0, 3.0, 4.0])
    )
    model.save(tmp_path / "m.keras")
    loaded = keras.models.load_model(tmp_path / "m.keras")
    np.testing.assert_array_equal(loaded(x), model(x))


def test_under_a_strategy():
    """There Keras runs the model with dense placeholders first."""
    ids = tf.ragged.constant([[1, 2], [3]], tf.int64)
    with tf.distribute.MirroredStrategy(["CPU:0"]).scope():
        inputs = keras.Input((None,), dtype="int64", ragged=True)
        rows = lodestar.layers.DynamicEmbedding(4)(inputs)
        model = keras.Model(
            inputs, lodestar.sequence.pool(rows * 2.0 + rows - np.ones(4, "f"))
        )
        model.compile(lodestar.optimizers.Adam(0.1), "mse")
    history = model.fit(ids, np.ones((2, 4)), epochs=20, verbose=0).history
    assert history["loss"][-1] < 0.5 * history["loss"][0]


def test_errors(x):
    inputs = keras.Input((None, 4), ragged=True)
    rows = rows_of(inputs, "rows")
    with pytest.raises(ValueError, match="lodestar.sequence.expand_as"):
        rows + keras.Input((4,))
    with pytest.raises(ValueError, match="must be a number or one row"):
        rows + np.zeros((2, 4), np.float32)
    with pytest.raises(TypeError, match="same dtype, got float32 and float64"):
        rows * rows_of(
            keras.Input((None, 4), ragged=True, dtype="float64"), "wide"
        )
    with pytest.raises(ValueError, match="same number of axes"):
        rows * rows_of(keras.Input((None,), ragged=True), "weights")
    with pytest.raises(tf.errors.InvalidArgumentError, match="same lengths"):
        run(
            lambda x, y: x + lodestar.sequence.slice(y, [0, 0, 0], [1, 0, 2]),
            x,
            x,
        )
