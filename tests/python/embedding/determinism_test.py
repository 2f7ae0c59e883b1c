"""A table's content does not depend on threads, shards or the process.

TensorFlow fixes the number of intra-op threads at startup, so each number has
its own process. Each process runs the same training on tables with different
numbers of shards, and prints a hash of their content.
"""

import hashlib
import json
import os
import subprocess
import sys
import warnings

import keras
import numpy as np
import pytest
import tensorflow as tf

import lodestar

SHARDS = [1, 7]
DIM = 9


def hash_of(table):
    digest = hashlib.sha256()
    for name, tensor in table._export_all().items():
        value = np.asarray(tensor)
        digest.update(name.encode())
        digest.update(
            repr(value.tolist()).encode()
            if value.dtype == object
            else value.tobytes()
        )
    return digest.hexdigest()


POLICIES = [
    {},
    {"admission": lodestar.MinCount(2), "eviction": lodestar.MaxRows(1500)},
]


def train(num_shards, policies):
    """Runs seeded lookups, bags, gradients, removals and assignments."""
    table = lodestar.EmbeddingVariable(
        DIM,
        embeddings_initializer="normal",
        num_shards=num_shards,
        name="user",
        **policies,
    )
    optimizer = lodestar.optimizers.Adam(0.01)
    optimizer.build([table])

    @tf.function(
        input_signature=[
            tf.TensorSpec([None], tf.int64),
            tf.RaggedTensorSpec([None, None], tf.int64),
        ]
    )
    def step(ids, bags):
        with tf.GradientTape() as tape:
            rows = table.lookup(ids, training=True)
            pooled = table.lookup(bags, combiner="mean", training=True)
            loss = tf.reduce_sum(tf.sin(rows)) + tf.reduce_sum(pooled**2)
        gradients = tape.gradient(loss, [table])
        optimizer.apply(gradients, [table])

    rng = np.random.default_rng(1)
    for _ in range(3):
        ids = rng.zipf(1.3, 10000) % 5000 * 4096 - 2**62
        bags = tf.RaggedTensor.from_row_lengths(
            rng.integers(-3000, 3000, 8000), [2] * 4000
        )
        step(ids, bags)
        table.remove(ids[:50])
        table.insert_or_assign(ids[:20], rng.normal(size=[20, DIM]))
    return table


def print_hashes(threads):
    """Runs in the processes of the test."""
    tf.config.threading.set_intra_op_parallelism_threads(threads)
    first = lodestar.EmbeddingVariable(3, name="ads", default_row="initial")
    print(
        json.dumps(
            {
                "hashes": [
                    [hash_of(train(shards, policies)) for shards in SHARDS]
                    for policies in POLICIES
                ],
                "first": first.lookup([-1, 0, 2**62]).numpy().tolist(),
            }
        )
    )


@pytest.fixture(scope="module")
def processes():
    running = [
        subprocess.Popen(
            [sys.executable, __file__, str(threads)],
            stdout=subprocess.PIPE,
            text=True,
            env={
                **os.environ,
                "PYTHONPATH": os.pathsep.join(sys.path),
                "TF_CPP_MIN_LOG_LEVEL": "3",
            },
        )
        for threads in (1, 8)
    ]
    outputs = [process.communicate()[0] for process in running]
    assert [process.returncode for process in running] == [0, 0]
    return [json.loads(output.splitlines()[-1]) for output in outputs]


@pytest.mark.parametrize("policies", range(len(POLICIES)))
def test_threads_and_shards_do_not_show(processes, policies):
    hashes = [h for process in processes for h in process["hashes"][policies]]
    assert len(hashes) == 2 * len(SHARDS)
    assert len(set(hashes)) == 1


def test_the_hash_sees_a_single_bit():
    tables = [lodestar.EmbeddingVariable(2, name="bit") for _ in range(2)]
    for table in tables:
        table.lookup([1, 2], training=True)
    assert hash_of(tables[0]) == hash_of(tables[1])
    rows = tables[0].find([2])[0]
    tables[0].insert_or_assign([2], np.nextafter(rows, np.float32(1)))
    assert hash_of(tables[0]) != hash_of(tables[1])


