"""Compares a table on parameter servers with the same table in one process.

Each side is a process that trains one model, alone or on a loopback cluster of
one worker and some servers; the sides take turns. Prints one JSON line of the
bytes that a lookup moves, and lines of training steps.
"""

import functools
import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

import keras
import numpy as np
import tensorflow as tf

import lodestar
from benchmarks import embedding_benchmark, measure, training_benchmark

DIM = 32
BATCH = 4096  # examples
IDS_OF_EXAMPLE = 16
BATCHES = 16
EXPONENT = 1.05
_SIDE = "LODESTAR_BENCHMARK_SIDE"


class Meter(keras.callbacks.Callback):
    """Measures the growth of `usage` from step `first` to step `last`."""

    def __init__(self, usage, first, last):
        super().__init__()
        self._usage, self._first, self._last = usage, first, last
        self.used = None

    def on_train_batch_end(self, batch, logs=None):
        """Counts steps like Keras, however many are executed at a time."""
        if batch == self._first:
            self._begin = self._usage()
        elif batch == self._last:
            self.used = growth(self._begin, self._usage())


def growth(begin, end):
    """Returns the differences of two dicts of dicts, by name."""
    return {name: end[name] - begin[name] for name in end}


def processor_seconds(process):
    """Returns a process's CPU time exactly; /proc counts in hundredths."""
    # Like clock_getcpuclockid(), which names the clock of a process.
    return time.clock_gettime(~process << 3 | 2)


def loopback_bytes():
    """Returns the bytes that all processes have sent over loopback."""
    for line in Path("/proc/net/dev").read_text().splitlines():
        name, _, counters = line.partition(":")
        if name.strip() == "lo":
            return int(counters.split()[0])
    raise RuntimeError("/proc/net/dev has no `lo`.")


class Side:
    """A model whose table is on `servers` servers; with 0, in this process."""

    def __init__(self, servers, rows):
        self._keys = embedding_benchmark.spread_keys(rows)
        rng = np.random.default_rng(5)
        size = [BATCHES, BATCH, IDS_OF_EXAMPLE]
        places = training_benchmark.zipf(rng, EXPONENT, rows, size)
        self._ids = self._keys[places]
        self._labels = rng.integers(0, 2, [BATCH, 1]).astype(np.float32)
        self._cluster = None
        self._strategy = tf.distribute.get_strategy()
        if servers:
            self._cluster = lodestar.testing.LocalCluster(servers, 1)
            self._strategy = tf.distribute.ParameterServerStrategy(
                self._cluster.resolver
            )
        with self._strategy.scope():
            self._model = self._make_model(rng)
        self._lookup = tf.function(
            self._table.lookup,
            input_signature=[tf.TensorSpec([None], tf.int64)],
        )

    def _make_model(self, rng):
        layer = lodestar.layers.DynamicEmbedding(DIM, combiner="sum")
        self._table = layer.table
        for begin in range(0, len(self._keys), 2**18):
            keys = self._keys[begin : begin + 2**18]
            rows = rng.normal(0, 0.01, [len(keys), DIM]).astype(np.float32)
            self._table.insert_or_assign(keys, rows)
        ids = keras.Input((IDS_OF_EXAMPLE,), dtype="int64")
        x = keras.layers.Dense(64, activation="relu")(layer(ids))
        x = keras.layers.Dense(32, activation="relu")(x)
        return keras.Model(ids, keras.layers.Dense(1, "sigmoid")(x))

    def compile(self, at_once):
        """Sets the number of steps per execution."""
        with self._strategy.scope():
            self._model.compile(
                lodestar.optimizers.Adagrad(0.01),
                "binary_crossentropy",
                steps_per_execution=at_once,
            )

    def train(self, batch, steps):
        """Returns the mean usage per step of `steps`, after as many others."""
        meter = Meter(self.usage, steps - 1, 2 * steps - 1)
        options = {
            "steps_per_epoch": 2 * steps,
            "callbacks": [meter],
            "verbose": 0,
        }
        if self._cluster is None:
            self._model.fit(self._dataset(batch), **options)
        else:
            lodestar.train.fit(
                self._model,
                lambda context: self._dataset(batch),
                steps_per_round=steps,
                **options,
            )
        return {name: used / steps for name, used in meter.used.items()}

    def _dataset(self, batch):
        ids = self._ids[:, :batch]
        label = tf.constant(self._labels[:batch])
        data = tf.data.Dataset.from_tensor_slices(ids).repeat()
        return data.map(lambda x: (x, label)).prefetch(2)

    def usage(self):
        """Returns seconds, CPU seconds by role, and bytes on loopback."""
        roles = {"program": [os.getpid()]}
        if self._cluster is not None:
            for (job, _), process in self._cluster.processes.items():
                roles.setdefault(job, []).append(process)
        return {
            "seconds": time.perf_counter(),
            "bytes": loopback_bytes(),
            **{
                f"{role}_cpu": sum(map(processor_seconds, processes))
                for role, processes in roles.items()
            },
        }

    def lookup(self):
        """Returns the mean usage per lookup of all batches."""
        batches = tf.constant(self._ids.reshape(BATCHES, -1))
        feeds = tf.unstack(batches)
        begin = self.usage()
        for ids in feeds:
            self._lookup(ids)
        used = growth(begin, self.usage())
        return {name: total / BATCHES for name, total in used.items()}

    def distinct(self, batch):
        """Returns the mean number of unique ids of a batch."""
        ids = self._ids[:, :batch].reshape(BATCHES, -1)
        return statistics.mean(len(np.unique(row)) for row in ids)


