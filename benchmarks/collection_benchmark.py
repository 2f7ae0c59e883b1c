"""Compares 26 features in one collection with one lookup of as many ids."""

import numpy as np
import tensorflow as tf

import lodestar
from benchmarks import measure
from lodestar.ops import id_hash

BATCHES = 16
FEATURES = 26
DIM = 16
IDS_IN_A_BAG = 4
WANTED = 1 / 1.3


NAMES = [f"feature_{i}" for i in range(FEATURES)]


def batch(rng, known, bags):
    """Returns ids of all features `[F, N]`, and as the table stores them."""
    ids = rng.integers(0, known, (FEATURES, bags * IDS_IN_A_BAG))
    salted = [
        id_hash.salted(tf.constant(row), name)
        for row, name in zip(ids, NAMES, strict=True)
    ]
    return tf.constant(ids), tf.concat(salted, 0)


def compare_tables(num_tables, known, bags, options):
    """Compares lookups and steps of the features over `num_tables` tables."""
    rng = np.random.default_rng(5)
    tables = [
        lodestar.EmbeddingVariable(DIM, name=f"of_{num_tables}_{i}")
        for i in range(num_tables)
    ]
    one_table = lodestar.EmbeddingVariable(
        DIM, seed=tables[0].get_config()["seed"]
    )
    collection = lodestar.layers.EmbeddingCollection(
        {
            name: lodestar.Feature(
                tables[i % num_tables], combiner="mean", salt=name
            )
            for i, name in enumerate(NAMES)
        }
    )
    feeds = [batch(rng, known, bags) for _ in range(BATCHES)]
    ours = [ids for ids, _ in feeds]
    theirs = [salted for _, salted in feeds]
    splits = np.arange(bags + 1) * IDS_IN_A_BAG
    all_splits = np.arange(FEATURES * bags + 1) * IDS_IN_A_BAG
    gradient = tf.constant(rng.random((bags, DIM), np.float32))
    hooks = [table.value for table in tables]

    # Both sides take one tensor. Passing 26 from Python costs more than the
    # lookups, and a model gets them inside its graph.
    def features(ids):
        return {
            name: tf.RaggedTensor.from_row_splits(row, splits, validate=False)
            for name, row in zip(NAMES, tf.unstack(ids), strict=True)
        }

    def one_feature(ids):
        return tf.RaggedTensor.from_row_splits(ids, all_splits, validate=False)

    def lookup(ids):
        return list(collection(features(ids), training=False).values())

    def lookup_one(ids):
        return one_table.lookup(one_feature(ids), combiner="mean")

    def step(ids):
        with tf.GradientTape() as tape:
            rows = list(collection(features(ids), training=True).values())
        slices = tape.gradient(rows, hooks, [gradient] * FEATURES)
        return slices[0].values  # the sums of all tables are one op

    def step_one(ids):
        hook = one_table.value
        with tf.GradientTape() as tape:
            rows = one_table.lookup(
                one_feature(ids), training=True, combiner="mean"
            )
        upstream = tf.tile(gradient, [FEATURES, 1])
        return tape.gradient(rows, hook, upstream).values

    for work, ours_side, one_side in (
        ("lookup and gradient in training", step, step_one),
        ("lookup", lookup, lookup_one),
    ):
        measure.compare(
            f"{work}, {FEATURES} features over {num_tables} tables",
            tf.function(ours_side),
            tf.function(one_side),
            ours,
            baseline_feeds=theirs,
            against="one lookup of as many ids in one table",
            items=FEATURES * bags * IDS_IN_A_BAG,
            wanted=WANTED,
            runs=options.runs,
            same_result=num_tables == 1,
        )


def main():
    """Prints one JSON line per comparison."""
    options = measure.arguments(__doc__)
    known, bags = (1000, 16) if options.small else (40_000, 632)
    for num_tables in (1, 4, FEATURES):
        compare_tables(num_tables, known, bags, options)


if __name__ == "__main__":
    main()
