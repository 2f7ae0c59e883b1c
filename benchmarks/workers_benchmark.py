"""Measures steps of synchronous workers, each a process with the same batch size.

Each worker looks up its own batch in a table that is partitioned over all workers,
and trains it with Adagrad. Prints one JSON line per number of workers: the bytes that
a worker sends per step, compared with its unique ids and their rows, ids and
gradients, and its CPU time, compared with the same batch in a process alone.
"""

import json
import os
import socket
import statistics
import struct
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import tensorflow as tf

import lodestar
from benchmarks import embedding_benchmark, measure, training_benchmark
from lodestar.testing.local_cluster import hold_ports

DIM = 32
IDS = 65_536  # of a worker's batch
ROWS = 1_000_000
EXPONENT = 1.05
WORKERS = (1, 2, 4)
_WORKER = "LODESTAR_BENCHMARK_WORKER"
# Offset and size of tcpi_bytes_acked in struct tcp_info of linux/tcp.h.
_BYTES_ACKED, _INFO = 120, 136


def sent_bytes():
    """Returns the bytes that this process has sent over its TCP connections."""
    total = 0
    for name in Path("/proc/self/fd").iterdir():
        try:
            if not os.readlink(name).startswith("socket:"):
                continue
            connection = socket.socket(fileno=os.dup(int(name.name)))
        except OSError:  # closed since then
            continue
        with connection:
            if connection.family in (socket.AF_INET, socket.AF_INET6):
                info = connection.getsockopt(
                    socket.IPPROTO_TCP, socket.TCP_INFO, _INFO
                )
                info = info.ljust(_INFO, b"\0")
                total += struct.unpack_from("<Q", info, _BYTES_ACKED)[0]
    return total


class Worker:
    """One worker, or a process alone."""

    def __init__(self, index, workers, rows, ids):
        self._strategy = tf.distribute.get_strategy()
        if workers > 1:
            self._strategy = tf.distribute.MultiWorkerMirroredStrategy()
        keys = embedding_benchmark.spread_keys(rows)
        rng = np.random.default_rng(index)
        places = training_benchmark.zipf(rng, EXPONENT, rows, [8, ids])
        self._ids = [tf.constant(keys[place]) for place in places]
        self.distinct = statistics.mean(len(np.unique(x)) for x in places)
        with self._strategy.scope():
            table = lodestar.EmbeddingVariable(DIM, name="t")
            optimizer = lodestar.optimizers.Adagrad(0.01)
            optimizer.build([table])

        def replica(ids):
            with tf.GradientTape() as tape:
                loss = tf.reduce_sum(table.lookup(ids, training=True))
            optimizer.apply([tape.gradient(loss, table)], [table])

        self._step = tf.function(
            lambda ids: self._strategy.run(replica, args=(ids,)),
            input_signature=[tf.TensorSpec([None], tf.int64)],
        )

    def run(self):
        """Returns means per step."""
        begin = time.perf_counter(), time.process_time(), sent_bytes()
        for ids in self._ids:
            self._step(ids)
        end = time.perf_counter(), time.process_time(), sent_bytes()
        return [(b - a) / len(self._ids) for a, b in zip(begin, end)]


def work():
    """Runs a worker and prints its medians."""
    index, workers, rows, ids, runs = json.loads(os.environ[_WORKER])
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    worker = Worker(index, workers, rows, ids)
    worker.run()
    found = [worker.run() for _ in range(runs)]
    seconds, cpu, sent = map(statistics.median, zip(*found))
    answer = [worker.distinct, seconds, cpu, sent]
    print(json.dumps(answer), file=answers, flush=True)


def measured(workers, rows, ids, runs):
    """Returns the mean over all workers of what each measured."""
    held = hold_ports(workers)
    addresses = [f"127.0.0.1:{s.getsockname()[1]}" for s in held]
    processes = []
    for index in range(workers):
        task = {"type": "worker", "index": index}
        config = {"cluster": {"worker": addresses}, "task": task}
        processes.append(
            subprocess.Popen(
                [sys.executable, "-m", "benchmarks.workers_benchmark"],
                env={
                    **os.environ,
                    "TF_CONFIG": json.dumps(config) if workers > 1 else "",
                    _WORKER: json.dumps([index, workers, rows, ids, runs]),
                    "PYTHONPATH": os.pathsep.join(sys.path),
                },
                stdout=subprocess.PIPE,
                text=True,
            )
        )
    answers = [json.loads(p.communicate()[0]) for p in processes]
    for listening in held:
        listening.close()
    return [statistics.mean(column) for column in zip(*answers)]


def main():
    """Prints JSON lines."""
    if _WORKER in os.environ:
        work()
        return
    options = measure.arguments(__doc__)
    rows, ids = (10_000, 2048) if options.small else (ROWS, IDS)
    alone = None
    for workers in WORKERS:
        distinct, seconds, cpu, sent = measured(
            workers, rows, ids, options.runs
        )
        alone = alone or cpu
        wire = 2 * distinct * (8 + 4 * DIM)
        measure.print_line(
            work=f"step of {ids} zipf({EXPONENT}) ids of {DIM} numbers per "
            f"worker, {workers} workers",
            distinct=round(distinct),
            bytes=round(sent),
            baseline="ids, rows and gradients of a worker's unique ids",
            ratio=round(sent / wire, 3),
            predicted=round((workers - 1) / workers, 3),
            wanted="at most 1.2",
            ms=round(seconds * 1e3, 2),
            cpu_ms=round(cpu * 1e3, 2),
            cpu_ratio=round(cpu / alone, 2),
            runs=options.runs,
        )


if __name__ == "__main__":
    main()