class Process:
    """A Side in a process, which runs its methods by name."""

    def __init__(self, servers, rows):
        self._process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.server_benchmark"],
            env={
                **os.environ,
                _SIDE: json.dumps([servers, rows]),
                "PYTHONPATH": os.pathsep.join(sys.path),
            },
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def __call__(self, method, *arguments):
        request = json.dumps([method, arguments])
        print(request, file=self._process.stdin, flush=True)
        answer = self._process.stdout.readline()
        if not answer:
            raise RuntimeError(f"The process ended during {method}{arguments}.")
        return json.loads(answer)

    def close(self):
        """Ends the process, and its cluster with it."""
        self._process.communicate()


def serve():
    """Answers the requests of a Process."""
    # The side may print, so replies need another descriptor.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    side = Side(*json.loads(os.environ[_SIDE]))
    for line in sys.stdin:
        method, arguments = json.loads(line)
        answer = getattr(side, method)(*arguments)
        print(json.dumps(answer), file=answers, flush=True)


def in_turns(calls, runs):
    """Returns medians of the dicts of numbers that calls return.

    Args:
        calls: Functions by key, called one after another in each run.
        runs: Number of runs, after one that is not counted.
    """
    found = [
        {key: call() for key, call in calls.items()} for _ in range(runs + 1)
    ]
    return {
        key: {
            name: statistics.median(run[key][name] for run in found[1:])
            for name in found[0][key]
        }
        for key in calls
    }


def report_lookup(sides, options):
    """Compares the bytes of lookups with the size of unique ids and rows."""
    used = in_turns({2: lambda: sides[2]("lookup")}, options.runs)[2]
    distinct = sides[2]("distinct", BATCH)
    measure.print_line(
        work=f"lookup of {BATCH * IDS_OF_EXAMPLE} zipf({EXPONENT}) ids of "
        f"{DIM} numbers, 2 servers",
        distinct=round(distinct),
        bytes=round(used["bytes"]),
        baseline="8 bytes and a row per unique id",
        ratio=round(used["bytes"] / (distinct * (8 + 4 * DIM)), 3),
        wanted="at most 1.1",
        runs=options.runs,
    )


def report_steps(sides, options):
    """Compares steps of each side with one process, and 2 servers with 1."""
    steps = 8 if options.small else 32
    for at_once in (1, 8):
        for side in sides.values():
            side("compile", at_once)
        used = in_turns(
            {
                servers: functools.partial(side, "train", BATCH, steps)
                for servers, side in sides.items()
            },
            options.runs,
        )
        for servers, other, wanted in ((1, 0, 2), (2, 0, 2), (2, 1, 1.2)):
            ours, base = used[servers], used[other]
            measure.print_line(
                work=f"training step of {BATCH} examples of {IDS_OF_EXAMPLE} "
                f"ids, {at_once} at a time, {plural(servers)}",
                baseline=plural(other),
                time_ratio=round(ours["seconds"] / base["seconds"], 2),
                wanted=f"at most {wanted}",
                cpu_ratio=round(cpu(ours) / cpu(base), 2),
                ms=round(ours["seconds"] * 1e3, 2),
                baseline_ms=round(base["seconds"] * 1e3, 2),
                cpu_ms={
                    name: round(used * 1e3, 2)
                    for name, used in ours.items()
                    if name.endswith("cpu")
                },
                bytes=round(ours["bytes"]),
                runs=options.runs,
            )


def cpu(used):
    """Returns the CPU seconds of all roles."""
    return sum(value for name, value in used.items() if name.endswith("cpu"))


def plural(servers):
    """Describes a side."""
    if not servers:
        return "one process"
    return f"{servers} server{'s' if servers > 1 else ''}"


WORKS = {
    "lookup": ((2,), report_lookup),
    "step": ((0, 1, 2), report_steps),
}


def main():
    """Prints JSON lines."""
    if _SIDE in os.environ:
        serve()
        return
    options = measure.arguments(__doc__, [*WORKS])
    needed = {n for work in options.works for n in WORKS[work][0]}
    rows = 10_000 if options.small else 1_000_000
    sides = {servers: Process(servers, rows) for servers in sorted(needed)}
    try:
        for work in options.works:
            chosen, report = WORKS[work]
            report({n: sides[n] for n in chosen}, options)
    finally:
        for side in sides.values():
            side.close()


if __name__ == "__main__":
    main()
