"""Rank people by the probability that they earn more: from CSV to a server.

The file is a sample of the US census of 1994 that comes with Lodestar. Columns
of words, such as the occupation, become rows of embedding tables. The others
are numbers.

    pip install tf-lodestar[tensorflow-cpu]
    python ranking.py
"""

import os

os.environ.setdefault("LODESTAR_QUIET_START", "1")  # no notes from TensorFlow

import lodestar  # noqa: E402

# isort: split
import tempfile

import keras
import tensorflow as tf

keras.utils.set_random_seed(1)

# ## Reading a file
#
# `open_dataset` infers that columns of words are ids, and returns batches as a
# `tf.data.Dataset`. Integers may be ids or numbers, so `numeric=` declares them.
# `split=` holds out a part of the rows for validation.

file = lodestar.testing.census_file()
train, test = lodestar.data.open_dataset(
    file,
    label="salary=>50K",
    numeric=[
        "age",
        "education-num",
        "capital-gain",
        "capital-loss",
        "hours-per-week",
    ],
    batch_size=256,
    split=0.2,
    shuffle=2000,
    seed=1,
    verbose=False,
)
schema = train.schema
print(schema)

# ## A model
#
# `schema.inputs()` are the Keras inputs of the columns. They carry the schema
# into the model, its files and its exports. The words of a column get rows of
# dimension 8 when training first sees them.

inputs = schema.inputs()
words = [column.name for column in schema.sparse]
rows = lodestar.layers.EmbeddingCollection(
    {name: lodestar.Feature(8, combiner="mean") for name in words}
)({name: inputs[name] for name in words})
numbers = [inputs[name] for name in inputs if name not in words]
scaled = keras.layers.BatchNormalization(momentum=0.9)(
    keras.layers.concatenate(numbers)
)
hidden = keras.layers.concatenate([*rows.values(), scaled])
hidden = keras.layers.Dense(32, activation="relu")(hidden)
score = keras.layers.Dense(1, activation="sigmoid", name="score")(hidden)
model = keras.Model(inputs, score)

# ## Training
#
# `lodestar.optimizers.Adagrad` is Keras's Adagrad, which also trains tables.

model.compile(
    lodestar.optimizers.Adagrad(0.1),
    "binary_crossentropy",
    metrics=[keras.metrics.AUC(name="auc")],
)
# The reader shuffles, not Keras.
model.fit(train, epochs=5, validation_data=test, shuffle=False, verbose=2)
auc = model.evaluate(test, verbose=0, return_dict=True)["auc"]

# ## Serving
#
# The export needs TensorFlow alone, and takes the words themselves.

path = tempfile.mkdtemp()
lodestar.export.save_plain(model, path)
served = tf.saved_model.load(path).signatures["serving_default"]
arguments = served.structured_input_signature[1]
print(f"\nInputs of the server: {', '.join(sorted(arguments))}")

# ## How good is it?

print(f"AUC of {auc:.3f} on held-out people; 0.5 is chance")
