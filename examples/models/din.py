"""DIN: the part of a history that matters for a movie predicts if it is liked.

G. Zhou et al., "Deep Interest Network for Click-Through Rate Prediction", 2018.
A small network weighs each movie of a user's history by its relevance to the
movie in question. The label is a rating of 4 or 5. The test is on the newest
tenth of all MovieLens ratings; most of its users are new.

    pip install tf-lodestar[tensorflow-cpu]
    python din.py
"""

import os

os.environ.setdefault("LODESTAR_QUIET_START", "1")  # no notes from TensorFlow

import lodestar  # noqa: E402

# isort: split
import tempfile
import time

import keras
import movielens
import tensorflow as tf

from lodestar.data import Column, Schema, open_dataset

DIM, BATCH = 16, 256

options = movielens.arguments(epochs=3)
folder = tempfile.mkdtemp()
files = movielens.prepare(folder, "newest", options.data)
keras.utils.set_random_seed(1)

# ## Data
#
# `genre` and `history_genre` share a table, so they also share a hash.

schema = Schema(
    [Column.label("liked")]
    + [Column.sparse(n) for n in ("item", "history", "history_rating")]
    + [
        Column.sparse(n, encoding="hash", hash_as="genre")
        for n in ("genre", "history_genre")
    ]
    + [Column.sparse(n, encoding="hash") for n in ("gender", "occupation")]
)
train = open_dataset(files[0], schema, batch_size=BATCH, shuffle=90_000, seed=1)
test = open_dataset(files[1], schema, batch_size=1000)

# ## The model
#
# `target` is the movie in question, and each step of `history` is the movie,
# its genre, and how the user rated it.

inputs = schema.inputs()
item = lodestar.EmbeddingVariable(DIM, name="item")
genre = lodestar.EmbeddingVariable(DIM, name="genre")
rows = lodestar.layers.EmbeddingCollection(
    {
        "item": lodestar.Feature(item, combiner="sum"),
        "genre": lodestar.Feature(genre, combiner="sum"),
        "history": lodestar.Feature(item),
        "history_genre": lodestar.Feature(genre),
        "history_rating": 2 * DIM,
        "gender": lodestar.Feature(DIM, combiner="sum"),
        "occupation": lodestar.Feature(DIM, combiner="sum"),
    }
)(inputs)
target = keras.layers.concatenate([rows["item"], rows["genre"]])
history = lodestar.layers.PerStep(keras.layers.Concatenate())(
    [rows["history"], rows["history_genre"]]
)
history = history + rows["history_rating"]
interest = lodestar.layers.TargetAttention((32,))(target, history)
hidden = keras.layers.concatenate(
    [target, interest, rows["gender"], rows["occupation"]]
)
for units in (64, 32):
    hidden = keras.layers.Dense(units, activation="relu")(hidden)
liked = keras.layers.Dense(1, activation="sigmoid", name="liked")(hidden)
model = keras.Model(inputs, {"liked": liked})

# ## Training

auc = keras.metrics.AUC(name="auc", num_thresholds=1000)
model.compile(
    lodestar.optimizers.Adam(1e-3), "binary_crossentropy", metrics=[auc]
)
start = time.perf_counter()
model.fit(train, epochs=options.epochs, shuffle=False, verbose=0)
print(f"Training took {time.perf_counter() - start:.0f} s.")

# ## How good is it?

print(f"AUC  {model.evaluate(test, verbose=0, return_dict=True)['auc']:.4f}")

# ## Serving
#
# Someone liked Star Wars and its sequels. Which of two movies will they like?

lodestar.export.save(model, f"{folder}/served")
served = tf.saved_model.load(f"{folder}/served")
person = {"gender": ["F"], "occupation": ["student"]}
person |= {"history": [50, 172, 181], "history_rating": [5, 5, 5]}
person |= {"history_genre": ["Action", "Action", "Action"]}
last_crusade = {**person, "item": [210], "genre": ["Action"]}
scream = {**person, "item": [288], "genre": ["Horror"]}
request = {}
for name in schema.inputs():
    lists = [last_crusade[name], scream[name]]
    words = isinstance(lists[0][0], str)
    request[name] = tf.ragged.constant(lists, tf.string if words else tf.int64)
answer = served.serve(request)["liked"].numpy().ravel()
print(
    "Indiana Jones and the Last Crusade {:.3f}, Scream {:.3f}".format(*answer)
)
