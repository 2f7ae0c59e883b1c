"""Compares a training step of embedding variables with TensorFlow and Keras.

Lookup, gradient and update for 65,536 ids of 1M rows: Zipf's law and uniform
ids, dimensions 8, 32 and 128, Adagrad and Adam, with a loss and without; also
eight callers compared with one.
"""

import concurrent.futures
import functools
import itertools

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
BETAS = 0.9, 0.999


def optimizer_of(name):
    """Returns Keras's optimizer of this name."""
    if name == "Adam":
        return keras.optimizers.Adam(LEARNING_RATE, *BETAS, EPSILON)
    return keras.optimizers.Adagrad(
        LEARNING_RATE, FIRST_ACCUMULATOR, epsilon=EPSILON
    )


def compiled(step, dim, loss):
    """Returns a tf.function of ids and `upstream`.

    `step(ids, gradient_of)` looks up rows, calls `gradient_of(tape, rows,
    sources)` for gradients, and applies them. Without a loss, `upstream` is
    the gradient of the rows, so nothing but the step is timed; with one, it is
    the target of the rows.
    """

    @tf.function(
        input_signature=(
            tf.TensorSpec([None], tf.int64),
            tf.TensorSpec([None, dim], tf.float32),
        )
    )
    def run(ids, upstream):
        def gradient_of(tape, rows, sources):
            if not loss:
                return tape.gradient(rows, sources, upstream)
            with tape:
                error = tf.reduce_mean(tf.square(rows - upstream))
            return tape.gradient(error, sources)

        return step(ids, gradient_of)

    return run


def zipf(rng, exponent, rows, size):
    """Draws indices in [0, rows); index k has frequency k ** -exponent."""
    weights = np.arange(1, rows + 1) ** -exponent
    return rng.choice(rows, size, p=weights / weights.sum())


def our_step(matrix, keys, optimizer="Adagrad", loss=False):
    """Returns a step of an embedding variable that holds `matrix`."""
    dim = matrix.shape[1]
    table = lodestar.EmbeddingVariable(dim)
    outer = lodestar.optimizers.wrap(optimizer_of(optimizer))
    variables = [table]
    outer.build(variables)
    # As in training, rows follow the optimizer; no id has a row yet.
    outer.apply([tf.IndexedSlices(tf.zeros([1, dim]), keys[:1])], variables)
    for begin in range(0, len(keys), 2**18):
        part = slice(begin, begin + 2**18)
        table.insert_or_assign(keys[part], matrix[part])

    def step(ids, gradient_of):
        with tf.GradientTape() as tape:
            rows = table.lookup(ids, training=True)
        outer.apply(gradient_of(tape, rows, variables), variables)
        return rows

    return compiled(step, dim, loss)


def stock_step(matrix, optimizer="Adagrad", loss=False):
    """Returns the same by TensorFlow's raw ops on a dense matrix."""
    rows = tf.Variable(matrix)
    first = FIRST_ACCUMULATOR if optimizer == "Adagrad" else 0.0
    slots = [
        tf.Variable(tf.fill(matrix.shape, first))
        for _ in range(1 if optimizer == "Adagrad" else 2)
    ]
    steps = tf.Variable(0.0)

    def apply_adam(sums, unique):
        # TensorFlow has no sparse Adam op.
        scatter = functools.partial(
            tf.raw_ops.ResourceScatterUpdate, indices=unique
        )
        steps.assign_add(1.0)
        rate = LEARNING_RATE * tf.sqrt(1 - BETAS[1] ** steps)
        moments = []
        for slot, beta, power in zip(slots, BETAS, (1, 2), strict=True):
            old = tf.gather(slot, unique)
            moments.append(old + (sums**power - old) * (1 - beta))
            scatter(resource=slot.handle, updates=moments[-1])
        change = moments[0] / (tf.sqrt(moments[1]) + EPSILON)
        tf.raw_ops.ResourceScatterSub(
            resource=rows.handle,
            indices=unique,
            updates=change * rate / (1 - BETAS[0] ** steps),
        )

    def step(places, gradient_of):
        with tf.GradientTape() as tape:
            taken = tf.gather(rows, places)
        gradient = gradient_of(tape, taken, rows)
        unique, positions = tf.unique(gradient.indices)
        sums = tf.math.unsorted_segment_sum(
            gradient.values, positions, tf.size(unique)
        )
        if optimizer == "Adam":
            apply_adam(sums, unique)
        else:
            tf.raw_ops.ResourceSparseApplyAdagradV2(
                var=rows.handle,
                accum=slots[0].handle,
                lr=LEARNING_RATE,
                epsilon=EPSILON,
                grad=sums,
                indices=unique,
            )
        return taken

    return compiled(step, matrix.shape[1], loss)