def test_equal_names_start_alike_in_two_processes(processes):
    here = lodestar.EmbeddingVariable(3, name="ads", default_row="initial")
    wanted = here.lookup([-1, 0, 2**62]).numpy().tolist()
    assert [process["first"] for process in processes] == [wanted, wanted]


def test_first_values_are_frozen():
    # The name's hash decides the rows: changing it would change every new
    # table.
    table = lodestar.EmbeddingVariable(2, name="ads", seed=5)
    got = table.lookup([-(2**63), -1, 0, 2**63 - 1], training=True)
    frozen = [
        [0x3BCDD830, 0x3C8692C2],
        [0xBCFFF3A0, 0xBBAE8010],
        [0xBD30C8CD, 0x3BE50E70],
        [0x3CFB2226, 0xBB0E33E0],
    ]
    np.testing.assert_array_equal(got.numpy().view(np.uint32), frozen)


CELL = """
keras.utils.set_random_seed(1)
bare = lodestar.EmbeddingVariable(8)
ids = keras.Input((2,), dtype="int64")
first, second = (lodestar.layers.DynamicEmbedding(8) for _ in range(2))
named = lodestar.layers.DynamicEmbedding(8, name="words")
seeded = lodestar.layers.DynamicEmbedding(8, seed=3)
model = keras.Model(ids, [x(ids) for x in (first, second, named, seeded)])
tables = [bare, *(x.table for x in (first, second, named, seeded))]
rows = [t.lookup(range(5000), training=True).numpy() for t in tables]
"""


def test_a_cell_that_is_run_again_gives_the_same_rows():
    runs = [{"keras": keras, "lodestar": lodestar} for _ in range(3)]
    for run in runs:
        exec(CELL, run)
    for rows in (run["rows"] for run in runs[1:]):
        np.testing.assert_array_equal(rows, runs[0]["rows"])
    # Tables of one model have different names, and are uncorrelated.
    assert len({table.name for table in runs[1]["tables"]}) == 5
    correlations = np.corrcoef([np.ravel(rows) for rows in runs[0]["rows"]])
    assert np.abs(correlations - np.eye(5)).max() < 0.025


def test_tables_without_names_differ_where_no_seed_is_set():
    one, other = (
        lodestar.layers.DynamicEmbedding(8).table.get_config()["seed"]
        for _ in range(2)
    )
    assert one != other


def test_a_copy_from_a_config_has_equal_initial_values():
    ids = np.arange(9)
    layer = lodestar.layers.DynamicEmbedding(4)
    copy = lodestar.layers.DynamicEmbedding.from_config(layer.get_config())
    np.testing.assert_array_equal(
        layer(ids, training=True), copy(ids, training=True)
    )
    table = lodestar.EmbeddingVariable(4)
    copy = lodestar.EmbeddingVariable.from_config(table.get_config())
    np.testing.assert_array_equal(
        table.lookup(ids, training=True), copy.lookup(ids, training=True)
    )


@pytest.mark.parametrize("equal", [True, False])
def test_equal_initial_values_cause_a_warning(equal):
    seeds = (3, 3) if equal else (3, 4)
    layers = [lodestar.layers.DynamicEmbedding(2, seed=s) for s in seeds]
    layers += [
        lodestar.layers.DynamicEmbedding(
            2, seed=3, embeddings_initializer="zeros"
        )
        for _ in range(2)
    ]
    optimizer = lodestar.optimizers.SGD()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        optimizer.build([layer.table for layer in layers])
    messages = [
        str(w.message)
        for w in caught
        if "same initial values" in str(w.message)
    ]
    assert len(messages) == equal, messages
    for message in messages:
        assert all(f"'{x.table.name}'" in message for x in layers[:2])
        assert "seed=(3, 0). Give each its own name or seed" in message


if __name__ == "__main__":
    print_hashes(int(sys.argv[1]))
