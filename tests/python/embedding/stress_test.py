"""Threads run tf.functions on one table concurrently.

LODESTAR_STRESS_SECONDS sets the duration. Like
tests/core/embedding/embedding_store_stress_test.cc, it looks for torn rows and
lost updates, here through TensorFlow's executor and resources.
"""

import contextlib
import gc
import os
import threading
import time

import numpy as np
import pytest
import tensorflow as tf
from handles import weak

import lodestar
from lodestar._library import gen_ops

SECONDS = float(os.environ.get("LODESTAR_STRESS_SECONDS", "4")) / 3
DIM = 6
# Ids below COUNTED are only counted. The others are assigned as well; then each
# column differs from the first by its index.
COUNTED, IDS = 600, 900


def checksums(ids):
    columns = np.arange(DIM) * 17
    checks = (ids[:, None] * 31 + columns) % 1009 - (ids[:, None] * 31) % 1009
    return np.where(ids[:, None] < COUNTED, 0, checks).astype(np.float32)


def assert_whole(ids, rows):
    there = rows.any(axis=1)
    off = rows[there] - rows[there, :1]
    np.testing.assert_array_equal(off, checksums(ids[there]))


def some_ids(rng, first, last, count):
    return np.unique(rng.integers(first, last, count))


def run_until_time_is_up(roles):
    """Runs each role in its own thread until one fails or the time is up."""
    end = time.monotonic() + SECONDS
    failures = []

    def body(seed, role):
        rng = np.random.default_rng(seed)
        try:
            while time.monotonic() < end and not failures:
                role(rng)
        except BaseException as error:  # noqa: BLE001 (reported below)
            failures.append(error)

    threads = [
        threading.Thread(target=body, args=arguments)
        for arguments in enumerate(roles)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]


def counter(table, optimizer, numbers, slot_inits):
    """Returns a tf.function that adds one to each row, or to its slot."""
    ids_spec = tf.TensorSpec([None], tf.int64)

    @tf.function(input_signature=[ids_spec])
    def count(ids):
        gen_ops.lodestar_embedding_apply(
            table.resource_handle,
            ids,
            -tf.ones([tf.size(ids), DIM]),
            tf.constant(numbers, tf.float32),
            tf.constant(-1, tf.int64),
            optimizer=optimizer,
            slot_inits=slot_inits,
        )

    return count


@pytest.mark.parametrize("cap", [None, 400])
def test_rows_are_whole(cap):
    table = lodestar.EmbeddingVariable(
        DIM,
        embeddings_initializer="zeros",
        name="whole",
        eviction=cap and lodestar.MaxRows(cap),
    )
    # After n updates of zeros the slot is n and the value n (n + 1) / 2.
    count = counter(table, "sgd_momentum", [1.0, 0.0, 1.0, 0.0], [0.0])
    ids_spec = tf.TensorSpec([None], tf.int64)
    see = tf.function(
        lambda ids: table.lookup(ids, training=True), input_signature=[ids_spec]
    )
    find = tf.function(table.find, input_signature=[ids_spec])
    assign = tf.function(
        table.insert_or_assign,
        input_signature=[ids_spec, tf.TensorSpec([None, DIM])],
    )
    remove = tf.function(table.remove, input_signature=[ids_spec])
    kept = [None]

    def read(rng):
        ids = some_ids(rng, 0, IDS, 300)
        assert_whole(ids, find(ids)[0].numpy())
        assert cap is None or int(table.size()) <= cap

    def train(rng):
        ids = some_ids(rng, 0, COUNTED, 150)
        assert_whole(ids, see(ids).numpy())
        count(ids)
        count(some_ids(rng, COUNTED, IDS, 80))

    def write(rng):
        ids = some_ids(rng, COUNTED, IDS, 80)
        first = rng.integers(1, 100000, len(ids))[:, None]
        assign(ids, tf.cast(first, tf.float32) + checksums(ids))
        remove(some_ids(rng, 0, IDS, 80))
        table.evict([lodestar.MaxAge(20), lodestar.MinNorm(2.0)])

    def save(rng):
        rows = table.export()
        ids = rows.ids.numpy()
        assert (np.diff(ids) > 0).all()
        assert_whole(ids, rows.rows.numpy())
        if rows.optimizer:
            n = rows.optimizer_slots["momentum"].numpy()
            assert (n == n[:, :1]).all()
            counted = ids < COUNTED
            np.testing.assert_array_equal(
                rows.rows.numpy()[counted], (n * (n + 1) / 2)[counted]
            )
            remove(ids[n[:, 0] > 2000])  # while floats are exact
        match rng.integers(6):
            case 0:
                table.clear()
            # slots are assigned with values; otherwise a merge
            case 1 if rows.optimizer:
                kept[0] = rows  # would keep the existing ones
            case 2 if kept[0] is not None:
                table.load_rows(kept[0])
            case 3 if kept[0] is not None:
                # Together they may exceed the maximum.
                too_many = tf.errors.FailedPreconditionError
                with contextlib.suppress(too_many if cap else ()):
                    table.load_rows(kept[0], "merge")

    def compact(rng):
        assert int(table.compact()) >= 0

    run_until_time_is_up([read, train, train, write, save, compact])
    assert len(table.export().ids) == int(table.size())


