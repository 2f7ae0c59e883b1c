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
import tensorflow as tf

from lodestar.data import Column, Schema, open_dataset

DIM, BATCH = 32, 512
USER, MOVIE = ("user", "history"), ("item", "genres")

options = movielens.arguments(epochs=20)
folder = tempfile.mkdtemp()
files = movielens.prepare(folder, "last", options.data)
keras.utils.set_random_seed(1)

columns = {name: Column.sparse(name) for name in ("user", "history", "item")}
columns["genres"] = Column.sparse("genres", encoding="hash")
schema = Schema(list(columns.values()))
movies = movielens.movies(files[0])
places = tf.constant(movies["item"].to_numpy())
count = movies["count"].to_numpy().astype("float32")
probability = count / count.sum()
data = open_dataset(files[0], schema, BATCH, shuffle=100_000, seed=1)
# The label is the place of the movie in the catalogue.
data = data.map(lambda x: (x, tf.searchsorted(places, x["item"].flat_values)))
users = open_dataset(files[1], Schema([columns[n] for n in USER]), 1000)
catalogue = open_dataset(movies, Schema([columns[n] for n in MOVIE]), 2000)

# ## Two towers
#
# They share the table of movies: a history is the mean of its movies' rows.

inputs = schema.inputs()
item = lodestar.EmbeddingVariable(DIM, name="item")
tables = {"item": item, "history": item}


def tower(names):
    """Returns a model from these columns to a vector."""
    own = {name: inputs[name] for name in names}
    rows = lodestar.layers.EmbeddingCollection(
        {n: lodestar.Feature(tables.get(n, DIM), combiner="mean") for n in own}
    )(own)
    x = keras.layers.concatenate(list(rows.values()))
    x = keras.layers.Dense(2 * DIM, activation="relu")(x)
    return keras.Model(own, keras.layers.Dense(DIM)(x))


user, movie = tower(USER), tower(MOVIE)
scores = keras.ops.matmul(user.output, keras.ops.transpose(movie.output))
model = keras.Model(inputs, scores)

# ## Training
#
# The other movies of a batch are the negatives. Popular movies are in many
# batches; the correction keeps the loss from pushing them away too often. Equal
# movies of a batch are equally right.

correct = keras_rs.layers.SamplingProbabilityCorrection()


def in_batch_softmax(label, scores):
    """Cross-entropy of each row's movie among all movies of the batch."""
    label = tf.cast(label, tf.int32)  # Keras makes labels floats
    same = tf.cast(label[:, None] == label, tf.float32)
    return tf.nn.softmax_cross_entropy_with_logits(
        same / tf.reduce_sum(same, axis=1, keepdims=True),
        correct(scores, tf.gather(probability, label)),
    )


model.compile(lodestar.optimizers.Adam(1e-3), in_batch_softmax)
start = time.perf_counter()
model.fit(data, epochs=options.epochs, shuffle=False, verbose=0)
seconds = time.perf_counter() - start

# ## How good is it?

vectors = movie.predict(catalogue, verbose=0)
by_model = user.predict(users, verbose=0) @ vectors.T
movielens.print_metrics("two towers", by_model, *files)
print(f"Training took {seconds:.0f} s.")

# ## Serving
#
# The server has the tower of users and the vectors of all movies.

search = keras_rs.layers.BruteForceRetrieval(vectors, k=3)
server = keras.Model(user.input, search(user.output)[1])
lodestar.export.save(server, f"{folder}/served")
served = tf.saved_model.load(f"{folder}/served")
request = {"user": [[1]], "history": [[50, 172]]}
request = {n: tf.ragged.constant(v, tf.int64) for n, v in request.items()}
found = served.serve(request)["output_0"][0].numpy()
titles = movies["title"].take(found).to_pylist()
print("After Star Wars and its sequel:", *titles, sep="  ")
