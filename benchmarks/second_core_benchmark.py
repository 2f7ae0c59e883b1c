"""Compares two threads with one, each in a separate process."""

import functools
import os
import statistics
import subprocess
import sys

import numpy as np
import tensorflow as tf

import lodestar
from benchmarks import (
    embedding_benchmark,
    id_table_benchmark,
    measure,
    sequence_benchmark,
    training_benchmark,
)

_PART = "LODESTAR_BENCHMARK_PART"
# tf.gather and x + 1 show the machine's limit: one core may use most of the
# memory bandwidth.
_WANTED = "1.6, or as tf.gather; for sequences 1.5, or as x + 1"


def find_or_hash(kind, options):
    """Looks up ids of keys, 10 % of them misses."""
    side = id_table_benchmark.Comparisons(kind, options)
    lookup = tf.function(side.with_buckets.lookup, input_signature=side.spec)
    return lookup, side.feeds(0.1), side.size


def embedding(work, options):
    """Does a lookup, a pooled one, or tf.gather, of 1M x 32."""
    size = embedding_benchmark.BATCH
    keys = embedding_benchmark.spread_keys(10**4 if options.small else 10**6)
    variable, matrix = embedding_benchmark.filled(keys, 32)
    dense = tf.Variable(matrix)
    rng = np.random.default_rng(3)
    places = [
        rng.integers(0, len(keys), size)
        for _ in range(embedding_benchmark.BATCHES)
    ]
    splits = np.arange(0, size + 1, embedding_benchmark.IDS_IN_A_BAG)

    def pooled(ids):
        bags = tf.RaggedTensor.from_row_splits(ids, splits, validate=False)
        return variable.lookup(bags, combiner="mean")

    function = {
        "lookup": variable.lookup,
        "pooled lookup": pooled,
        "tf.gather": lambda ids: tf.gather(dense, ids),
    }[work]
    if work != "tf.gather":
        places = [keys[place] for place in places]
    spec = [tf.TensorSpec([size], tf.int64)]
    feeds = [tf.constant(place) for place in places]
    return tf.function(function, input_signature=spec), feeds, size


def training_step(options):
    """Does lookup, gradient and Adagrad of zipf(1.05) ids."""
    batches = training_benchmark.Batches(1.05, options)
    step = training_benchmark.our_step(batches.matrix, batches.keys)
    return (
        lambda ids: step(ids, batches.upstream),
        batches.feeds,
        batches.size,
    )


def sequences(work, options):
    """Runs an op on 65,536 rows of 32 in sequences."""
    # With the hot sequence, the padded batch would have 17 GB.
    batches, size = sequence_benchmark.feeds(
        options, **({"hot": 0} if work == "pad" else {})
    )
    function = {
        "x + 1": lambda x, ids: x.flat_values + 1.0,
        "pool": lambda x, ids: lodestar.sequence.pool(x, "sum"),
        "max pool": lambda x, ids: lodestar.sequence.pool(x, "max"),
        "softmax": lambda x, ids: lodestar.sequence.softmax(x).flat_values,
        "reverse": lambda x, ids: lodestar.sequence.reverse(x).flat_values,
        "pad": lambda x, ids: lodestar.sequence.pad(x, 0.0)[0],
        "expand": lambda x, ids: (
            lodestar.sequence.expand_as(
                x.flat_values[: x.nrows()], x
            ).flat_values
        ),
    }[work]
    return sequence_benchmark.compiled(function, batches), batches, size


WORKS = {
    "tf.gather": lambda options: embedding("tf.gather", options),
    "lookup": lambda options: embedding("lookup", options),
    "pooled lookup": lambda options: embedding("pooled lookup", options),
    "training step": training_step,
    **{
        f"sequence {work}": functools.partial(sequences, work)
        for work in (
            "x + 1",
            "pool",
            "max pool",
            "softmax",
            "reverse",
            "pad",
            "expand",
        )
    },
    "find or hash, int64": lambda options: find_or_hash("int64", options),
    "find or hash, string": lambda options: find_or_hash("string", options),
}


def nanoseconds_per_item(work, options):
    """Returns the median of `work` in this process."""
    function, feeds, items = WORKS[work](options)
    runs = [
        statistics.mean(measure.call_seconds(function, feeds))
        for _ in range(options.runs + 1)
    ]
    return statistics.median(runs[1:]) / items * 1e9


def in_process(work, threads, options):
    """Returns `nanoseconds_per_item` in a process of so many intra-op threads."""
    command = [sys.executable, "-m", "benchmarks.second_core_benchmark"]
    command += ["--runs", str(options.runs)] + ["--small"] * options.small
    environment = {
        **os.environ,
        _PART: f"{threads} {work}",
        "PYTHONPATH": os.pathsep.join(sys.path),
    }
    output = subprocess.run(
        command, env=environment, check=True, capture_output=True
    )
    return float(output.stdout.split()[-1])


def main():
    """Prints one JSON line per comparison."""
    options = measure.arguments(__doc__)
    part = os.environ.get(_PART)
    if part:
        threads, work = part.split(" ", 1)
        tf.config.threading.set_intra_op_parallelism_threads(int(threads))
        print(nanoseconds_per_item(work, options))
        return
    for work in WORKS:
        one, two = (in_process(work, n, options) for n in (1, 2))
        measure.print_line(
            work=f"{work}, 2 threads",
            baseline="1 thread, another process",
            ratio=round(one / two, 2),
            wanted=_WANTED,
            ns_per_item=round(two, 1),
            baseline_ns_per_item=round(one, 1),
            runs=options.runs,
        )


if __name__ == "__main__":
    main()