def test_no_update_is_lost():
    table = lodestar.EmbeddingVariable(
        DIM, embeddings_initializer="zeros", name="sums"
    )
    count = counter(table, "sgd", [1.0, 0.0], [])
    ids = np.arange(50) * 4096
    table.lookup(ids, training=True)
    sent = [0, 0, 0]

    def counting(caller):
        def role(rng):
            count(rng.permutation(ids))
            sent[caller] += 1

        return role

    def come_and_go(rng):
        others = rng.integers(1, 1 << 40, 1000) * 4096 + 1
        table.lookup(others, training=True)
        table.remove(others)

    def compact(rng):
        table.compact()

    run_until_time_is_up(
        [*(counting(i) for i in range(3)), come_and_go, compact]
    )
    assert sum(sent) > 0
    wanted = np.full([50, DIM], sum(sent))
    np.testing.assert_array_equal(table.find(ids)[0], wanted)
    assert int(table.step) == sum(sent)


def destroy_while_in_use(threads):
    table = lodestar.EmbeddingVariable(DIM, name="gone")
    handle, hook = weak(table.resource_handle), tf.zeros([0, DIM])
    ids = tf.range(20000, dtype=tf.int64)
    started = threading.Barrier(threads + 1)
    not_found = []

    def use():
        started.wait()
        try:
            while True:  # until the table is deleted
                rows, _, _ = gen_ops.lodestar_embedding_find_or_insert(
                    handle, hook, ids, tf.zeros([0])
                )
                assert rows.shape == (20000, DIM)
        except tf.errors.NotFoundError as error:
            not_found.append(error)

    users = [threading.Thread(target=use) for _ in range(threads)]
    for user in users:
        user.start()
    started.wait()
    del table
    for user in users:
        user.join()
    return len(not_found)


def test_a_table_lives_as_long_as_an_op_uses_it():
    # Each thread finishes its op; its next op reports that the table is
    # deleted.
    for _ in range(5):
        assert destroy_while_in_use(threads=3) == 3


def test_no_thread_outlives_a_table():
    def count_threads():
        return len(os.listdir("/proc/self/task"))

    warm = lodestar.EmbeddingVariable(DIM, name="warm")
    warm.lookup(tf.range(50000, dtype=tf.int64), training=True)
    before = count_threads()
    for _ in range(10):
        table = lodestar.EmbeddingVariable(DIM, name="threads")
        table.lookup(tf.range(50000, dtype=tf.int64), training=True)
        table.export()
    del table
    gc.collect()
    assert count_threads() <= before


def test_rows_of_a_failed_step_stay():
    table = lodestar.EmbeddingVariable(DIM, name="failing")

    @tf.function
    def step(ids):
        rows = table.lookup(ids, training=True)
        with tf.control_dependencies([rows]):
            tf.debugging.Assert(False, ["the step fails"])

    with pytest.raises(tf.errors.InvalidArgumentError, match="the step fails"):
        step(tf.constant([1, 2], tf.int64))
    assert int(table.size()) == 2
