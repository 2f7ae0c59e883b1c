"""Tests real memory exhaustion in a process with a bounded address space."""

import os
import resource
import subprocess
import sys

import numpy as np
import tensorflow as tf

import lodestar

DIM = 1024
ROOM = 1 << 29  # bytes that the process may still map


def events(table):
    stats = table.stats()
    return [
        stats[name]
        for name in ("ids", "unique_ids", "padding", "hits", "misses")
    ]


def grow_until_it_is_refused():
    """Prints the number of rows when memory runs out."""
    table = lodestar.EmbeddingVariable(
        DIM, embeddings_initializer="ones", name="big"
    )
    table.lookup(np.arange(1000), training=True)  # creates threads and buffers
    bags = tf.RaggedTensor.from_row_lengths(np.arange(20000), [20000])
    table.lookup(bags, combiner="sum")
    pages = int(open("/proc/self/statm").read().split()[0])
    mapped = pages * resource.getpagesize()
    _, most = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (mapped + ROOM, most))
    before = 1000
    counted = events(table)
    for batch in range(1, 1000):
        # Pooled, so the output is small, and the rows cause the failure.
        ids = np.arange(batch * 10000, (batch + 1) * 10000)
        bags = tf.RaggedTensor.from_row_lengths(ids, [len(ids)])
        try:
            table.lookup(bags, combiner="sum", training=True)
        except tf.errors.ResourceExhaustedError as error:
            assert "out of memory" in error.message, error.message
            break
        before += len(ids)
        counted = events(table)
    else:
        raise AssertionError("memory did not run out")
    # Room for the arrays of the checks, less than one batch of rows.
    checks = 32 << 20
    resource.setrlimit(resource.RLIMIT_AS, (mapped + ROOM + checks, most))
    assert int(table.size()) == before
    assert events(table) == counted
    assert not table.find(ids[:100])[1].numpy().any()
    rows, found = table.find(np.arange(1000))
    assert found.numpy().all() and (rows.numpy() == 1).all()
    # With free memory, training continues.
    table.remove(np.arange(500))
    table.lookup(-np.arange(1, 501), training=True)
    assert int(table.size()) == before
    print("refused after", before)


def ask_for_a_filter_that_is_too_large():
    table = lodestar.EmbeddingVariable(
        4, admission=lodestar.CountingBloom(2, 0.01, 10**11), name="filtered"
    )
    none = events(table)
    room = 1 << 36  # a fifteenth of the filter
    resource.setrlimit(resource.RLIMIT_AS, (room, room))
    for ids, combiner in (([1, 2], None), ([[1, 2]], "sum")):
        try:
            table.lookup(ids, combiner=combiner, training=True)
        except tf.errors.ResourceExhaustedError as error:
            assert "out of memory" in error.message, error.message
        else:
            raise AssertionError("memory did not run out")
        assert events(table) == none, (combiner, events(table))


def run(function):
    """Runs a function in its own process; returns its output."""
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(sys.path),
        "TF_CPP_MIN_LOG_LEVEL": "3",
        # Otherwise each thread maps 64 MB when it first allocates.
        "MALLOC_ARENA_MAX": "1",
    }
    done = subprocess.run(
        [sys.executable, __file__, function.__name__],
        capture_output=True,
        text=True,
        env=environment,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


def test_a_table_that_finds_no_memory_is_as_it_was():
    printed = run(grow_until_it_is_refused)
    rows = int(printed.split("refused after")[1])
    # All but an eighth of the room holds rows.
    assert rows * DIM * 4 > ROOM * 0.75


def test_a_lookup_that_finds_no_memory_is_not_counted():
    run(ask_for_a_filter_that_is_too_large)


if __name__ == "__main__":
    globals()[sys.argv[1]]()
