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
import pyarrow.parquet as pq
import tensorflow as tf
from keras import layers

from lodestar import sequence
from lodestar.data import Column, Schema, open_dataset
from lodestar.layers import DynamicEmbedding, PerStep, SequenceAttention

DIM, HEADS, BLOCKS, LENGTH, BATCH, DROPOUT = 64, 2, 2, 50, 64, 0.2
options = movielens.arguments(epochs=60)
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
    size = tf.minimum(items.row_lengths(), LENGTH + 1)
    room = tf.cast(items.row_lengths() - size + 1, tf.float32)
    begin = tf.cast(room * tf.random.uniform(tf.shape(room)), tf.int64)
    items = sequence.slice(items, begin, size)
    places = tf.ragged.map_flat_values(
        lambda ids: tf.searchsorted(catalogue, ids), items[:, 1:]
    )
    return {"history": items[:, :-1]}, places.to_tensor()


log = log.rename_columns(["user", "history"])
train = open_dataset(log, schema, BATCH, shuffle=1000, seed=1).map(window)
test = open_dataset(files[1], schema, 256)

# ## The model


class Scores(layers.Layer):
    """Products of states with the rows of all movies, which are the inputs'."""

    def __init__(self, item):
        super().__init__()
        self.item = item
        self.supports_masking = True

    def call(self, states, training=None):
        rows = self.item(catalogue, training=training)
        return keras.ops.matmul(states, keras.ops.transpose(rows))


inputs = schema.inputs()
item = DynamicEmbedding(DIM, name="item")
position = DynamicEmbedding(DIM, name="position")
x = item(inputs["history"]) + position(sequence.positions(inputs["history"]))
x = PerStep(layers.Dropout(DROPOUT))(x)
for _ in range(BLOCKS):
    attend = SequenceAttention(HEADS, DIM // HEADS, causal=True)
    attended = attend(PerStep(layers.LayerNormalization())(x))
    x = x + PerStep(layers.Dropout(DROPOUT))(attended)
    network = [layers.LayerNormalization(), layers.Dense(DIM, "relu")]
    network += [layers.Dense(DIM), layers.Dropout(DROPOUT)]
    x = x + PerStep(keras.Sequential(network))(x)
x = PerStep(layers.LayerNormalization())(x)
scores = Scores(item)
model = keras.Model(inputs, scores(sequence.pad(x)[0]))

# ## Training

loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
model.compile(lodestar.optimizers.Adam(2e-3), loss)
start = time.perf_counter()
model.fit(train, epochs=options.epochs, shuffle=False, verbose=0)
print(f"Training took {time.perf_counter() - start:.0f} s.")

# ## How good is it?

recommender = keras.Model(inputs, scores(sequence.pool(x, "last")))
by_model = recommender.predict(test, verbose=0)
movielens.print_metrics("SASRec", by_model, *files)

# ## Serving

lodestar.export.save(recommender, f"{folder}/served")
served = tf.saved_model.load(f"{folder}/served")
request = {"history": tf.ragged.constant([[50, 172]], tf.int64)}
best = tf.math.top_k(served.serve(request)["output_0"][0], 3).indices.numpy()
titles = movies["title"].take(best).to_pylist()
print("After Star Wars and its sequel:", *titles, sep="  ")
