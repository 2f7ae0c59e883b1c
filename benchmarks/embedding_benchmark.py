"""Embedding variable look-ups beside TensorFlow's, 65,536 resident ids a batch."""

import gc

import numpy as np
import tensorflow as tf

import lodestar
from benchmarks import measure

BATCHES = 16
BATCH = 65_536


def filled(keys, dim):
    """An embedding variable and the matrix it was filled from."""
    rng = np.random.default_rng(2)
    matrix = rng.random((len(keys), dim), np.float32)
    variable = lodestar.EmbeddingVariable(dim)
    for begin in range(0, len(keys), 2**20):
        part = slice(begin, begin + 2**20)
        variable.insert_or_assign(keys[part], matrix[part])
    return variable, matrix


def main():
    """Prints one JSON line a comparison."""
    options = measure.arguments(__doc__)
    sizes = ((10**6, 32, 0.8), (5 * 10**6, 32, 0.5), (20 * 10**6, 8, 0.35))
    if options.small:
        sizes = ((10**4, 32, 0.8),)
    spec = [tf.TensorSpec([None], tf.int64)]
    for rows, dim, wanted in sizes:
        rng = np.random.default_rng(3)
        # Odd multiples are distinct modulo 2^64 and spread over all of it.
        keys = (np.arange(rows, dtype=np.uint64) * 0x9E3779B97F4A7C15).view(
            np.int64
        )
        variable, matrix = filled(keys, dim)
        dense = tf.Variable(matrix)
        places = [rng.integers(0, rows, BATCH) for _ in range(BATCHES)]
        feeds = [tf.constant(keys[place]) for place in places]
        place_feeds = [tf.constant(place) for place in places]
        look_up = tf.function(
            lambda ids, variable=variable: variable.lookup(ids),
            input_signature=spec,
        )
        measure.compare(
            f"look-up, {BATCH} of {rows} x {dim}",
            look_up,
            tf.function(
                lambda places, dense=dense: tf.gather(dense, places),
                input_signature=spec,
            ),
            feeds,
            against="tf.gather of a dense Variable",
            items=BATCH,
            wanted=wanted,
            runs=options.runs,
            baseline_feeds=place_feeds,
        )
        if rows <= 10**6:
            peers = {
                "tf.lookup.experimental.DenseHashTable": (
                    tf.lookup.experimental.DenseHashTable(
                        tf.int64,
                        tf.float32,
                        tf.zeros([dim]),
                        empty_key=1,
                        deleted_key=2,
                        initial_num_buckets=2**21,
                    ),
                    3,
                ),
                "tf.lookup.experimental.MutableHashTable": (
                    tf.lookup.experimental.MutableHashTable(
                        tf.int64, tf.float32, tf.zeros([dim])
                    ),
                    30,
                ),
            }
            for name, (peer, ratio) in peers.items():
                peer.insert(keys, matrix)
                measure.compare(
                    f"look-up, {BATCH} of {rows} x {dim}",
                    look_up,
                    tf.function(
                        lambda ids, peer=peer: peer.lookup(ids),
                        input_signature=spec,
                    ),
                    feeds,
                    against=name,
                    items=BATCH,
                    wanted=ratio,
                    runs=options.runs,
                )
            del peers, peer
        del variable, matrix, dense, look_up
        gc.collect()


if __name__ == "__main__":
    main()
