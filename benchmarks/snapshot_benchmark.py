"""Times snapshots: saving, restoring, deltas, and concurrent work.

TMPDIR sets the folder of the files, and so the disk.
"""

import itertools
import os
import shutil
import statistics
import subprocess
import tempfile

import numpy as np
import tensorflow as tf

import lodestar
from benchmarks import measure
from lodestar import _files, snapshot

_DIM = 32


def _print(work, baseline, ratio, wanted, **more):
    measure.print_line(
        work=work,
        baseline=baseline,
        ratio=round(ratio, 3),
        wanted=wanted,
        **more,
    )


def _dd(source, target, *options):
    subprocess.run(
        ["dd", f"if={source}", f"of={target}", "bs=1M", *options],
        check=True,
        capture_output=True,
    )


def _forget(path):
    """Makes the next read of a file come from the disk."""
    with open(path, "rb") as file:
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def _new_table(name="t"):
    return lodestar.EmbeddingVariable(_DIM, name=name)


class Training:
    """A table of so many rows with slots of Adagrad, and its steps."""

    def __init__(self, rows, batch):
        self.table = _new_table()
        self.rows = rows
        self._batch = batch
        self._optimizer = lodestar.optimizers.Adagrad(0.1)
        self._rng = np.random.default_rng(0)
        for begin in range(0, rows, 65_536):
            self.step(np.arange(begin, min(begin + 65_536, rows)))

    def step(self, ids=None):
        if ids is None:
            ids = self._rng.integers(0, self.rows, self._batch)
        with tf.GradientTape() as tape:
            found = self.table.lookup(tf.constant(ids), training=True)
            loss = tf.reduce_sum(found * found)
        hook = self.table
        self._optimizer.apply(tape.gradient(loss, [hook]), [hook])


def _save_and_restore(training, folder, runs, size):
    files = os.path.join(folder, "full")
    copy = os.path.join(folder, "copy")
    exported = training.table.export()

    def save():
        snapshot.save(training.table, files)

    def data():
        """Returns the file; numbers go on after the folder was removed."""
        (version,) = snapshot.versions(files)
        return os.path.join(files, f"{version.version:08d}", "table-00000")

    def restore():
        snapshot.restore(table, files)

    def insert():
        for begin in range(0, training.rows, 65_536):
            part = slice(begin, begin + 65_536)
            table.insert_or_assign(exported.ids[part], exported.rows[part])

    times = {}
    for run in range(runs + 1):
        shutil.rmtree(files, ignore_errors=True)
        if run:
            os.unlink(copy)
        for work, call in (
            ("save", save),
            ("write", lambda: _dd(data(), copy, "conv=fsync")),
            ("restore", restore),
            ("read", lambda: _dd(data(), "/dev/null")),
            ("insert", insert),
            ("restore from the disk", restore),
            ("read from the disk", lambda: _dd(data(), "/dev/null")),
        ):
            table = _new_table()
            if work in ("restore", "insert"):
                # Both use memory that a table has just released.
                restore()
                table = _new_table()
            if work.endswith("disk"):
                _forget(data())
            seconds = measure.seconds_of(call)
            if run:
                times.setdefault(work, []).append(seconds)
    medians = {work: statistics.median(t) for work, t in times.items()}
    restore()
    found = table.export()
    assert np.array_equal(found.ids, exported.ids)
    assert np.array_equal(found.rows, exported.rows)
    file_bytes = os.path.getsize(data())
    for ours, theirs, baseline, wanted in (
        ("save", "write", "dd conv=fsync of the same bytes", 0.5),
        ("restore", "read", "dd of the file to /dev/null", 0.5),
        (
            "restore from the disk",
            "read from the disk",
            "dd of the file to /dev/null, from the disk",
            0.5,
        ),
        ("restore", "insert", "insert_or_assign of the rows, no slots", 2.0),
    ):
        _print(
            f"{ours}, {size}",
            baseline,
            medians[theirs] / medians[ours],
            wanted,
            MB=round(file_bytes / 1e6, 1),
            seconds=round(medians[ours], 4),
            baseline_seconds=round(medians[theirs], 4),
            runs=runs,
            checksum=measure.checksum(found.rows),
        )


