"""EmbeddingVariable.compact releases memory and changes nothing else."""

import resource

import numpy as np
import pytest
import tensorflow as tf

import lodestar

ROWS = 500_000


def resident_bytes():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * resource.getpagesize()


def content(table):
    rows = table.export()
    return [
        rows.ids,
        rows.rows,
        *rows.optimizer_slots.values(),
        rows.frequencies,
        rows.last_seen,
    ]


def apply(table, ids):
    lodestar.optimizers.Adagrad().apply(
        [
            tf.IndexedSlices(
                tf.ones([len(ids), table.output_dim]), tf.constant(ids)
            )
        ],
        [table],
    )


def test_memory_of_removed_rows_goes_back():
    table = lodestar.EmbeddingVariable(8, name="compacted")
    for first in range(0, ROWS, 100_000):
        table.lookup(np.arange(first, first + 100_000), training=True)
    apply(table, np.arange(0, ROWS, 7))
    table.remove(np.flatnonzero(np.arange(ROWS) % 10))
    before = content(table)
    told, resident = table.stats()["bytes"], resident_bytes()
    returned = int(table.compact())
    shown = resident - resident_bytes()
    assert returned > 0.8 * told
    assert table.stats()["bytes"] == told - returned
    assert shown > 0.8 * returned
    for was, now in zip(before, content(table), strict=True):
        np.testing.assert_array_equal(was, now)
    assert int(table.compact()) == 0
    # Removed ids return as new rows.
    table.lookup(np.arange(0, ROWS // 10), training=True)
    fresh = lodestar.EmbeddingVariable(8, name="compacted")
    np.testing.assert_array_equal(
        table.find([1, 2, 3])[0], fresh.lookup([1, 2, 3], training=True)
    )


@pytest.mark.parametrize("graph", [False, True])
def test_the_result_is_a_scalar(graph):
    table = lodestar.EmbeddingVariable(2)
    compact = tf.function(table.compact) if graph else table.compact
    assert compact().shape == () and compact().dtype == tf.int64
    assert int(compact()) == 0
    table.lookup(np.arange(100_000), training=True)
    table.clear()
    assert int(compact()) > 100_000 * 8
    assert int(table.size()) == 0


def test_order_and_waiting_ids_stay():
    def make():
        return lodestar.EmbeddingVariable(
            2,
            name="ordered",
            admission=lodestar.MinCount(2),
            eviction=lodestar.MaxRows(3000, "lru"),
        )

    plain, compacted = make(), make()
    rng = np.random.default_rng(1)
    returned = 0
    for step in range(60):
        ids = rng.integers(0, 10_000, 1500)
        for table in (plain, compacted):
            table.set_step(step)
            table.lookup(ids, training=True)
            if step == 40:
                table.evict(lodestar.MaxRows(200))
        if step % 10 == 0:
            returned += int(compacted.compact())
    assert returned > 0
    for a, b in zip(content(plain), content(compacted), strict=True):
        np.testing.assert_array_equal(a, b)
    a, b = plain.stats(), compacted.stats()
    for name in ("rows", "pending", "evicted", "refused", "admitted"):
        assert a[name] == b[name], name
