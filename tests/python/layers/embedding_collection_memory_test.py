"""A collection that runs out of memory leaves all of its tables unchanged.

Run as a program, it limits its own address space.
"""

import os
import resource
import subprocess
import sys

import numpy as np
import tensorflow as tf

import lodestar

DIM = 1024
ROOM = 1 << 29  # bytes that the process may still map
BATCH = 10000


def grow_until_it_is_refused():
    """Runs in the test's process; prints its observations."""
    small = lodestar.EmbeddingVariable(
        1, embeddings_initializer="ones", name="small"
    )
    big = lodestar.EmbeddingVariable(
        DIM, embeddings_initializer="ones", name="big"
    )
    features = {
        "small": lodestar.Feature(small, combiner="sum"),
        "big": lodestar.Feature(big, combiner="sum"),
        "other": lodestar.Feature(
            lodestar.EmbeddingVariable(1, name="other"), combiner="sum"
        ),
    }
    layer = lodestar.layers.EmbeddingCollection(features)

    def lookup(ids, training):
        bags = tf.RaggedTensor.from_row_lengths(ids, [len(ids)])
        layer(dict.fromkeys(features, bags), training=training)

    lookup(np.arange(BATCH), True)  # creates threads and buffers
    lookup(np.arange(2 * BATCH), False)
    pages = int(open("/proc/self/statm").read().split()[0])
    mapped = pages * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (mapped + ROOM, mapped + ROOM))
    rows = BATCH
    for batch in range(1, 1000):
        try:
            lookup(np.arange(batch * BATCH, (batch + 1) * BATCH), True)
        except tf.errors.ResourceExhaustedError as error:
            assert "out of memory" in error.message, error.message
            break
        rows += BATCH
    else:
        raise AssertionError("memory did not run out")
    assert [int(table.size()) for table in layer.tables] == [rows] * 3
    assert layer.stats()["small"]["ids"] == rows
    print("refused after", rows)


def test_all_tables_of_a_lookup_that_finds_no_memory_are_as_they_were():
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(sys.path),
        "TF_CPP_MIN_LOG_LEVEL": "3",
    }
    done = subprocess.run(
        [sys.executable, __file__],
        capture_output=True,
        text=True,
        env=environment,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert int(done.stdout.split("refused after")[1]) > BATCH


if __name__ == "__main__":
    grow_until_it_is_refused()
