"""Trains with snapshots and kills its own process during an epoch."""

import os
import signal

import lodestar

# isort: split
import keras
import numpy as np
import tensorflow as tf


def model():
    """Returns a model with a table, dense weights and a random seed."""
    keras.utils.set_random_seed(3)
    ids = keras.Input((2,), dtype="int64", name="ids")
    rows = lodestar.layers.DynamicEmbedding(4, combiner="sum", name="user")(ids)
    x = keras.layers.Dropout(0.3, seed=1)(keras.layers.Dense(3)(rows))
    m = keras.Model(ids, keras.layers.Dense(1)(x))
    m.compile(
        lodestar.optimizers.Adam(0.05),
        "mse",
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


class _Kill(keras.callbacks.Callback):
    """Kills the process before a step, after all due snapshots are written."""

    def __init__(self, snapshots, step):
        super().__init__()
        self._snapshots, self._step = snapshots, step

    def on_train_batch_begin(self, batch, logs=None):
        pending = self._snapshots._writing
        if pending is not None:
            pending.wait()
        if int(self.model.optimizer.iterations) == self._step:
            os.kill(os.getpid(), signal.SIGKILL)


def train(path, kind, kill_at=None):
    """Trains or resumes four epochs of five steps; returns the model."""
    m = model()  # sets the seed of the dataset as well
    data = repeated() if kind == "steps" else once()
    snapshots = lodestar.callbacks.Snapshot(path, 3)
    lodestar.train.fit(
        m,
        data,
        epochs=4,
        snapshots=snapshots,
        steps_per_epoch=5 if kind == "steps" else None,
        callbacks=[] if kill_at is None else [_Kill(snapshots, kill_at)],
        verbose=0,
    )
    return m
