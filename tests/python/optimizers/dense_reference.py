"""A dense model with the same mathematics: one-hot times a matrix.

Not keras.layers.Embedding, which does not sum the gradients of equal ids.
"""

import keras
import numpy as np
import tensorflow as tf

import lodestar

DIM = 3
# Ids from the whole int64 range; row i of the matrix belongs to KEYS[i].
KEYS = np.array(
    [-(2**63), 2**63 - 1, -1, 0, 1, 4096, 2**40, -(2**40), 7, 2**62 + 1]
)


class OneHotEmbedding(keras.layers.Layer):
    """Gathers rows by a matrix product, so that the gradient is dense."""

    def __init__(self, rows, **kwargs):
        super().__init__(autocast=False, **kwargs)
        self.matrix = self.add_weight(
            shape=rows.shape, initializer="zeros", name="matrix"
        )
        self.matrix.assign(rows)
        self.built = True

    def call(self, places):
        one_hot = tf.one_hot(tf.cast(places, tf.int32), self.matrix.shape[0])
        return tf.tensordot(one_hot, self.matrix.value, 1)


class TwoTower(keras.Model):
    """One table read twice, with overlapping ids, and a dense layer."""

    def __init__(self, embed):
        super().__init__()
        self.embed = embed
        self.dense = keras.layers.Dense(
            1, kernel_initializer=keras.initializers.RandomNormal(seed=3)
        )

    def call(self, inputs, training=None):
        left, right = inputs[:, :4], inputs[:, 4:]
        x = tf.reduce_sum(self.embed(left), axis=1)
        y = tf.reduce_mean(self.embed(right) ** 2, axis=1)
        return self.dense(tf.concat([x, y], axis=1))


def batches(seed=0, count=5, size=16, all_rows=False):
    """Yields `count` pairs (indices [size, 7] into KEYS, labels [size, 1])."""
    rng = np.random.default_rng(seed)
    result = []
    for _ in range(count):
        places = rng.integers(0, len(KEYS), (size, 7))
        if all_rows:
            places.flat[: len(KEYS)] = np.arange(len(KEYS))
        else:
            places %= 6 + rng.integers(0, 4)
        labels = rng.normal(size=(size, 1)).astype(np.float32)
        result.append((places, labels))
    return result


def models(**layer_options):
    """Returns the built models `(dynamic, dense)` with equal initial values."""
    layer = lodestar.layers.DynamicEmbedding(DIM, **layer_options)
    layer.table.lookup(KEYS, training=True)
    rows = layer.table.lookup(KEYS).numpy()
    dynamic, dense = TwoTower(layer), TwoTower(OneHotEmbedding(rows))
    dynamic(KEYS[np.zeros((1, 7), int)])
    dense(np.zeros((1, 7), int))
    return dynamic, dense


def rows(model):
    """Returns `[len(KEYS), DIM]` of either model."""
    if isinstance(model.embed, OneHotEmbedding):
        return model.embed.matrix.numpy()
    return model.embed.table.lookup(KEYS).numpy()


def fit_both(dynamic_optimizer, dense_optimizer, eager):
    """Returns `models()` after `fit` with their optimizers on every id per step."""
    data = batches(all_rows=True)
    y = np.concatenate([labels for _, labels in data])
    dynamic, dense = models()
    for model, optimizer, keys in (
        (dynamic, dynamic_optimizer, KEYS),
        (dense, dense_optimizer, np.arange(len(KEYS))),
    ):
        model.compile(optimizer, "mse", run_eagerly=eager)
        x = np.concatenate([keys[places] for places, _ in data])
        model.fit(x, y, batch_size=16, epochs=2, shuffle=False, verbose=0)
    return dynamic, dense


def train(model, optimizer, data, graph=True, clip=None):
    """Trains in a custom loop; `clip` applies tf.clip_by_global_norm."""
    dynamic = not isinstance(model.embed, OneHotEmbedding)

    def step(x, y):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((model(x, training=True) - y) ** 2) * 5.0
            if optimizer is not None:
                loss = optimizer.scale_loss(loss)
        gradients = tape.gradient(loss, model.trainable_variables)
        if clip:
            gradients, _ = lodestar.optimizers.clip_by_global_norm(
                gradients, clip
            )
        optimizer.apply_gradients(
            zip(gradients, model.trainable_variables, strict=True)
        )

    # The dense model is the reference, and needs no graph, which takes longer.
    if graph and dynamic:
        step = tf.function(step)
    for places, labels in data:
        x = KEYS[places] if dynamic else places
        step(tf.constant(x), tf.constant(labels))


def assert_same(dynamic, dense, tolerance=1e-6):
    """Checks that rows and dense weights are equal."""
    np.testing.assert_allclose(rows(dynamic), rows(dense), 0, tolerance)
    for a, b in zip(dynamic.dense.weights, dense.dense.weights, strict=True):
        np.testing.assert_allclose(a.numpy(), b.numpy(), 0, tolerance)
