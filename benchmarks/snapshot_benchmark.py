"""Snapshots: saving, restoring, deltas, and what runs beside them.

Files are in a folder of TMPDIR, which says what disk is measured.
"""

import json
import os
import shutil
import statistics
import subprocess
import tempfile
import time

import keras
import measure
import numpy as np
import tensorflow as tf

import lodestar
from lodestar import snapshot

_DIM = 32


def _print(work, baseline, ratio, wanted, **more):
    print(
        json.dumps(
            {
                "work": work,
                "baseline": baseline,
                "ratio": round(ratio, 3),
                "wanted": wanted,
                **more,
            }
        ),
        flush=True,
    )


def _seconds(call):
    begin = time.perf_counter()
    call()
    return time.perf_counter() - begin


def _dd(source, target, *options):
    subprocess.run(
        ["dd", f"if={source}", f"of={target}", "bs=1M", *options],
        check=True,
        capture_output=True,
    )


def _new_table(name="t"):
    return lodestar.EmbeddingVariable(_DIM, name=name)


class Training:
    """A table of so many rows with slots of Adagrad, and its steps."""

    def __init__(self, rows, batch):
        self.table = _new_table()
        self.rows = rows
        self._batch = batch
        self._optimizer = lodestar.optimizers.DynamicEmbeddingOptimizer(
            keras.optimizers.Adagrad(0.1)
        )
        self._rng = np.random.default_rng(0)
        for begin in range(0, rows, 65_536):
            self.step(np.arange(begin, min(begin + 65_536, rows)))

    def step(self, ids=None):
        if ids is None:
            ids = self._rng.integers(0, self.rows, self._batch)
        with tf.GradientTape() as tape:
            found = self.table.lookup(tf.constant(ids), training=True)
            loss = tf.reduce_sum(found * found)
        hook = self.table.hook
        self._optimizer.apply(tape.gradient(loss, [hook]), [hook])


def _save_and_restore(training, folder, runs, size):
    files = os.path.join(folder, "full")
    copy = os.path.join(folder, "copy")
    times = {
        side: [] for side in ("save", "write", "restore", "read", "insert")
    }
    exported = training.table.export()
    data = os.path.join(files, "00000001", "table-00000")
    for run in range(runs + 1):
        shutil.rmtree(files, ignore_errors=True)
        with_save = _seconds(lambda: snapshot.save(files, training.table))
        if os.path.exists(copy):
            os.unlink(copy)
        with_write = _seconds(lambda: _dd(data, copy, "conv=fsync"))
        table = _new_table()
        with_restore = _seconds(lambda t=table: snapshot.restore(files, t))
        with_read = _seconds(lambda: _dd(data, "/dev/null"))
        other = _new_table()

        def insert(other=other):
            for begin in range(0, training.rows, 65_536):
                part = slice(begin, begin + 65_536)
                other.insert_or_assign(exported.ids[part], exported.rows[part])

        with_insert = _seconds(insert)
        if run:
            for side, seconds in zip(
                times,
                (with_save, with_write, with_restore, with_read, with_insert),
            ):
                times[side].append(seconds)
    medians = {side: statistics.median(t) for side, t in times.items()}
    found, wanted = table.export(), exported
    assert all(
        np.array_equal(a, b)
        for a, b in ((found.ids, wanted.ids), (found.rows, wanted.rows))
    )
    size_of = os.path.getsize(data)
    for ours, theirs, wanted in (
        ("save", "write", 0.5),
        ("restore", "read", 0.5),
        ("restore", "insert", 1.0),
    ):
        names = {
            "write": "dd conv=fsync of the same bytes",
            "read": "dd of the same bytes to /dev/null",
            "insert": "insert_or_assign of the same rows, without slots",
        }
        _print(
            f"{ours} {size}",
            names[theirs],
            medians[theirs] / medians[ours],
            wanted,
            MB=round(size_of / 1e6, 1),
            seconds=round(medians[ours], 4),
            baseline_seconds=round(medians[theirs], 4),
            MB_per_second=round(size_of / medians[ours] / 1e6),
            runs=runs,
            checksum=measure.checksum(found.rows),
        )


def _delta(training, folder, runs, size):
    files = os.path.join(folder, "delta")
    full, delta, sizes = [], [], []
    changed = training.rows // 100
    rng = np.random.default_rng(1)
    for run in range(runs + 1):
        shutil.rmtree(files, ignore_errors=True)
        info = snapshot.save(files, training.table)
        training.step(rng.permutation(training.rows)[:changed])
        after = snapshot.save(files, training.table, delta=True)
        assert after.rows == changed
        if run:
            full.append(info.seconds)
            delta.append(after.seconds)
            sizes.append(after.bytes / info.bytes)
    shutil.rmtree(files)
    medians = [statistics.median(times) for times in (delta, full)]
    _print(
        f"delta of 1 % of {size}",
        "a full snapshot (time of the delta over it)",
        medians[0] / medians[1],
        "< 0.03",
        seconds=round(medians[0], 4),
        baseline_seconds=round(medians[1], 4),
        bytes_ratio=round(statistics.median(sizes), 4),
        runs=runs,
    )


def _beside(training, folder, runs, size):
    """Look-ups and steps, at rest and while a snapshot is written."""
    files = os.path.join(folder, "beside")
    rng = np.random.default_rng(2)
    feeds = [
        tf.constant(rng.integers(0, training.rows, 4096)) for _ in range(16)
    ]

    def lookups(until):
        seconds = []
        while not until(len(seconds)):
            seconds.append(
                _seconds(
                    lambda: training.table.lookup(feeds[len(seconds) % 16])
                )
            )
        return seconds

    def steps(until):
        seconds = []
        while not until(len(seconds)):
            seconds.append(_seconds(training.step))
        return seconds

    for work, loop in (("look-up of 4,096 ids", lookups), ("step", steps)):
        loop(lambda n: n == 20)
        rest = loop(lambda n: n == 300)
        during = []
        for _ in range(runs):
            shutil.rmtree(files, ignore_errors=True)
            pending = snapshot.save(files, training.table, blocking=False)
            during += loop(lambda n, p=pending: p.done())
            pending.wait()
        median = statistics.median(rest)
        p99 = float(np.quantile(during, 0.99))
        _print(
            f"{work} beside a snapshot of {size}, p99",
            "the median at rest (time of ours over it)",
            p99 / median,
            "<= 10" if loop is lookups else "none",
            milliseconds=round(p99 * 1e3, 3),
            median_milliseconds=round(statistics.median(during) * 1e3, 3),
            baseline_milliseconds=round(median * 1e3, 3),
            longest_milliseconds=round(max(during) * 1e3, 3),
            calls=len(during),
        )
    shutil.rmtree(files)


def main():
    options = measure.arguments(__doc__, ("save", "delta", "beside"))
    rows = 20_000 if options.small else 1_000_000
    training = Training(rows, 4096)
    size = f"{rows:,} x {_DIM} with Adagrad"
    with tempfile.TemporaryDirectory() as folder:
        for work, call in (
            ("save", _save_and_restore),
            ("delta", _delta),
            ("beside", _beside),
        ):
            if work in options.works:
                call(training, folder, options.runs, size)


if __name__ == "__main__":
    main()
