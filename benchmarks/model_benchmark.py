"""Compares training steps of a click model with different embeddings.

The baseline, "given rows", is the model after its embeddings: it is fed with
rows and computes their gradient. "floor" omits that gradient as well.

The model has 26 features of 100,000 ids that follow Zipf's law, batches of
2,048, dimension 16, a tower of 256 and 128 units, and Adagrad. Features are
single ids, or bags of four.
"""

import itertools
import statistics

import keras
import numpy as np
import tensorflow as tf

import lodestar
from benchmarks import measure, training_benchmark

BATCHES = 16
DIM = 16
FEATURES = 26
NAMES = [f"feature_{i}" for i in range(FEATURES)]
# Maximum time relative to the model of given rows.
WANTED = {"collection": 1.1, "layers": 1.15}


def single(ids, rows):
    """Returns rows `[N, DIM]` of ids `[N, B]`: their mean if B is above 1."""
    return keras.ops.mean(rows, axis=1) if ids.shape[1] > 1 else rows[:, 0]


class GivenRows(keras.layers.Layer):
    """Passes fed rows on; their gradients are computed, and one is returned."""

    def build(self, shape):
        self.taken = self.add_weight(shape=(), initializer="zeros")

    def call(self, rows):
        @tf.custom_gradient
        def forward(rows, weight):
            return tf.identity(rows), lambda dy: (None, dy[0, 0])

        return forward(rows, tf.convert_to_tensor(self.taken))


def of_given_rows(rows, known):
    """Given rows, in the form of the other embeddings."""
    del known
    return [GivenRows()(rows[name]) for name in NAMES]


def of_keras(ids, known):
    """Uses keras.layers.Embedding, which needs ids below its size."""
    return [
        single(ids[name], keras.layers.Embedding(known, DIM)(ids[name]))
        for name in NAMES
    ]


def of_keras_hashed(ids, known):
    """Adds keras.layers.Hashing, which accepts any ids."""
    rows = []
    for name in NAMES:
        places = keras.layers.Hashing(known)(ids[name])
        rows.append(
            single(ids[name], keras.layers.Embedding(known, DIM)(places))
        )
    return rows


def of_layers(ids, known):
    """Uses one DynamicEmbedding per feature."""
    del known
    return [
        lodestar.layers.DynamicEmbedding(
            DIM, combiner="mean", name=f"of_{name}"
        )(ids[name])
        for name in NAMES
    ]


def of_collection(ids, known):
    """Uses one EmbeddingCollection, with a table per feature."""
    del known
    collection = lodestar.layers.EmbeddingCollection(
        {
            name: lodestar.Feature(
                lodestar.EmbeddingVariable(DIM, name=f"of_{name}"),
                combiner="mean",
            )
            for name in NAMES
        }
    )
    return list(collection(ids).values())


def click_model(embed, known, bag):
    """Returns a model of ids `[N, bag]` by feature; without `embed`, of its rows."""
    if embed is None:
        inputs = keras.Input((FEATURES * DIM,))
        hidden = inputs
    else:
        inputs = {
            name: keras.Input((DIM,), name=name)
            if embed is of_given_rows
            else keras.Input((bag,), dtype="int64", name=name)
            for name in NAMES
        }
        hidden = keras.layers.Concatenate()(embed(inputs, known))
    for units in (256, 128):
        hidden = keras.layers.Dense(units, activation="relu")(hidden)
    model = keras.Model(inputs, keras.layers.Dense(1)(hidden))
    optimizer = keras.optimizers.Adagrad(0.01)
    if embed in (of_layers, of_collection):
        optimizer = lodestar.optimizers.wrap(optimizer)
    model.compile(optimizer, keras.losses.BinaryCrossentropy(from_logits=True))
    model.optimizer.build(model.trainable_variables)
    return model


def step_of(model):
    """Returns a training step of `(x, y)`, where x `[FEATURES, N, bag]` are ids."""

    # One tensor, because passing 26 from Python costs more than embedding them.
    # `fit` reads them inside the graph.
    @tf.function(reduce_retracing=True)
    def step(feed):
        x, y = feed
        if isinstance(model.input, dict):
            x = dict(zip(NAMES, tf.unstack(x), strict=True))
        return model.train_step((x, y))["loss"]

    return step


def compare(bag, options):
    """Times all embeddings in turn; prints a line for each."""
    known, size = (1000, 64) if options.small else (100_000, 2048)
    rng = np.random.default_rng(5)
    feeds: dict[str, list] = {"ids": [], "given rows": [], "floor": []}
    for _ in range(BATCHES):
        ids = training_benchmark.zipf(rng, 1.05, known, FEATURES * size * bag)
        rows = rng.random((FEATURES, size, DIM), np.float32)
        y = tf.constant(rng.integers(0, 2, (size, 1)), tf.float32)
        for kind, x in {
            "ids": ids.reshape(FEATURES, size, bag),
            "given rows": rows,
            "floor": rows.transpose(1, 0, 2).reshape(size, FEATURES * DIM),
        }.items():
            feeds[kind].append((tf.constant(x), y))
    ways = {
        "floor": None,
        "given rows": of_given_rows,
        "keras": of_keras,
        "keras_hashed": of_keras_hashed,
        "layers": of_layers,
        "collection": of_collection,
    }
    steps = {
        way: step_of(click_model(embed, known, bag))
        for way, embed in ways.items()
    }
    seconds: dict[str, list[float]] = {way: [] for way in ways}
    for run, (way, step) in itertools.product(
        range(options.runs + 1), steps.items()
    ):
        taken = measure.call_seconds(step, feeds.get(way, feeds["ids"]))
        if run:
            seconds[way].append(statistics.mean(taken))
    medians = {way: statistics.median(runs) for way, runs in seconds.items()}
    given = medians["given rows"]
    for way, median in medians.items():
        wanted = {"wanted": round(1 / WANTED[way], 2)} if way in WANTED else {}
        measure.print_line(
            work=f"click model, {FEATURES} features, bags of {bag}, {way}",
            baseline="the same model with given rows",
            ratio=round(given / median, 2),
            **wanted,
            added=round(median / given - 1, 3),
            over_keras=round(medians["keras"] / median, 2),
            milliseconds=round(median * 1e3, 2),
            examples_per_second=round(size / median),
            runs=options.runs,
        )


def main():
    """Prints one JSON line per embedding."""
    options = measure.arguments(__doc__)
    for bag in (1, 4):
        compare(bag, options)


if __name__ == "__main__":
    main()
