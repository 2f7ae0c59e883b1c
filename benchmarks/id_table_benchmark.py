"""Id tables beside TensorFlow's: 262,144 keys a batch, 16 batches in turn."""

import numpy as np
import tensorflow as tf

import lodestar
from benchmarks import measure

BATCHES = 16
BUCKETS = 1000


def batches(rng, vocabulary, size, misses, as_strings):
    """Key batches of which a share is not in the vocabulary."""
    result = []
    for _ in range(BATCHES):
        keys = rng.choice(vocabulary, size)
        strange = rng.random(size) < misses
        keys[strange] = rng.integers(-(2**62), 0, strange.sum())
        keys = tf.constant(keys)
        result.append(tf.strings.as_string(keys) if as_strings else keys)
    return result


def main():
    """Prints one JSON line a comparison."""
    options = measure.arguments(__doc__)
    size = 4096 if options.small else 262_144
    count = 10_000 if options.small else 1_000_000
    rng = np.random.default_rng(1)
    vocabulary = np.unique(rng.integers(0, 2**62, count))
    rng.shuffle(vocabulary)
    ids = tf.range(len(vocabulary), dtype=tf.int64)
    for as_strings, wanted in ((False, (5, 4, 2.5)), (True, (2, 1.5, 1.5))):
        keys = tf.constant(vocabulary)
        keys = tf.strings.as_string(keys) if as_strings else keys
        kind = "string" if as_strings else "int64"
        table = lodestar.lookup.IdTable(keys)
        ours = lodestar.lookup.IdTableWithHashBuckets(table, BUCKETS)
        stock = tf.lookup.StaticVocabularyTable(
            tf.lookup.KeyValueTensorInitializer(keys, ids),
            BUCKETS,
            lookup_key_dtype=keys.dtype,
        )
        spec = [tf.TensorSpec([None], keys.dtype)]
        for share, ratio in zip((0.0, 0.1, 1.0), wanted, strict=True):
            measure.compare(
                f"find or hash, {kind}, {len(vocabulary)} keys, "
                f"{share:.0%} misses",
                tf.function(ours.lookup, input_signature=spec),
                tf.function(stock.lookup, input_signature=spec),
                batches(rng, vocabulary, size, share, as_strings),
                against="tf.lookup.StaticVocabularyTable",
                items=size,
                wanted=ratio,
                runs=options.runs,
            )
        if not as_strings:
            static = tf.lookup.StaticHashTable(
                tf.lookup.KeyValueTensorInitializer(keys, ids), -1
            )
            measure.compare(
                f"find, {kind}, {len(vocabulary)} keys",
                tf.function(table.lookup, input_signature=spec),
                tf.function(static.lookup, input_signature=spec),
                batches(rng, vocabulary, size, 0.0, as_strings),
                against="tf.lookup.StaticHashTable",
                items=size,
                wanted=1.2,
                runs=options.runs,
            )


if __name__ == "__main__":
    main()