def keras_step(matrix, optimizer="Adagrad", loss=False):
    """Returns the same by keras.layers.Embedding and Keras's optimizer."""
    layer = keras.layers.Embedding(*matrix.shape)
    layer.build(())
    layer.embeddings.assign(matrix)
    of_keras = optimizer_of(optimizer)
    variables = layer.trainable_variables
    of_keras.build(variables)

    def step(places, gradient_of):
        with tf.GradientTape() as tape:
            taken = layer(places)
        of_keras.apply(gradient_of(tape, taken, variables), variables)
        return taken

    return compiled(step, matrix.shape[1], loss)


class Batches:
    """Ids of a matrix, in the forms of a table and a dense variable.

    They follow Zipf's law with this exponent; with 0, all are equally frequent.
    """

    def __init__(self, exponent, options, dim=DIM):
        rows, self.size = (
            (10_000, 4096) if options.small else (1_000_000, 65_536)
        )
        rng = np.random.default_rng(5)
        self.keys = embedding_benchmark.spread_keys(rows)
        self.matrix = rng.random((rows, dim), np.float32)
        places = [zipf(rng, exponent, rows, self.size) for _ in range(BATCHES)]
        self.feeds = [tf.constant(self.keys[place]) for place in places]
        self.place_feeds = [tf.constant(place) for place in places]
        self.upstream = tf.constant(rng.random((self.size, dim), np.float32))


def compare_callers(batches, runs):
    """Compares eight threads that divide the batches with one thread."""
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


def compare_steps(exponent, dim, options, variants):
    """Compares our step with each peer of `(optimizer, loss, peer, wanted)`."""
    batches = Batches(exponent, options, dim)
    law = f"zipf({exponent})" if exponent else "uniform"
    for optimizer, loss, (against, peer), wanted in variants:
        of_peer = peer(batches.matrix, optimizer, loss)
        ours = our_step(batches.matrix, batches.keys, optimizer, loss)
        measure.compare(
            f"training step, {batches.size} {law} ids, "
            f"{len(batches.keys)} x {dim}, {optimizer}"
            + (", with a loss" if loss else ""),
            functools.partial(ours, upstream=batches.upstream),
            functools.partial(of_peer, upstream=batches.upstream),
            batches.feeds,
            against=against,
            items=batches.size,
            wanted=wanted,
            runs=options.runs,
            baseline_feeds=batches.place_feeds,
        )


def main():
    """Prints one JSON line per comparison."""
    options = measure.arguments(__doc__)
    stock = "TensorFlow's ops", stock_step
    of_keras = "keras Embedding + optimizer", keras_step
    compare_steps(
        1.05,
        DIM,
        options,
        [
            ("Adagrad", True, stock, 3.5),
            ("Adagrad", False, stock, 4),
            ("Adagrad", False, of_keras, 17),
            ("Adam", False, stock, 4),
        ],
    )
    for exponent, dim in itertools.product((1.05, 0), (8, DIM, 128)):
        if (exponent, dim) != (1.05, DIM):
            compare_steps(
                exponent,
                dim,
                options,
                [(o, False, stock, 4) for o in ("Adagrad", "Adam")],
            )
    compare_callers(Batches(1.2, options), options.runs)


if __name__ == "__main__":
    main()
