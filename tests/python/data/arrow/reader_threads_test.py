"""lodestar.ops.reader_threads: memory, threads and interpreter exit."""

import _thread
import gc
import os
import subprocess
import sys
import threading
import time
import weakref
from concurrent.futures import Future

import numpy as np
import pyarrow as pa
import pytest
import tensorflow as tf
from row_cases import SPEC, read, table, write

from lodestar.data import Column, open_dataset
from lodestar.data.arrow.row_reader import RowReader
from lodestar.ops.reader_threads import ReaderThreads


@pytest.fixture
def files(tmp_path):
    bounds = [0, 7, 7, 30, 50]
    return [
        write(tmp_path / f"{i}.parquet", table(begin, end), row_group_size=6)
        for i, (begin, end) in enumerate(zip(bounds, bounds[1:]))
    ]


def test_the_number_of_threads_is_limited():
    threads = ReaderThreads(2)
    go, pairs = threading.Event(), threading.Barrier(2)
    running, most = [], []

    def work(number):
        running.append(number)
        most.append(len(running))
        go.wait()
        pairs.wait(60)
        running.remove(number)
        if number == 3:
            raise ValueError("three")
        return number

    futures = [Future() for _ in range(6)]
    for number, future in enumerate(futures):
        threads.run(future, work, number)
    go.set()
    assert isinstance(futures[3].exception(60), ValueError)
    found = [f.result(60) for i, f in enumerate(futures) if i != 3]
    assert found == [0, 1, 2, 4, 5]
    assert max(most) == 2


def test_nothing_remains_of_a_dataset(files):
    def readers():
        return [o for o in gc.get_objects() if isinstance(o, RowReader)]

    gc.collect()
    threads, before = _thread._count(), readers()
    dataset = open_dataset(files, SPEC, 3)
    iterator = iter(dataset.take(2))
    next(iterator)
    (reader,) = [o for o in readers() if not any(o is b for b in before)]
    assert reader._groups
    held = weakref.ref(reader)
    del dataset, reader
    gc.collect()
    assert read(iterator) == [[3, 4, 5]]  # it holds the data it reads
    del iterator
    gc.collect()
    assert held() is None
    until = time.monotonic() + 60
    while _thread._count() > threads:
        assert time.monotonic() < until
        time.sleep(0.01)


def test_a_table_is_freed_with_its_dataset():
    ids = np.arange(8)  # the table shares its memory
    held = weakref.ref(ids)
    dataset = open_dataset(pa.table({"c": ids}), [Column.sparse("c")], 4)
    del ids
    gc.collect()
    assert held() is not None
    del dataset
    gc.collect()
    assert held() is None


def test_an_iterator_holds_the_table():
    data = pa.table({"c": np.arange(8)})
    iterator = iter(open_dataset(data, [Column.sparse("c")], 4, prefetch=0))
    del data
    gc.collect()
    assert [x["c"].to_list()[0] for x in iterator] == [[0], [4]]


HEAD = """
import sys
from lodestar.data import Column, open_dataset

SCHEMA = [Column.label("click"), Column.sparse("C1"), Column.dense("I1")]


def opened(**options):
    return open_dataset(sys.argv[1:], SCHEMA, 1, **options)
"""
COLLECT = f"""
import concurrent.futures.thread
import contextlib
import gc
import threading
{HEAD}
from lodestar.data.arrow.row_reader import RowReader

LOCKS = [
    concurrent.futures.thread._global_shutdown_lock,
    threading._active_limbo_lock,
    getattr(threading, "_shutdown_locks_lock", contextlib.nullcontext()),
]


def leave_garbage():
    iterator = iter(opened().repeat().prefetch(1000000))
    next(iterator)
    cycle = [iterator]
    cycle.append(cycle)


begin, begun = RowReader._begin, threading.Event()


def noted(*args):
    begun.set()
    return begin(*args)


RowReader._begin = noted
gc.disable()
leave_garbage()
with contextlib.ExitStack() as held:
    for lock in LOCKS:
        held.enter_context(lock)
    begun.clear()
    begun.wait(5)  # A batch waits for the locks, if it does.
    gc.collect()
"""


def run(code, files):
    return subprocess.run(
        [sys.executable, "-c", code, *map(str, files)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        timeout=120,
    )


def test_an_iterator_may_be_collected_where_threads_are_started(files):
    ended = run(COLLECT, files)
    assert ended.returncode == 0, ended.stderr


# The first registered function runs last, after the package's functions.
PREFETCH = f"""
import atexit
import threading

more = threading.Event()


@atexit.register
def last():
    more.clear()
    print(more.wait(0.2))


{HEAD}
import pyarrow.parquet
from lodestar.data.arrow.row_reader import RowReader


def noted(call):
    def noting(*args, **kwargs):
        more.set()
        return call(*args, **kwargs)

    return noting


RowReader.next_batch = noted(RowReader.next_batch)
pyarrow.parquet.ParquetFile.read_row_group = noted(
    pyarrow.parquet.ParquetFile.read_row_group
)
iterator = iter(opened(repeat=None).prefetch(1000000))
next(iterator)
"""


def test_python_ends_while_batches_are_read(files):
    ended = run(PREFETCH, files)
    assert ended.stdout == "False\n", ended.stderr
    assert ended.returncode == 0


def test_changing_a_batch_changes_no_other(tmp_path):
    # Rows of whole cache lines, which are passed to TensorFlow without a copy.
    data = pa.table({"x": pa.array([1.0] * 64, pa.float32())})
    path = write(tmp_path / "a.parquet", data)
    dataset = open_dataset(path, [Column.dense("x")], 16, repeat=3)
    for features in dataset.map(lambda f: {"x": f["x"] + 1.0}):
        assert set(features["x"].numpy().ravel().tolist()) == {2.0}


def test_inside_tf_function(files):
    paths = [str(path) for path in files]

    @tf.function(autograph=False)
    def total():
        return open_dataset(paths, SPEC, 8).reduce(
            tf.constant(0, tf.int64),
            lambda total, batch: total + tf.reduce_sum(batch[0]["n"]),
        )

    assert total().numpy() == sum(range(50))
