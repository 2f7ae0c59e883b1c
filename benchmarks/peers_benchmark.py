"""Compares a training step and a lookup with other libraries.

65,536 zipf(1.05) ids of 1M rows of dimension 32; a training step is lookup,
gradient and Adagrad. The others are TensorFlow's ops and tables, Keras's
Embedding and, if --tfra-python names an interpreter that has it, TensorFlow
Recommenders Addons (`pip install tensorflow-recommenders-addons==0.8.1
tensorflow-cpu==2.16.2 tf-keras==2.16.0`). It runs in a separate process, and
takes turns with the others.
"""

import functools
import gc
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from benchmarks import embedding_benchmark, measure, training_benchmark

_IDS = [tf.TensorSpec([None], tf.int64)]
_OURS = "Lodestar"
_TFRA = "TFRA"
# A function of a batch, and the batches.
_Side = tuple[Callable[..., Any], Sequence[Any]]
# Minimum ratio of their time to ours.
_WANTED: dict[str, dict[str, float]] = {
    "lookup": {
        "tf.gather": 0.7,
        "keras Embedding": 0.7,
        "DenseHashTable": 1.8,
        "MutableHashTable": 12,
        _TFRA: 3,
    },
    "step": {"TensorFlow's ops": 4, "keras Embedding": 10, _TFRA: 5},
}


class Tfra:
    """The process of benchmarks/peer_tfra.py."""

    def __init__(self, python: str, batches: training_benchmark.Batches):
        self._python = python
        with tempfile.TemporaryDirectory() as folder:
            data = Path(folder, "data.npz")
            np.savez(
                data,
                keys=batches.keys,
                matrix=batches.matrix,
                ids=np.stack([feed.numpy() for feed in batches.feeds]),
                upstream=batches.upstream.numpy(),
            )
            root = str(Path(__file__).absolute().parents[1])
            self._process = subprocess.Popen(
                [python, "-m", "benchmarks.peer_tfra", str(data)],
                env={**os.environ, "PYTHONPATH": root},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
            self.about = self._answer()

    def _answer(self) -> Any:
        assert self._process.stdout  # a pipe
        for line in self._process.stdout:
            if line[0] in "{[":  # not the output of an import
                return json.loads(line)
        raise RuntimeError(
            f"{self._python} -m benchmarks.peer_tfra ended with status "
            f"{self._process.wait()}."
        )

    def call_seconds(self, work: str) -> list[float]:
        """Returns the duration of each call of a work there, one per batch."""
        assert self._process.stdin  # a pipe
        self._process.stdin.write(work + "\n")
        self._process.stdin.flush()
        return self._answer()

    def end(self) -> None:
        """Ends the process."""
        self._process.communicate()


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
    tfra: Tfra | None,
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
    if tfra:
        sums[_TFRA] = tfra.about["checksums"][work]
        calls[_TFRA] = functools.partial(tfra.call_seconds, work)
    for name, found in sums.items():
        if found != sums[_OURS]:
            raise AssertionError(f"{title}: the result differs from {name}.")
    times: dict[str, list[float]] = {name: [] for name in calls}
    for run in range(runs + 1):
        for name, call in calls.items():
            seconds = statistics.mean(call())
            if run:
                times[name].append(seconds)
    medians = {name: statistics.median(found) for name, found in times.items()}
    for name, median in medians.items():
        if name == _OURS:
            continue
        measure.print_line(
            work=title,
            baseline=tfra.about["name"] if tfra and name == _TFRA else name,
            ratio=round(median / medians[_OURS], 2),
            wanted=_WANTED[work][name],
            ms=round(medians[_OURS] * 1e3, 3),
            baseline_ms=round(median * 1e3, 3),
            runs=runs,
            checksum=sums[_OURS],
        )


def main() -> None:
    """Prints one JSON line per comparison."""
    options = measure.arguments(
        __doc__,
        **{"--tfra-python": "an interpreter that has TFRA"},
    )
    batches = training_benchmark.Batches(1.05, options)
    tfra = None
    if options.tfra_python:
        tfra = Tfra(options.tfra_python, batches)
    else:
        print("TFRA is skipped without --tfra-python.", file=sys.stderr)
    count, dim = batches.matrix.shape
    of = f"{batches.size:,} zipf(1.05) ids of {count:,} x {dim}"
    sides = lookups(batches)
    compare("lookup", f"lookup, {of}", sides, tfra, options.runs)
    sides.clear()
    gc.collect()
    compare(
        "step",
        f"training step, {of}, Adagrad",
        steps(batches),
        tfra,
        options.runs,
    )
    if tfra:
        tfra.end()


if __name__ == "__main__":
    main()
