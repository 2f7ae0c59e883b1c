"""Promises of optimizers for tables on any devices.

A module that imports these tests defines the fixture `devices`, the `devices` of
tables.
"""

import threading

import keras
import numpy as np
import pytest
import tensorflow as tf
from own_optimizers import Count

import lodestar

K = keras.optimizers
wrap = lodestar.optimizers.wrap
STEPS = {"gradient_accumulation_steps": 3}
GRAPH = pytest.mark.parametrize("graph", [False, True], ids=["eager", "graph"])


def table(devices=None, ids=range(12), **kwargs):
    """Returns a table with rows of `ids`; all start with the same rows."""
    with tf.device("/CPU:0"):
        t = lodestar.EmbeddingVariable(
            3, devices=devices, **({"seed": (1, 3), "name": "t"} | kwargs)
        )
    if len(ids):
        t.lookup(list(ids), training=True)
    return t


def slices(ids, values=1.0, dtype=tf.float32):
    """Returns a gradient of rows that hold `values`."""
    values = np.broadcast_to(values, (len(ids), 3))
    return tf.IndexedSlices(
        tf.constant(values, dtype),
        tf.constant(ids, tf.int64),
        tf.constant([-1, 3]),
    )


class FourSlots(K.Optimizer):
    """An optimizer with four slots, which start with different numbers."""

    def build(self, variables):
        super().build(variables)
        self.all = self.add_optimizer_variables(
            variables,
            ["a", "b", "c", "d"],
            ["zeros", "ones", "zeros", keras.initializers.Constant(0.25)],
        )

    def update_step(self, gradient, variable, learning_rate):
        place = self._get_variable_index(variable)
        rate = tf.cast(learning_rate, variable.dtype)
        for i, slots in enumerate(self.all):
            slot = slots[place]
            self.assign(slot, slot * 0.5 + gradient * (i + 1))
            self.assign_sub(variable, rate * slot)


def waiting(optimizer):
    """Returns the tables of sums."""
    return [member.sums for member in optimizer._gradient_sums.members]


def train(t, optimizer, gradients, graph):
    """Applies gradients one after another."""

    def step(gradient):
        optimizer.apply([gradient], [t])

    if graph:
        with tf.device("/CPU:0"):
            optimizer.build([t])
        step = tf.function(step, reduce_retracing=True)
    for gradient in gradients:
        step(gradient)


def assert_same(a, b, tolerance=1e-5):
    """Checks that two tables are equal, except for rounding of dense ops."""
    a, b = a._export_all(), b._export_all()
    assert a.keys() == b.keys()
    for name in a:
        one, two = np.asarray(a[name]), np.asarray(b[name])
        if one.dtype.kind == "f" or one.dtype == tf.bfloat16:
            one, two = one.astype(np.float64), two.astype(np.float64)
            np.testing.assert_allclose(
                one, two, tolerance, tolerance, err_msg=name
            )
        else:
            np.testing.assert_array_equal(one, two, err_msg=name)


def test_a_row_that_changes_meanwhile_is_updated_as_it_is_then(devices):
    t = table(devices, embeddings_initializer="zeros")
    inner = Count(0.0)
    optimizer = wrap(inner)
    optimizer.build([t])
    calls = []

    def during():
        calls.append(1)
        if len(calls) == 1:
            t.insert_or_assign([2], [[100.0] * 3])
            t.remove([3])
            t.remove([4])
            t.insert_or_assign([4], [[0.0] * 3])

    inner.during = during
    optimizer.apply([slices([1, 2, 3, 4])], [t])
    np.testing.assert_array_equal(t.find([1, 2, 3, 4])[0][:, 0], [1, 101, 0, 1])
    np.testing.assert_array_equal(
        t.inspect([1, 2, 4]).optimizer_slots["count"], np.ones((3, 3))
    )
    assert t.stats()["gradients_dropped"] == 1
    assert int(t.step) == int(optimizer.iterations) == 1


def test_an_update_that_fails_changes_nothing(devices):
    t = table(devices)
    inner = Count(0.0)
    optimizer = wrap(inner)
    optimizer.build([t])
    before = t.lookup([1, 2, 3]).numpy()

    def during():
        raise ArithmeticError("mine")

    inner.during = during
    with pytest.raises(ArithmeticError, match="mine"):
        optimizer.apply([slices([1, 2])], [t])
    np.testing.assert_array_equal(t.lookup([1, 2, 3]), before)
    assert int(t.step) == int(optimizer.iterations) == 0


