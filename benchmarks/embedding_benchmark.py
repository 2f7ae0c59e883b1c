"""Compares lookups of embedding variables with TensorFlow's."""

import gc

import numpy as np
import tensorflow as tf

import lodestar
from benchmarks import measure

BATCHES = 16
BATCH = 65_536
IDS_IN_A_BAG = 4


def spread_keys(count):
    """Returns `count` different ids from the whole int64 range."""
    # Odd multiples are different modulo 2^64.
    return (np.arange(count, dtype=np.uint64) * 0x9E3779B97F4A7C15).view(
        np.int64
    )


def filled(keys, dim):
    """Returns an embedding variable and the matrix it was filled from."""
    rng = np.random.default_rng(2)
    matrix = rng.random((len(keys), dim), np.float32)
    return filled_with(keys, matrix), matrix


def filled_with(keys, matrix):
    """Returns an embedding variable with the rows of a matrix."""
    variable = lodestar.EmbeddingVariable(matrix.shape[1])
    for begin in range(0, len(keys), 2**20):
        part = slice(begin, begin + 2**20)
        variable.insert_or_assign(keys[part], matrix[part])
    return variable


def compare_bags(variable, dense, feeds, place_feeds, runs):
    """Compares pooled lookups of four ids per bag with two ways of TensorFlow."""
    count = BATCH // IDS_IN_A_BAG
    splits = np.arange(count + 1) * IDS_IN_A_BAG
    bag_of = tf.constant(np.repeat(np.arange(count), IDS_IN_A_BAG))

    def ragged(ids):
        return tf.RaggedTensor.from_row_splits(ids, splits, validate=False)

    def sparse(places):
        indices = tf.stack([bag_of, tf.range(BATCH, dtype=tf.int64) % 4], 1)
        return tf.SparseTensor(indices, places, [count, IDS_IN_A_BAG])

    peers = {
        "tf.nn.embedding_lookup_sparse": (
            lambda places: tf.nn.embedding_lookup_sparse(
                dense, sparse(places), None, combiner="mean"
            ),
            3,
        ),
        "tf.gather + tf.math.segment_mean": (
            lambda places: tf.math.segment_mean(
                tf.gather(dense, places), bag_of
            ),
            2,
        ),
    }
    spec = [tf.TensorSpec([BATCH], tf.int64)]
    for against, (peer, wanted) in peers.items():
        measure.compare(
            f"pooled lookup, mean, {BATCH} ids, {IDS_IN_A_BAG} per bag, of "
            f"{dense.shape[0]} x {variable.output_dim}",
            tf.function(
                lambda ids: variable.lookup(ragged(ids), combiner="mean"),
                input_signature=spec,
            ),
            tf.function(peer, input_signature=spec),
            feeds,
            against=against,
            items=BATCH,
            wanted=wanted,
            runs=runs,
            baseline_feeds=place_feeds,
        )


def compare_inserts(options):
    """Compares adding rows of new ids to an empty table."""
    count, dim = (2 * BATCH, 8) if options.small else (5_000_000, 32)
    keys = tf.constant(spread_keys(count))
    parts = [keys[begin : begin + BATCH] for begin in range(0, count, BATCH)]
    rows = tf.zeros([BATCH, dim])

    def ours(_):
        variable = lodestar.EmbeddingVariable(dim)
        for part in parts:
            variable.lookup(part, training=True)
        return variable.size()

    def theirs(_):
        table = tf.lookup.experimental.MutableHashTable(
            tf.int64, tf.float32, tf.zeros([dim])
        )
        for part in parts:
            table.insert(part, rows[: len(part)])
        return table.size()

    measure.compare(
        f"{count} new ids, {BATCH} per call, dim {dim}",
        ours,
        theirs,
        [0],
        against="tf.lookup.experimental.MutableHashTable.insert",
        items=count,
        wanted="10 x TFRA",
        runs=options.runs,
    )


def main():
    """Prints one JSON line per comparison."""
    options = measure.arguments(__doc__)
    compare_inserts(options)
    sizes = (
        (10**6, 32, 1.1),
        (10**6, 8, 1.1),
        (10**6, 64, 0.95),
        (10**6, 128, 0.95),
        (5 * 10**6, 32, 0.95),
        (20 * 10**6, 8, 0.95),
    )
    if options.small:
        sizes = ((10**4, 32, 1.1),)
    spec = [tf.TensorSpec([None], tf.int64)]
    for rows, dim, wanted in sizes:
        rng = np.random.default_rng(3)
        keys = spread_keys(rows)
        variable, matrix = filled(keys, dim)
        dense = tf.Variable(matrix)
        places = [rng.integers(0, rows, BATCH) for _ in range(BATCHES)]
        feeds = [tf.constant(keys[place]) for place in places]
        place_feeds = [tf.constant(place) for place in places]
        lookup = tf.function(
            lambda ids, variable=variable: variable.lookup(ids),
            input_signature=spec,
        )
        gather = tf.function(
            lambda places, dense=dense: tf.gather(dense, places),
            input_signature=spec,
        )
        measure.compare(
            f"lookup, {BATCH} of {rows} x {dim}",
            lookup,
            gather,
            feeds,
            against="tf.gather of a dense Variable",
            items=BATCH,
            wanted=wanted,
            runs=options.runs,
            baseline_feeds=place_feeds,
        )
        if rows <= 10**6 and dim == 32:
            measure.compare(
                f"lookup, 1 of {rows} x {dim}",
                lookup,
                gather,
                [feed[:1] for feed in feeds] * 16,
                against="tf.gather of a dense Variable",
                items=1,
                wanted="at most 5000 ns more",
                runs=options.runs,
                baseline_feeds=[feed[:1] for feed in place_feeds] * 16,
            )
            compare_bags(variable, dense, feeds, place_feeds, options.runs)
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
                    1.8,
                ),
                "tf.lookup.experimental.MutableHashTable": (
                    tf.lookup.experimental.MutableHashTable(
                        tf.int64, tf.float32, tf.zeros([dim])
                    ),
                    12,
                ),
            }
            for name, (peer, ratio) in peers.items():
                peer.insert(keys, matrix)
                measure.compare(
                    f"lookup, {BATCH} of {rows} x {dim}",
                    lookup,
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
        del variable, matrix, dense, lookup, gather
        gc.collect()


if __name__ == "__main__":
    main()
