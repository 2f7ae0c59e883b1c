"""DLRM: the dot products of all pairs of features predict a click.

M. Naumov et al., "Deep Learning Recommendation Model for Personalization and
Recommendation Systems", 2019. The log is synthetic, with Criteo's columns and
known probabilities. The test is on its newest tenth.

    pip install tf-lodestar[tensorflow-cpu] keras-rs
    python dlrm.py
"""

import os

os.environ.setdefault("LODESTAR_QUIET_START", "1")  # no notes from TensorFlow

import lodestar  # noqa: E402

# isort: split
import tempfile
import time

import clicks
import keras
import keras_rs
import tensorflow as tf

from lodestar.data import Column, Schema, open_dataset

DIM, BATCH = 16, 512

options = clicks.arguments(rows=1_000_000)
folder = tempfile.mkdtemp()
log = clicks.criteo_like(folder, options.rows)
keras.utils.set_random_seed(1)

# ## Data
#
# Training reads the log in the order of time, as if it were arriving.

schema = Schema(
    [Column.label("click")]
    + [Column.dense(f"I{n}") for n in range(1, 14)]
    + [Column.sparse(f"C{n}") for n in range(1, 27)]
)
train = open_dataset(log.train, schema, batch_size=BATCH)
test = open_dataset(log.test, schema, batch_size=4096)

# ## The model
#
# The bottom network turns the numbers into one vector, and each id column has
# a row. The top network sees the dot product of each pair of them.

inputs = schema.inputs()
ids = [column.name for column in schema.sparse]
rows = lodestar.layers.EmbeddingCollection(
    {name: lodestar.Feature(DIM, combiner="sum") for name in ids}
)({name: inputs[name] for name in ids})
bottom = keras.layers.concatenate([inputs[c.name] for c in schema.dense])
for units in (64, DIM):
    bottom = keras.layers.Dense(units, activation="relu")(bottom)
pairs = keras_rs.layers.DotInteraction()([bottom, *rows.values()])
top = keras.layers.concatenate([bottom, pairs])
for units in (64, 32):
    top = keras.layers.Dense(units, activation="relu")(top)
click = keras.layers.Dense(1, activation="sigmoid", name="click")(top)
model = keras.Model(inputs, {"click": click})

# ## Training

model.compile(lodestar.optimizers.Adam(1e-3), "binary_crossentropy")
start = time.perf_counter()
model.fit(train, epochs=options.epochs, shuffle=False, verbose=0)
print(f"Training took {time.perf_counter() - start:.0f} s.")

# ## How good is it?

scores = model.predict(test, verbose=0)["click"][:, 0]
best = clicks.auc(log.truth["click"], log.truth["probability"])
print(f"AUC  {clicks.auc(log.truth['click'], scores):.4f}")
print(f"Best AUC  {best:.4f}")

# ## Serving
#
# An export needs TensorFlow and the op library, but not this program.

lodestar.export.save(model, f"{folder}/served")
served = tf.saved_model.load(f"{folder}/served")
features, _ = next(iter(test))
request = {name: value[:1] for name, value in features.items()}
answer = served.serve(request)["click"]
print(
    f"The first test impression is clicked with probability {float(answer[0, 0]):.3f}"
)
