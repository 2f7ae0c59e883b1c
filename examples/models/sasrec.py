"""SASRec: self-attention over a history finds the movie that comes next.

W.-C. Kang and J. McAuley, "Self-Attentive Sequential Recommendation", 2018, with
the cross-entropy over all movies as the loss, which ranks better than the
paper's sampled loss. The test is the last rating of each MovieLens user, ranked
among all movies not rated before.

    pip install tf-lodestar[tensorflow-cpu]
    python sasrec.py
"""

import os

os.environ.setdefault("LODESTAR_QUIET_START", "1")  # no notes from TensorFlow

import lodestar  # noqa: E402

# isort: split
import tempfile
import time

import keras
import movielens
import numpy as np
import pyarrow.parquet as pq
import tensorflow as tf

from lodestar import sequence
from lodestar.data import Column, Schema, open_dataset

DIM, HEADS, BLOCKS, LENGTH, BATCH, K = 64, 2, 2, 50, 64, 10
DROPOUT = 0.2

options = movielens.arguments(epochs=100)
folder = tempfile.mkdtemp()
files = movielens.prepare(folder, "last", options.data)
keras.utils.set_random_seed(1)

# ## Data
#
# An epoch takes a window of `LENGTH` movies from each user's log, at random. The
# labels are the movies that follow, as places in the catalogue.

movies = movielens.movies(files[0])
catalogue = tf.constant(movies["item"].to_numpy())
log = pq.read_table(files[0], columns=["user", "item"])
log = log.group_by("user", use_threads=False).aggregate([("item", "list")])
schema = Schema([Column.sparse("history")])


def window(features):
    """Returns windows and, for each movie, the place of the next."""
    items = features["history"]
    lengths = items.row_lengths()
    size = tf.minimum(lengths, LENGTH + 1)
    room = tf.cast(lengths - size + 1, tf.float32)
    begin = tf.cast(room * tf.random.uniform(tf.shape(room)), tf.int64)
    items = sequence.slice(items, begin, size)
    following = items[:, 1:].to_tensor()
    places = tf.searchsorted(catalogue, tf.reshape(following, [-1]))
    places = tf.reshape(places, tf.shape(following))
    return {"history": items[:, :-1]}, places


train = open_dataset(
    log.rename_columns(["user", "history"]),
    schema,
    batch_size=BATCH,
    shuffle=1000,
    seed=1,
).map(window)
test = open_dataset(files[1], schema, batch_size=256)

# ## The model


class Scores(keras.layers.Layer):
    """Products of states with the rows of all movies, which are the inputs'."""

    def __init__(self, item):
        super().__init__()
        self.item = item
        self.supports_masking = True

    def call(self, states, training=None):
        rows = self.item(catalogue, training=training)
        return keras.ops.matmul(states, keras.ops.transpose(rows))


def per_step(*layers):
    """Applies Keras layers to each step of ragged sequences."""
    return lodestar.layers.PerStep(keras.Sequential(layers))


inputs = schema.inputs()
item = lodestar.layers.DynamicEmbedding(DIM, name="item")
position = lodestar.layers.DynamicEmbedding(DIM, name="position")
x = item(inputs["history"]) + position(sequence.positions(inputs["history"]))
x = per_step(keras.layers.Dropout(DROPOUT))(x)
for _ in range(BLOCKS):
    attended = lodestar.layers.SequenceAttention(
        HEADS, DIM // HEADS, causal=True, dropout=DROPOUT
    )(per_step(keras.layers.LayerNormalization())(x))
    x = x + per_step(keras.layers.Dropout(DROPOUT))(attended)
    x = x + per_step(
        keras.layers.LayerNormalization(),
        keras.layers.Dense(DIM, activation="relu"),
        keras.layers.Dense(DIM),
        keras.layers.Dropout(DROPOUT),
    )(x)
x = per_step(keras.layers.LayerNormalization())(x)
scores = Scores(item)
padded, _ = sequence.pad(x)
model = keras.Model(inputs, scores(padded))
recommender = keras.Model(inputs, {"scores": scores(sequence.pool(x, "last"))})

# ## Training

model.compile(
    lodestar.optimizers.Adam(1e-3),
    keras.losses.SparseCategoricalCrossentropy(from_logits=True),
)
start = time.perf_counter()
for n in range(10):
    h = model.fit(train, epochs=options.epochs // 10, shuffle=False, verbose=0)
    by_model = recommender.predict(test, verbose=0)["scores"]
    print(
        h.history["loss"][-1], movielens.recall_and_ndcg(by_model, *files, k=K)
    )
print(time.perf_counter() - start)
