"""A training step of the embedding variable beside TensorFlow's and Keras's.

Look-up, gradient and Adagrad for 65,536 ids that follow Zipf's law over 1M
rows of 32 numbers; and eight callers of it beside one.
"""

import concurrent.futures
import functools

import keras
import numpy as np
import tensorflow as tf

import lodestar
from benchmarks import embedding_benchmark, measure

BATCHES = 16
CALLERS = 8
DIM = 32
EPSILON = 1e-7
LEARNING_RATE = 0.01
FIRST_ACCUMULATOR = 0.1
# Ids and the gradient of their rows: no loss, so that the step is all there is.
SIGNATURE = (
    tf.TensorSpec([None], tf.int64),
    tf.TensorSpec([None, DIM], tf.float32),
)


def zipf(rng, exponent, rows, size):
    """Places in [0, rows), the k-th as often as k ** -exponent."""
    weights = np.arange(1, rows + 1) ** -exponent
    return rng.choice(rows, size, p=weights / weights.sum())


def our_step(matrix, keys):
    """A step of an embedding variable that holds `matrix`."""
    layer = lodestar.layers.DynamicEmbedding(matrix.shape[1])
    for begin in range(0, len(keys), 2**18):
        part = slice(begin, begin + 2**18)
        layer.table.insert_or_assign(keys[part], matrix[part])
    optimizer = lodestar.optimizers.DynamicEmbeddingOptimizer(
        keras.optimizers.Adagrad(
            LEARNING_RATE, FIRST_ACCUMULATOR, epsilon=EPSILON
        )
    )
    optimizer.build(layer.table.trainable_variables)

    @tf.function(input_signature=SIGNATURE)
    def step(ids, upstream):
        variables = layer.table.trainable_variables
        with tf.GradientTape() as tape:
            rows = layer.table.lookup(ids, training=True)
        gradients = tape.gradient(rows, variables, upstream)
        optimizer.apply(gradients, variables)
        return rows

    return step


def stock_step(matrix):
    """The same by TensorFlow's raw ops, of a dense matrix."""
    rows = tf.Variable(matrix)
    accumulator = tf.Variable(tf.fill(matrix.shape, FIRST_ACCUMULATOR))

    @tf.function(input_signature=SIGNATURE)
    def step(places, upstream):
        with tf.GradientTape() as tape:
            taken = tf.gather(rows, places)
        gradient = tape.gradient(taken, rows, upstream)
        unique, positions = tf.unique(gradient.indices)
        sums = tf.math.unsorted_segment_sum(
            gradient.values, positions, tf.size(unique)
        )
        tf.raw_ops.ResourceSparseApplyAdagradV2(
            var=rows.handle,
            accum=accumulator.handle,
            lr=LEARNING_RATE,
            epsilon=EPSILON,
            grad=sums,
            indices=unique,
        )
        return taken

    return step


def keras_step(matrix):
    """The same by keras.layers.Embedding and keras.optimizers.Adagrad."""
    layer = keras.layers.Embedding(*matrix.shape)
    layer.build(())
    layer.embeddings.assign(matrix)
    optimizer = keras.optimizers.Adagrad(
        LEARNING_RATE, FIRST_ACCUMULATOR, epsilon=EPSILON
    )
    optimizer.build(layer.trainable_variables)

    @tf.function(input_signature=SIGNATURE)
    def step(places, upstream):
        with tf.GradientTape() as tape:
            taken = layer(places)
        gradients = tape.gradient(taken, layer.trainable_variables, upstream)
        optimizer.apply(gradients, layer.trainable_variables)
        return taken

    return step


class Batches:
    """Zipf ids over a matrix, as a table and as a dense variable take them."""

    def __init__(self, exponent, options):
        rows, self.size = (
            (10_000, 4096) if options.small else (1_000_000, 65_536)
        )
        rng = np.random.default_rng(5)
        self.keys = embedding_benchmark.spread_keys(rows)
        self.matrix = rng.random((rows, DIM), np.float32)
        places = [zipf(rng, exponent, rows, self.size) for _ in range(BATCHES)]
        self.feeds = [tf.constant(self.keys[place]) for place in places]
        self.place_feeds = [tf.constant(place) for place in places]
        self.upstream = tf.constant(rng.random((self.size, DIM), np.float32))


def compare_callers(batches, runs):
    """Eight threads that share out the batches beside one thread."""
    step = our_step(batches.matrix, batches.keys)
    step(batches.feeds[0], batches.upstream)  # traced by one thread

    def one_by_one(feeds):
        for feed in feeds:
            step(feed, batches.upstream)
        return len(feeds)

    with concurrent.futures.ThreadPoolExecutor(CALLERS) as pool:

        def at_once(feeds):
            list(pool.map(lambda feed: step(feed, batches.upstream), feeds))
            return len(feeds)

        measure.compare(
            f"training step, {CALLERS} callers, zipf(1.2) ids",
            at_once,
            one_by_one,
            [batches.feeds],
            against="one caller",
            items=sum(map(len, batches.feeds)),
            wanted=0.9,
            runs=runs,
        )


def main():
    """Prints one JSON line a comparison."""
    options = measure.arguments(__doc__)
    batches = Batches(1.05, options)
    for against, peer, wanted in (
        ("gather + unique + ResourceSparseApplyAdagradV2", stock_step, 4),
        ("keras Embedding + Adagrad", keras_step, 25),
    ):
        measure.compare(
            f"training step, {batches.size} zipf(1.05) ids, "
            f"{len(batches.keys)} x {DIM}, Adagrad",
            functools.partial(
                our_step(batches.matrix, batches.keys),
                upstream=batches.upstream,
            ),
            functools.partial(peer(batches.matrix), upstream=batches.upstream),
            batches.feeds,
            against=against,
            items=batches.size,
            wanted=wanted,
            runs=options.runs,
            baseline_feeds=batches.place_feeds,
        )
    compare_callers(Batches(1.2, options), options.runs)


if __name__ == "__main__":
    main()
