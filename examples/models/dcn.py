"""DCN: layers that multiply all features with each other predict a click.

R. Wang et al., "DCN V2: Improved Deep & Cross Network and Practical Lessons for
Web-scale Learning to Rank Systems", 2021. The log is synthetic, with Criteo's
columns and known probabilities. The test is on its newest tenth.

    pip install tf-lodestar[tensorflow-cpu] keras-rs
    python dcn.py
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
# Each cross layer multiplies its input with all features, so two of them reach
# products of three. The deep network is stacked on top.

inputs = schema.inputs()
ids = [column.name for column in schema.sparse]
rows = lodestar.layers.EmbeddingCollection(
    {name: lodestar.Feature(DIM, combiner="sum") for name in ids}
)({name: inputs[name] for name in ids})
numbers = [inputs[column.name] for column in schema.dense]
crossed = features = keras.layers.concatenate([*numbers, *rows.values()])
for _ in range(2):
    crossed = keras_rs.layers.FeatureCross(projection_dim=64)(features, crossed)
hidden = crossed
for units in (64, 32):
    hidden = keras.layers.Dense(units, activation="relu")(hidden)
click = keras.layers.Dense(1, activation="sigmoid", name="click")(hidden)
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