def _write_alone(folder, version):
    """Writes and syncs files as large as a version's."""
    sizes = [
        os.path.getsize(os.path.join(version, name))
        for name in ("table-00000", "MANIFEST")
    ]
    rows, manifest = map(os.urandom, sizes)
    alone = os.path.join(folder, "alone")

    def write():
        os.mkdir(alone)
        table = os.path.join(alone, "table-00000")
        with open(table, "wb") as file:
            for begin in range(0, len(rows), 1 << 20):
                file.write(rows[begin : begin + (1 << 20)])
        _files.sync(table)
        _files.sync(folder)
        path = os.path.join(alone, "MANIFEST")
        _files.write_synced(path, manifest, f"{path}.partial")

    seconds = measure.seconds_of(write)
    shutil.rmtree(alone)
    return seconds


def _delta(training, folder, runs, size):
    files = os.path.join(folder, "delta")
    full, delta, alone, sizes = [], [], [], []
    changed = training.rows // 100
    rng = np.random.default_rng(1)
    for run in range(runs + 1):
        shutil.rmtree(files, ignore_errors=True)
        info = snapshot.save(training.table, files)
        training.step(rng.permutation(training.rows)[:changed])
        after = snapshot.save(training.table, files, delta=True)
        assert after.rows == changed
        synced = _write_alone(folder, after.path)
        if run:
            full.append(info.seconds)
            delta.append(after.seconds)
            alone.append(synced)
            sizes.append(after.bytes / info.bytes)
    shutil.rmtree(files)
    medians = [statistics.median(times) for times in (delta, alone, full)]
    for work, seconds, wanted in (
        (f"delta of 1 % of {size}", medians[0], "< 0.03"),
        (
            f"files of a delta of 1 % of {size}, written and synced alone",
            medians[1],
            "none",
        ),
    ):
        _print(
            work,
            "a full snapshot (time of ours over it)",
            seconds / medians[2],
            wanted,
            seconds=round(seconds, 4),
            baseline_seconds=round(medians[2], 4),
            bytes_ratio=round(statistics.median(sizes), 4),
            runs=runs,
        )


def _beside(training, folder, runs, size):
    """Times lookups and steps, idle and while a snapshot is written."""
    files = os.path.join(folder, "beside")
    rng = np.random.default_rng(2)
    feeds = [
        tf.constant(rng.integers(0, training.rows, 4096)) for _ in range(16)
    ]

    batches = itertools.cycle(feeds)

    def loop(call, until):
        seconds = []
        while not until(len(seconds)):
            seconds.append(measure.seconds_of(call))
        return seconds

    for work, call, wanted in (
        (
            "lookup of 4,096 ids",
            lambda: training.table.lookup(next(batches)),
            "<= 10",
        ),
        ("step", training.step, "none"),
    ):
        loop(call, lambda n: n == 20)
        rest = loop(call, lambda n: n == 1000)
        during = []
        for _ in range(runs):
            shutil.rmtree(files, ignore_errors=True)
            pending = snapshot.save(training.table, files, blocking=False)
            during += loop(call, lambda n, p=pending: p.done())
            pending.wait()
        median = statistics.median(rest)
        p99 = float(np.quantile(during, 0.99))
        _print(
            f"{work} during a snapshot of {size}, p99",
            "the median at rest (time of ours over it)",
            p99 / median,
            wanted,
            milliseconds=round(p99 * 1e3, 3),
            median_milliseconds=round(statistics.median(during) * 1e3, 3),
            baseline_milliseconds=round(median * 1e3, 3),
            baseline_p99_milliseconds=round(
                float(np.quantile(rest, 0.99)) * 1e3, 3
            ),
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
