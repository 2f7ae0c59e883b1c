"""Tests of updates that use the plan of the lookup before them.

Each compares with an update by a copy of the ids, which has no plan.
"""

import numpy as np
import pytest
import tensorflow as tf

import lodestar

IDS = tf.constant([5, 7, 5, 9, 2**40, -3, 7, 5], tf.int64)


def make():
    table = lodestar.EmbeddingVariable(4, seed=(1, 2), name="plan")
    optimizer = lodestar.optimizers.Adagrad(0.5)
    optimizer.build([table])
    return table, optimizer


def gradient_of(table, ids=IDS):
    with tf.GradientTape() as tape:
        rows = table.lookup(ids, training=True)
        loss = tf.reduce_sum(rows * rows)
    return tape.gradient(loss, table)


def copied(slices):
    """Returns the slices with a copy of their ids."""
    return tf.IndexedSlices(
        slices.values, tf.constant(slices.indices.numpy()), slices.dense_shape
    )


def content(table):
    exported = table.export()
    order = np.argsort(exported.ids)
    return [np.asarray(exported.ids)[order], np.asarray(exported.rows)[order]]


def assert_same(first, second):
    for got, wanted in zip(content(first), content(second), strict=True):
        np.testing.assert_array_equal(got, wanted)
    stats = [t.stats() for t in (first, second)]
    assert stats[0]["gradients_dropped"] == stats[1]["gradients_dropped"]


def in_function(table):
    return tf.function(lambda: gradient_of(table))()


def of_inner_function(table):
    inner = tf.function(lambda ids: table.lookup(ids, training=True))

    @tf.function
    def outer():
        with tf.GradientTape() as tape:
            rows = inner(IDS)
            loss = tf.reduce_sum(rows * rows)
        return tape.gradient(loss, table)

    return outer()


def of_cond(table):
    @tf.function
    def step(yes):
        with tf.GradientTape() as tape:
            rows = tf.cond(
                yes,
                lambda: table.lookup(IDS, training=True),
                lambda: tf.zeros([8, 4]),
            )
            loss = tf.reduce_sum(rows * rows)
        return tape.gradient(loss, table)

    return step(tf.constant(True))


def reshaped(table):
    slices = gradient_of(table)
    ids = tf.reshape(tf.reshape(slices.indices, [-1, 1]), [-1])
    return tf.IndexedSlices(slices.values, ids, slices.dense_shape)


def a_part(table):
    slices = gradient_of(table)
    return tf.IndexedSlices(
        slices.values[1:], slices.indices[1:], slices.dense_shape
    )


def a_part_of_the_same_memory(table):
    # TensorFlow copies a slice unless it begins at a multiple of 64 bytes.
    slices = gradient_of(table, tf.range(40, dtype=tf.int64))
    return tf.IndexedSlices(
        slices.values[16:], slices.indices[16:], slices.dense_shape
    )


def twice(table):
    slices = gradient_of(table)
    return tf.IndexedSlices(
        tf.concat([slices.values, slices.values], 0),
        tf.concat([slices.indices, slices.indices], 0),
        slices.dense_shape,
    )


@pytest.mark.parametrize(
    "gradient",
    [
        gradient_of,
        in_function,
        of_inner_function,
        of_cond,
        reshaped,
        a_part,
        a_part_of_the_same_memory,
        twice,
    ],
)
def test_an_update_equals_that_of_a_copy_of_the_ids(gradient):
    (planned, first), (plain, second) = make(), make()
    for _ in range(3):
        first.apply([gradient(planned)], [planned])
        second.apply([copied(gradient(plain))], [plain])
    assert_same(planned, plain)


def remove(table):
    table.remove([7, 9])


def remove_and_add(table):
    table.remove([7, 9])
    table.insert_or_assign([9], np.full([1, 4], 3, np.float32))


def remove_and_compact(table):
    table.remove([5])
    table.compact()


def clear(table):
    table.clear()


def replace(table):
    """Restores a checkpoint, which replaces the rows of the table."""
    table.load_rows(table.export())


@pytest.mark.parametrize(
    "disturb", [remove, remove_and_add, remove_and_compact, clear, replace]
)
def test_a_plan_may_be_stale(disturb):
    (planned, first), (plain, second) = make(), make()
    for table, optimizer, of in (
        (planned, first, lambda slices: slices),
        (plain, second, copied),
    ):
        optimizer.apply([of(gradient_of(table))], [table])
        slices = gradient_of(table)
        disturb(table)
        optimizer.apply([of(slices)], [table])
    assert_same(planned, plain)


def test_a_plan_of_another_table_is_not_used():
    (planned, first), (plain, second), (other, _) = make(), make(), make()
    first.apply([gradient_of(planned)], [planned])
    second.apply([gradient_of(plain)], [plain])
    slices = gradient_of(other)
    first.apply([slices], [planned])
    second.apply([copied(slices)], [plain])
    assert_same(planned, plain)


def test_no_op_writes_into_the_memory_of_the_ids():
    table, optimizer = make()

    @tf.function
    def step():
        slices = gradient_of(table)
        # The last use of the ids: TensorFlow may reuse memory that it owns.
        return tf.add(slices.indices, 1), tf.negative(slices.indices)

    more, negative = step()
    np.testing.assert_array_equal(more - 1, -negative)

    @tf.function
    def train():
        slices = gradient_of(table)
        ids = tf.add(tf.identity(slices.indices), 0)
        changed = tf.IndexedSlices(slices.values, ids, slices.dense_shape)
        optimizer.apply([changed], [table])

    train()
    assert table.stats()["gradients_dropped"] == 0


def test_an_empty_batch_has_a_plan():
    table, optimizer = make()
    optimizer.apply([gradient_of(table, IDS[:0])], [table])
    assert int(table.size()) == 0
