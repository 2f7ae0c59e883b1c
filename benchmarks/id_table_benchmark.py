"""Compares id tables with TensorFlow's and Keras's: 262,144 keys of 1M."""

import keras
import numpy as np
import tensorflow as tf

import lodestar
from benchmarks import measure

BATCHES = 16
BUCKETS = 1000
MISSES = (0.0, 0.1, 1.0)
# Required ratios at these shares of misses.
WANTED = {"int64": (5, 4, 2.5), "string": (2, 1.5, 1.5)}


def distinct_keys(rng, count):
    """Returns `count` random int64 keys of up to 19 digits."""
    keys = np.unique(rng.integers(0, 2**62, count))
    rng.shuffle(keys)
    return keys


def batches(rng, vocabulary, size, misses, kind):
    """Returns batches in which a given share of the keys is not in the vocabulary."""
    result = []
    for _ in range(BATCHES):
        keys = rng.choice(vocabulary, size)
        strange = rng.random(size) < misses
        keys[strange] = rng.integers(-(2**62), 0, strange.sum())
        result.append(as_kind(keys, kind))
    return result


def as_kind(keys, kind):
    """Returns integers as tensors of `kind`."""
    keys = tf.constant(keys)
    return tf.strings.as_string(keys) if kind == "string" else keys


def only_misses_hashed(static):
    """Composes the lookup with buckets from TensorFlow's ops."""

    def lookup(keys):
        ids = static.lookup(keys)
        places = tf.where(tf.equal(ids, -1))
        missing = tf.gather_nd(keys, places)
        if missing.dtype != tf.string:
            missing = tf.strings.as_string(missing)
        buckets = tf.strings.to_hash_bucket_fast(missing, BUCKETS)
        return tf.tensor_scatter_nd_update(ids, places, buckets + static.size())

    return lookup


class Comparisons:
    """All comparisons for one kind of keys."""

    def __init__(self, kind, options):
        self.kind = kind
        self.runs = options.runs
        self.size = 4096 if options.small else 262_144
        self.rng = np.random.default_rng(1)
        self.vocabulary = distinct_keys(
            self.rng, 10_000 if options.small else 1_000_000
        )
        self.keys = as_kind(self.vocabulary, kind)
        self.ids = tf.range(len(self.vocabulary), dtype=tf.int64)
        self.spec = [tf.TensorSpec([None], self.keys.dtype)]
        self.table = lodestar.lookup.IdTable(self.keys)
        self.with_buckets = lodestar.lookup.IdTableWithHashBuckets(
            self.table, BUCKETS
        )
        initializer = tf.lookup.KeyValueTensorInitializer(self.keys, self.ids)
        self.static = tf.lookup.StaticHashTable(initializer, -1)
        self.vocabulary_table = tf.lookup.StaticVocabularyTable(
            initializer, BUCKETS, lookup_key_dtype=self.keys.dtype
        )

    def feeds(self, misses, size=None):
        """Returns batches for a comparison."""
        return batches(
            self.rng, self.vocabulary, size or self.size, misses, self.kind
        )

    def compare(self, work, ours, baseline, feeds, against, wanted):
        """Prints one line; both sides are functions of one signature."""
        measure.compare(
            f"{work}, {self.kind}, {len(self.vocabulary)} keys",
            tf.function(ours, input_signature=self.spec),
            tf.function(baseline, input_signature=self.spec),
            feeds,
            against=against,
            items=int(tf.size(feeds[0])),
            wanted=wanted,
            runs=self.runs,
        )

    def buckets(self):
        """Compares find or hash at all shares of misses."""
        for share, wanted in zip(MISSES, WANTED[self.kind], strict=True):
            feeds = self.feeds(share)
            work = f"find or hash, {share:.0%} misses"
            self.compare(
                work,
                self.with_buckets.lookup,
                self.vocabulary_table.lookup,
                feeds,
                "tf.lookup.StaticVocabularyTable",
                wanted,
            )
            if share == 0.1:
                self.compare(
                    work,
                    self.with_buckets.lookup,
                    only_misses_hashed(self.static),
                    feeds,
                    "find, gather, hash, scatter",
                    1.5,
                )

    def plain_find(self):
        """Compares find without buckets."""
        self.compare(
            "find",
            self.table.lookup,
            self.static.lookup,
            self.feeds(0.0),
            "tf.lookup.StaticHashTable",
            1.2,
        )

    def one_key(self):
        """Compares batches of one key, with many calls per run."""
        feeds = self.feeds(0.0, 1) * 200
        self.compare(
            "find, a batch of 1",
            self.table.lookup,
            self.static.lookup,
            feeds,
            "tf.lookup.StaticHashTable",
            1,
        )
        self.compare(
            "find or hash, a batch of 1",
            self.with_buckets.lookup,
            self.vocabulary_table.lookup,
            feeds,
            "tf.lookup.StaticVocabularyTable",
            1,
        )

    def layer(self):
        """Compares IdLookup with Keras's layer for these keys."""
        stock = (
            keras.layers.StringLookup
            if self.kind == "string"
            else keras.layers.IntegerLookup
        )
        vocabulary = self.keys.numpy()
        for share in (0.0, 0.1):
            self.compare(
                f"layer, {share:.0%} misses",
                lodestar.layers.IdLookup(vocabulary),
                stock(vocabulary=vocabulary),
                self.feeds(share),
                stock.__name__,
                2,
            )


def imports(options):
    """Compares creating tables from 5M int64 keys."""
    count = 50_000 if options.small else 5_000_000
    keys = tf.constant(distinct_keys(np.random.default_rng(2), count))
    ids = tf.range(len(keys), dtype=tf.int64)
    measure.compare(
        f"import of {len(keys)} int64 keys",
        lambda keys: lodestar.lookup.IdTable(keys, ids).size(),
        lambda keys: tf.lookup.StaticHashTable(
            tf.lookup.KeyValueTensorInitializer(keys, ids),
            -1,
            experimental_is_anonymous=True,
        ).size(),
        [keys],
        against="tf.lookup.StaticHashTable",
        items=len(keys),
        wanted=2,
        runs=options.runs,
    )


def main():
    """Prints one JSON line per comparison."""
    options = measure.arguments(__doc__)
    for kind in WANTED:
        comparisons = Comparisons(kind, options)
        comparisons.buckets()
        comparisons.plain_find()
        comparisons.one_key()
        comparisons.layer()
    imports(options)


if __name__ == "__main__":
    main()
