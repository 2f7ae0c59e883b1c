"""Readers free everything, so that a loop over days uses constant memory."""

import gc
import os
import weakref

import keras
import numpy as np
import pyarrow as pa
import pytest
import tensorflow as tf

import lodestar
from lodestar.data import Column, Schema, SkippedRecords, open_dataset
from lodestar.data.arrow.batch_packer import BatchPacker
from lodestar.data.arrow.example_writer import ExampleWriter
from lodestar.data.arrow.parquet_writer import ParquetWriter
from lodestar.hugectr.norm_dataset import NormDataset
from lodestar.hugectr.norm_writer import NormWriter
from lodestar.hugectr.raw_dataset import RawDataset
from lodestar.hugectr.raw_writer import RawWriter
from lodestar.ops.python_calls import PythonFunction
from lodestar.paddle import InMemoryDataset, MultiSlotGenerator
from lodestar.paddle.instant_writer import InstantWriter
from lodestar.paddle.multislot_dataset import MultiSlotDataset
from lodestar.paddle.multislot_writer import MultiSlotWriter

SPEC = Schema([Column.label("y"), Column.dense("I", [2]), Column.sparse("C")])
FORMS = {
    "a.txt": MultiSlotWriter,
    "a.parquet": ParquetWriter,
    "a.tfrecord": ExampleWriter,
    "a.instant": InstantWriter,
    "a.norm": NormWriter,
    "a.raw": RawWriter,
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("days")
    for name, writer in FORMS.items():
        with writer(path / name, SPEC) as out:
            for i in range(100):
                out.write({"y": i % 2, "I": [0.5, i / 100], "C": [i + 1]})
    lines = [f"{i % 2},{i / 4},v{i % 5}\n" for i in range(100)]
    (path / "a.csv").write_text("label,x,c\n" + "".join(lines))
    return path


class Lines(MultiSlotGenerator):
    """One sample per line."""

    def generate_sample(self, line):
        yield [("y", [1]), ("I", [0.5, 0.25]), ("C", [len(line)])]


def in_memory(folder):
    memory = InMemoryDataset(SPEC, 16)
    memory.load(folder / "a.txt")
    return memory.dataset()


def table(folder):
    data = {"y": np.arange(100) % 2, "x": np.arange(100.0)}
    spec = [Column.label("y"), Column.dense("x")]
    return open_dataset(pa.table(data), spec, 16)


READERS = {
    "csv": lambda f: open_dataset(f / "a.csv", batch_size=16),
    "example": lambda f: open_dataset(f / "a.tfrecord", SPEC, 16),
    "example skips": lambda f: open_dataset(
        f / "a.tfrecord", SPEC, 16, on_error="skip"
    ),
    "generator": lambda f: Lines(schema=SPEC).dataset(f / "a.txt", 16),
    "in memory": in_memory,
    "multislot": lambda f: MultiSlotDataset(f / "a.txt", SPEC, 16),
    "instant": lambda f: open_dataset(f / "a.instant", SPEC, 16),
    "norm": lambda f: NormDataset(f / "a.norm", SPEC, 16),
    "parquet": lambda f: open_dataset(f / "a.parquet", SPEC, 16),
    "parquet skips": lambda f: open_dataset(
        f / "a.parquet", SPEC, 16, on_error="skip", repeat=2
    ),
    "parquet shuffled": lambda f: open_dataset(
        f / "a.parquet", SPEC, 16, shuffle=30, repeat=2, prefetch=0
    ),
    "raw": lambda f: RawDataset(f / "a.raw", SPEC, 16),
    "table": table,
}


def read(dataset):
    for _ in dataset:
        pass


def leave(dataset):
    next(iter(dataset.repeat().prefetch(3)))


def in_function(dataset):
    @tf.function
    def count():
        found = 0
        for _ in dataset:
            found += 1
        return found

    count()


def save(dataset):
    iterator = iter(dataset)
    next(iterator)
    tf.train.Checkpoint(iterator=iterator).write("ram://reader_memory/c")


def objects():
    gc.collect()
    # TensorFlow leaves an empty list behind after some calls.
    return sum(1 for o in gc.get_objects() if type(o) is not list or o)


def count_of(kind):
    """Returns the number of live objects of a class, from all tests."""
    gc.collect()
    return sum(1 for o in gc.get_objects() if type(o) is kind)


def days(make, use, most=10):
    """Returns the smallest number of objects that any of several days leaves.

    A leak shows on every day. A thread of TensorFlow's pool leaves a few
    objects when it runs Python code for the first time, but only once, so days
    are repeated until one leaves nothing.
    """
    for _ in range(2):
        use(make())
    left = []
    before = objects()
    while len(left) < most and min(left, default=1) > 0:
        use(make())
        after = objects()
        left.append(after - before)
        before = after
    return min(left)


# The readers that involve Python code, and the most common of the others.
USES = [
    *((read, name) for name in READERS),
    *((leave, name) for name in ("csv", "generator", "multislot", "parquet")),
    *((in_function, name) for name in ("csv", "multislot", "table")),
    *((save, name) for name in ("multislot", "parquet", "table")),
]


@pytest.mark.parametrize("use, name", USES)
def test_a_day_leaves_no_objects(folder, use, name):
    before = count_of(PythonFunction)
    assert days(lambda: READERS[name](folder), use) <= 0
    assert count_of(PythonFunction) <= before


@pytest.mark.parametrize(
    "make", [SkippedRecords, lambda: InMemoryDataset(SPEC, 16)]
)
def test_objects_are_freed_within_a_trace(make):
    made = make()
    cycle = [made]
    cycle.append(cycle)
    gone = weakref.ref(made)
    del made, cycle

    @tf.function
    def traced():
        gc.collect()
        return tf.constant(1)

    graph = traced.get_concrete_function().graph
    assert gone() is None
    assert not [op for op in graph.get_operations() if "Lodestar" in op.type]


def test_batches_of_tables_that_are_gone_are_freed():
    """Reads tables of 8 MB, each in one batch."""

    def resident():
        with open("/proc/self/statm") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    def one():
        data = pa.table({"x": np.zeros(2_000_000, np.float32)})
        dataset = open_dataset(data, [Column.dense("x")], 2_000_000)
        held = weakref.ref(data)
        read(dataset)
        return held

    packers = count_of(BatchPacker)
    for _ in range(3):
        one()
    gc.collect()
    before = resident()
    tables = [one() for _ in range(25)]
    gc.collect()
    assert not any(held() for held in tables)
    assert count_of(BatchPacker) <= packers
    # The allocator may keep freed memory for a while.
    assert resident() - before < 80e6


def test_model_fit_leaves_no_reader_behind(folder):
    inputs = SPEC.inputs()
    rows = lodestar.layers.DynamicEmbedding(2, combiner="sum")(inputs["C"])
    score = keras.layers.Dense(1)(keras.layers.concatenate([rows, inputs["I"]]))
    before = count_of(PythonFunction)
    model = keras.Model(inputs, score)
    model.compile(lodestar.optimizers.SGD(), "mse")
    for _ in range(2):
        for name in ("parquet", "multislot", "generator"):
            model.fit(READERS[name](folder), epochs=2, verbose=0)
    # Keras holds the last iterator in a reference cycle.
    del model
    assert count_of(PythonFunction) <= before
