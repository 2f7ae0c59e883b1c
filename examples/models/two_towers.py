"""Two towers: find the movies that a user may rate next among all movies.

X. Yi et al., "Sampling-Bias-Corrected Neural Modeling for Large Corpus Item
Recommendations", 2019. One tower turns a user's history into a vector, the
other a movie; the closest movies are recommended. The test is the last rating
of each MovieLens user, ranked among all movies not rated before.

    pip install tf-lodestar[tensorflow-cpu] keras-rs
    python two_towers.py
"""

import os

os.environ.setdefault("LODESTAR_QUIET_START", "1")  # no notes from TensorFlow

import lodestar  # noqa: E402

# isort: split
import tempfile
import time

import keras
import keras_rs
import movielens
import numpy as np
import tensorflow as tf

from lodestar.data import Column, Schema, open_dataset

DIM, BATCH, K = 32, 512, 10
USER, MOVIE = ("user", "gender", "occupation", "history"), ("item", "genres")

options = movielens.arguments(epochs=10)
folder = tempfile.mkdtemp()
files = movielens.prepare(folder, "last", options.data)
keras.utils.set_random_seed(1)


def columns(names):
    """Declares columns of ids; words are hashed."""
    words = ("gender", "occupation", "genres")
    return [
        Column.sparse(name, encoding="hash" if name in words else "int")
        for name in names
    ]


schema = Schema(columns(USER + MOVIE))
train = open_dataset(
    files[0], schema, batch_size=BATCH, shuffle=100_000, seed=1
)
test = open_dataset(files[1], schema, batch_size=1000)
movies = movielens.movies(files[0])
catalogue = open_dataset(movies, Schema(columns(MOVIE)), batch_size=len(movies))

# ## Two towers
#
# The towers share the table of movies: a history is the mean of its rows.

inputs = schema.inputs()
item = lodestar.EmbeddingVariable(DIM, name="item")


def tower(names):
    """Returns a model from these columns to a vector."""
    table = {"item": item, "history": item}
    rows = lodestar.layers.EmbeddingCollection(
        {n: lodestar.Feature(table.get(n, DIM), combiner="mean") for n in names}
    )({name: inputs[name] for name in names})
    hidden = keras.layers.concatenate(list(rows.values()))
    hidden = keras.layers.Dense(2 * DIM, activation="relu")(hidden)
    return keras.Model(
        {name: inputs[name] for name in names}, keras.layers.Dense(DIM)(hidden)
    )


class TwoTowers(keras.Model):
    """Scores every movie of a batch for every user of the batch."""

    def __init__(self):
        super().__init__()
        self.user, self.movie = tower(USER), tower(MOVIE)
        self.correct = keras_rs.layers.SamplingProbabilityCorrection()

    def call(self, batch, training=None):
        user = self.user({n: batch[n] for n in USER}, training=training)
        movie = self.movie({n: batch[n] for n in MOVIE}, training=training)
        return keras.ops.matmul(user, keras.ops.transpose(movie))

    # The other movies of a batch are the negatives. Popular movies are in many
    # batches; the correction keeps the loss from pushing them away too often.

    def compute_loss(self, x, y, y_pred, sample_weight=None, training=True):
        items = x["item"].flat_values
        place = tf.searchsorted(movies["item"].to_numpy(), items)
        scores = self.correct(y_pred, tf.gather(probability, place))
        same = tf.cast(items[:, None] == items, tf.float32)
        labels = same / tf.reduce_sum(same, axis=1, keepdims=True)
        return tf.reduce_mean(
            tf.nn.softmax_cross_entropy_with_logits(labels, scores)
        )


probability = (movies["count"].to_numpy() / 99_057).astype("float32")
model = TwoTowers()
model.compile(lodestar.optimizers.Adam(1e-3))
start = time.perf_counter()
h = model.fit(train, epochs=options.epochs, shuffle=False, verbose=2)
seconds = time.perf_counter() - start

users = model.user.predict(
    test.map(lambda x: {n: x[n] for n in USER}), verbose=0
)
vectors = model.movie.predict(catalogue, verbose=0)
popular = np.broadcast_to(movies["count"].to_numpy(), (len(users), len(movies)))
for name, scores in ("popular", popular), ("two towers", users @ vectors.T):
    recall, ndcg = movielens.recall_and_ndcg(scores, *files, k=K)
    print(f"{name:12} {recall:.4f} {ndcg:.4f}")
print(seconds)
