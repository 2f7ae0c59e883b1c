"""Compares a training step and a lookup with other libraries.

65,536 zipf(1.05) ids of 1M rows of dimension 32; a training step is lookup,
gradient and Adagrad. The others are TensorFlow's ops and tables and Keras's
Embedding. Two options name interpreters with further libraries, which run in
separate processes and take turns with the others:

--tfra-python: TensorFlow Recommenders Addons (`pip install
tensorflow-recommenders-addons==0.8.1 tensorflow-cpu==2.16.2 tf-keras==2.16.0`)
--torch-python: PyTorch's sparse Embedding and FBGEMM's CPU tables (`pip install
torch==2.13.0+cpu numpy`, then `pip install --no-deps fbgemm-gpu-cpu==1.8.0`)
"""

import functools
import gc
import statistics
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from benchmarks import embedding_benchmark, measure, report, training_benchmark
from benchmarks.peers import steps as peer_steps

_IDS = [tf.TensorSpec([None], tf.int64)]
_OURS = "Lodestar"
# A function of a batch, and the batches.
_Side = tuple[Callable[..., Any], Sequence[Any]]
# Minimum ratio of their time to ours; of other libraries, by the first word.
_WANTED: dict[str, dict[str, float]] = {
    "lookup": {
        "tf.gather": 1.1,
        "keras Embedding": 1.1,
        "DenseHashTable": 1.8,
        "MutableHashTable": 12,
        "TFRA": 3.3,
        "FBGEMM": 0.8,
        "PyTorch": 0.2,
    },
    "step": {
        "TensorFlow's ops": 3.5,
        "keras Embedding": 17,
        "TFRA": 6,
        "FBGEMM": 4,
        "PyTorch": 5,
    },
}


def hash_table(
    kind: str, batches: training_benchmark.Batches
) -> Callable[[tf.Tensor], tf.Tensor]:
    """Returns one of TensorFlow's own tables, with the rows."""
    default = tf.zeros([batches.matrix.shape[1]])
    tables = tf.lookup.experimental
    if kind == "DenseHashTable":
        table = tables.DenseHashTable(
            *(tf.int64, tf.float32, default),
            empty_key=1,
            deleted_key=2,
            initial_num_buckets=2 * 2 ** (len(batches.keys) - 1).bit_length(),
        )
    else:
        table = tables.MutableHashTable(tf.int64, tf.float32, default)
    table.insert(batches.keys, batches.matrix)
    return table.lookup


def keras_embedding(
    batches: training_benchmark.Batches,
) -> keras.layers.Layer:
    """Returns Keras's layer with the rows."""
    layer = keras.layers.Embedding(*batches.matrix.shape)
    layer.build(())
    layer.embeddings.assign(batches.matrix)
    return layer


def lookups(batches: training_benchmark.Batches) -> dict[str, _Side]:
    """Returns each side's lookup and its batches."""
    keys, matrix = batches.keys, batches.matrix
    of_ids = {
        _OURS: embedding_benchmark.filled_with(keys, matrix).lookup,
        "DenseHashTable": hash_table("DenseHashTable", batches),
        "MutableHashTable": hash_table("MutableHashTable", batches),
    }
    of_places = {
        "tf.gather": functools.partial(tf.gather, tf.Variable(matrix)),
        "keras Embedding": keras_embedding(batches),
    }
    return {
        name: (tf.function(lookup, input_signature=_IDS), feeds)
        for looked_up, feeds in (
            (of_ids, batches.feeds),
            (of_places, batches.place_feeds),
        )
        for name, lookup in looked_up.items()
    }


def steps(batches: training_benchmark.Batches) -> dict[str, _Side]:
    """Returns each side's training step and its batches."""
    made = {
        _OURS: (
            training_benchmark.our_step(batches.matrix, batches.keys),
            batches.feeds,
        ),
        "TensorFlow's ops": (
            training_benchmark.stock_step(batches.matrix),
            batches.place_feeds,
        ),
        "keras Embedding": (
            training_benchmark.keras_step(batches.matrix),
            batches.place_feeds,
        ),
    }
    return {
        name: (functools.partial(step, upstream=batches.upstream), feeds)
        for name, (step, feeds) in made.items()
    }


def compare(
    work: str,
    title: str,
    sides: Mapping[str, _Side],
    peers: Sequence[peer_steps.Peer],
    runs: int,
) -> None:
    """Prints a line for each side except ours; all take turns in each run."""
    sums = {
        name: measure.checksum(np.asarray(call(feeds[0])))
        for name, (call, feeds) in sides.items()
    }
    calls: dict[str, Callable[[], list[float]]] = {
        name: functools.partial(measure.call_seconds, *side)
        for name, side in sides.items()
    }
    for peer in peers:
        for name, checksums in peer.checksums.items():
            sums[name] = checksums[work]
            calls[name] = functools.partial(peer.call_seconds, name, work)
    for name, found in sums.items():
        if found != sums[_OURS]:
            raise AssertionError(f"{title}: the result differs from {name}.")
    times: dict[str, list[float]] = {name: [] for name in calls}
    for run in range(runs + 1):
        for name, call in calls.items():
            seconds = statistics.mean(call())
            if run:
                times[name].append(seconds)
    wanted = _WANTED[work]
    medians = {name: statistics.median(found) for name, found in times.items()}
    for name, median in medians.items():
        if name == _OURS:
            continue
        measure.print_line(
            work=title,
            baseline=name,
            ratio=round(median / medians[_OURS], 2),
            wanted=wanted.get(name) or wanted[name.split()[0]],
            ms=round(medians[_OURS] * 1e3, 3),
            baseline_ms=round(median * 1e3, 3),
            runs=runs,
            checksum=sums[_OURS],
        )


def main() -> None:
    """Prints one JSON line per comparison."""
    options = measure.arguments(
        __doc__,
        **{
            option: f"an interpreter that has {library}"
            for option, library in report.PEERS.items()
        },
    )
    batches = training_benchmark.Batches(1.05, options)
    peers = []
    for library in ("tfra", "torch"):
        python = getattr(options, f"{library}_python")
        if not python:
            print(f"Skipped without --{library}-python.", file=sys.stderr)
            continue
        peers.append(
            peer_steps.Peer(
                python,
                f"step_{library}",
                keys=batches.keys,
                matrix=batches.matrix,
                ids=np.stack([feed.numpy() for feed in batches.feeds]),
                places=np.stack([feed.numpy() for feed in batches.place_feeds]),
                upstream=batches.upstream.numpy(),
            )
        )
    count, dim = batches.matrix.shape
    of = f"{batches.size:,} zipf(1.05) ids of {count:,} x {dim}"
    sides = lookups(batches)
    compare("lookup", f"lookup, {of}", sides, peers, options.runs)
    sides.clear()
    gc.collect()
    compare(
        "step",
        f"training step, {of}, Adagrad",
        steps(batches),
        peers,
        options.runs,
    )
    for peer in peers:
        peer.end()


if __name__ == "__main__":
    main()