@GRAPH
def test_no_update_is_lost(devices, graph):
    # On a CPU enough for concurrent callers to overlap.
    ids = list(range(200 if devices and "GPU" in devices[0] else 4000))
    t = table(devices, ids, embeddings_initializer="zeros")
    optimizer = wrap(Count(0.0))
    with tf.device("/CPU:0"):
        optimizer.build([t])
    gradient = slices(ids)

    def step():
        optimizer.apply([gradient], [t])

    if graph:
        step = tf.function(step)
        step.get_concrete_function()
    # TensorFlow's eager ops get wrong shapes if several threads run them on two
    # CPU devices, as emulated GPUs are; for instance `tf.boolean_mask`.
    callers, rounds = 3 if graph or devices is None else 1, 6

    def caller():
        for _ in range(rounds):
            step()

    threads = [threading.Thread(target=caller) for _ in range(callers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    wanted = np.full((len(ids), 3), float(callers * rounds))
    np.testing.assert_array_equal(t.lookup(ids), wanted)
    np.testing.assert_array_equal(
        t.inspect(ids).optimizer_slots["count"], wanted
    )


def test_an_export_goes_into_another_table(devices):
    one, two = table(devices), table(ids=[])
    train(one, wrap(FourSlots(0.1)), [slices([1, 2])], graph=False)
    two.load_rows(one.export())
    three = table(devices, ids=[])
    three.load_rows(two.export())
    wanted = one.export()
    for t in (two, three):
        got = t.export()
        assert got.optimizer == wanted.optimizer
        np.testing.assert_array_equal(got.ids, wanted.ids)
        np.testing.assert_array_equal(got.rows, wanted.rows)
        assert list(got.optimizer_slots) == ["a", "b", "c", "d"]
        for slot, values in got.optimizer_slots.items():
            np.testing.assert_array_equal(values, wanted.optimizer_slots[slot])


def test_the_optimizer_of_a_table_accumulates_with_the_wrapper(devices):
    rows = []
    for where in (None, devices):
        with tf.device("/CPU:0"):
            layer = lodestar.layers.DynamicEmbedding(
                3, seed=(1, 3), devices=where, optimizer=K.Adagrad(2.0)
            )
            optimizer = wrap(K.SGD(1.0, **STEPS))
        layer.table.lookup([1, 2], training=True)
        other = table(where)
        for i in range(4):
            optimizer.apply(
                [slices([1, 2], i), slices([1])], [layer.table, other]
            )
        rows.append([layer.table, other])
    for cpu, gpu in zip(*rows, strict=True):
        assert_same(cpu, gpu)


@pytest.mark.parametrize("way", ["checkpoint", "own_variables"])
def test_waiting_gradients_are_saved(devices, way, tmp_path):
    def make(devices):
        t = table(devices)
        with tf.device("/CPU:0"):
            optimizer = wrap(K.Adagrad(1.0, **STEPS))
            optimizer.build([t])
        return t, optimizer

    one, first = make(devices)
    for ids in ([1], [1, 2]):
        first.apply([slices(ids)], [one])
    # A restart on the same devices, and one on the CPU.
    for where in (devices, None):
        two, second = make(where)
        if way == "checkpoint":
            saved = tf.train.Checkpoint(table=one, optimizer=first)
            path = saved.save(str(tmp_path / "c"))
            restored = tf.train.Checkpoint(table=two, optimizer=second)
            restored.restore(path).assert_consumed()
        else:
            store = {}
            first.save_own_variables(store)
            second.load_own_variables(store)
        assert_same(*waiting(first), *waiting(second))
        second.apply([slices([3])], [two])
        assert int(second.iterations) == 1
        assert waiting(second)[0].size() == 0
        np.testing.assert_array_equal(
            waiting(first)[0].lookup([1, 2]), [[2.0] * 3, [1.0] * 3]
        )
    first.apply([slices([3])], [one])
    np.testing.assert_allclose(
        one.lookup([1, 2, 3]), two.lookup([1, 2, 3]), 1e-6
    )


@GRAPH
def test_a_refused_gradient_leaves_those_that_wait(devices, graph):
    t = table(devices)
    with tf.device("/CPU:0"):
        optimizer = wrap(K.SGD(1.0, **STEPS))
    train(t, optimizer, [slices([1])], graph)
    for refused, message in (
        ([np.inf], "the gradient of id 1 is not finite"),
        ([3e38], "the accumulated gradients of id 1 exceed half"),
    ):
        with pytest.raises(tf.errors.InvalidArgumentError, match=message):
            train(t, optimizer, [slices([1], refused)], graph)
        np.testing.assert_array_equal(
            waiting(optimizer)[0].lookup([1]), np.ones((1, 3))
        )
    before = t.lookup([1]).numpy()
    train(t, optimizer, [slices([1])] * 2, graph)
    np.testing.assert_allclose(t.lookup([1]), before - 1.0, 1e-6)
