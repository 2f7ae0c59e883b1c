"""MMoE and ESMM: predict clicks, and what is bought after a click.

J. Ma et al., "Modeling Task Relationships in Multi-task Learning with
Multi-gate Mixture-of-Experts", 2018; X. Ma et al., "Entire Space Multi-Task
Model", 2018. Whether an ad leads to a conversion is only seen if it is clicked,
yet a server ranks all ads, including those that nobody would click. ESMM trains
on all impressions: p(click) by the clicks, and p(click) p(conversion) by the
clicks with a conversion. The log is synthetic, with known probabilities. The
test is on its newest tenth.

    pip install tf-lodestar[tensorflow-cpu]
    python mmoe_esmm.py
"""

import os

os.environ.setdefault("LODESTAR_QUIET_START", "1")  # no notes from TensorFlow

import lodestar  # noqa: E402

# isort: split
import tempfile
import time

import clicks
import keras
import tensorflow as tf

from lodestar.data import Column, Schema, open_dataset

DIM, EXPERTS, BATCH = 16, 4, 512

options = clicks.arguments(rows=1_000_000, epochs=2)
folder = tempfile.mkdtemp()
log = clicks.conversions(folder, options.rows)
keras.utils.set_random_seed(1)
schema = Schema(
    [Column.label("click"), Column.label("conversion", optional=True)]
    + [Column.sparse(name) for name in ("user", "city", "ad", "category")]
)
train = open_dataset(log.train, schema, batch_size=BATCH)
test = open_dataset(log.test, schema, batch_size=4096)

# ## Labels of the entire space
#
# A missing conversion has the weight 0. ESMM needs no such weights: whether an
# ad was clicked *and* bought is known of all impressions.


def entire_space(features, labels, weights):
    """Replaces the label `conversion` by `bought`."""
    bought = labels["conversion"] * weights["conversion"][:, None]
    return features, {"click": labels["click"], "bought": bought}


# ## The model
#
# The experts read the features, and each task mixes the experts by a gate of
# its own.

inputs = schema.inputs()
rows = lodestar.layers.EmbeddingCollection(
    {name: lodestar.Feature(DIM, combiner="sum") for name in inputs}
)(inputs)
features = keras.layers.concatenate(list(rows.values()))
experts = keras.ops.stack(
    [
        keras.layers.Dense(32, activation="relu")(features)
        for _ in range(EXPERTS)
    ],
    axis=1,
)
outputs = {}
for task in ("click", "conversion"):
    gate = keras.layers.Dense(EXPERTS, activation="softmax")(features)
    x = keras.layers.Dot(axes=1)([gate, experts])
    x = keras.layers.Dense(16, activation="relu")(x)
    outputs[task] = keras.layers.Dense(1, activation="sigmoid", name=task)(x)
outputs["bought"] = outputs["click"] * outputs["conversion"]
model = keras.Model(inputs, outputs)

# ## Training
#
# The loss of an output without a label is None.

loss = "binary_crossentropy"
model.compile(
    lodestar.optimizers.Adam(3e-3),
    {"click": loss, "conversion": None, "bought": loss},
)
start = time.perf_counter()
data = train.map(entire_space)
model.fit(data, epochs=options.epochs, shuffle=False, verbose=0)
print(f"Training took {time.perf_counter() - start:.0f} s.")

# ## How good is it?
#
# AUC on all test impressions: the log's generator knows which ads would have
# led to a conversion, had they been clicked.

truth = log.truth
truth["bought"] = truth["click"] * truth["conversion"]
truth["p_bought"] = truth["p_click"] * truth["p_conversion"]
found = model.predict(test, verbose=0)
print("AUC         model   truth")
for task in outputs:
    of_model = clicks.auc(truth[task], found[task].ravel())
    of_truth = clicks.auc(truth[task], truth[f"p_{task}"])
    print(f"{task:10}  {of_model:.4f}  {of_truth:.4f}")

# ## Serving

lodestar.export.save(model, f"{folder}/served")
served = tf.saved_model.load(f"{folder}/served")
request = {
    name: tf.ragged.constant([[7]], tf.int64) for name in schema.inputs()
}
answer = served.serve(request)
for task in outputs:
    print(f"p({task}) of one impression  {float(answer[task][0, 0]):.4f}")
