"""Models and data of trainings that are resumed."""

import lodestar

# isort: split
import keras
import numpy as np
import tensorflow as tf


def model(eager=True):
    """Returns a model with a table, dense weights and a random seed.

    It runs eagerly by default, because tracing takes longer than its few steps.
    """
    keras.utils.set_random_seed(3)
    ids = keras.Input((2,), dtype="int64", name="ids")
    rows = lodestar.layers.DynamicEmbedding(4, combiner="sum", name="user")(ids)
    x = keras.layers.Dropout(0.3, seed=1)(keras.layers.Dense(3)(rows))
    m = keras.Model(ids, keras.layers.Dense(1)(x))
    m.compile(
        lodestar.optimizers.Adam(0.05),
        "mse",
        run_eagerly=eager,
    )
    return m


def once():
    """Returns a dataset of five batches, in a different order each epoch."""
    rng = np.random.default_rng(5)
    ids = rng.integers(0, 200, (40, 2))
    y = rng.normal(size=(40, 1)).astype(np.float32)
    data = tf.data.Dataset.from_tensor_slices((ids, y))
    return data.shuffle(20, seed=2).batch(8)


def repeated():
    """Returns `once` repeated without end; batches cross the epochs."""
    return once().unbatch().repeat().batch(8)


def of_unknown_length():
    """Returns `once` as a dataset whose cardinality is unknown."""
    return once().filter(lambda ids, y: tf.size(ids) > 0)
