"""Compares unfused optimizers and gradient accumulation on GPUs with the CPU."""

import emulated

emulated.load()

import threading  # noqa: E402

import keras  # noqa: E402
import numpy as np  # noqa: E402
import pytest  # noqa: E402
import tensorflow as tf  # noqa: E402
from gpu_tables import DEVICES, GRAPH  # noqa: E402

import lodestar  # noqa: E402
from lodestar.optimizers.update_attempt import UpdateLogs  # noqa: E402

K = keras.optimizers
wrap = lodestar.optimizers.wrap
STEPS = {"gradient_accumulation_steps": 3}


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


def some_gradient(rng):
    """Returns a gradient of ids that repeat and of ids without a row."""
    ids = rng.integers(0, 16, rng.integers(1, 30))
    return slices(ids, rng.normal(size=(len(ids), 3)))


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


def unfused(cls):
    """Returns a subclass, which has no fused rule."""

    class Unfused(cls):
        def update_step(self, *args):
            super().update_step(*args)

    return Unfused


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


class Count(K.Optimizer):
    """Adds 1 to a row and to its slot in each update, and calls `during`."""

    during = None

    def build(self, variables):
        super().build(variables)
        self.counts = self.add_optimizer_variables(variables, "count")

    def update_step(self, gradient, variable, learning_rate):
        if self.during is not None:
            self.during()
        place = self._get_variable_index(variable)
        self.assign_add(variable, tf.ones_like(gradient))
        self.assign_add(self.counts[place], tf.ones_like(gradient))


UNFUSED = {
    "sgd": lambda: unfused(K.SGD)(0.1),
    "rmsprop": lambda: unfused(K.RMSprop)(0.1, momentum=0.5, centered=True),
    "lion": lambda: unfused(K.Lion)(0.01),
    "adadelta": lambda: unfused(K.Adadelta)(0.5),
    "adamw": lambda: unfused(K.AdamW)(0.1, weight_decay=0.1),
    "ftrl": lambda: unfused(K.Ftrl)(0.1, learning_rate_power=-0.6),
    "clipped": lambda: unfused(K.Adagrad)(0.1, global_clipnorm=1.0),
    "own": lambda: FourSlots(0.1),
}


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


@DEVICES
@GRAPH
@pytest.mark.parametrize("name", UNFUSED)
def test_unfused_optimizers(devices, rng, name, graph):
    gradients = [some_gradient(rng) for _ in range(4)]
    tables = table(), table(devices)
    for t in tables:
        train(t, wrap(UNFUSED[name]()), gradients, graph)
        # New rows have slots.
        t.lookup([100, 200], training=True)
    assert_same(*tables)
    cpu, gpu = tables
    for event in ("gradients_dropped", "nonfinite_gradients"):
        assert cpu.stats()[event] == gpu.stats()[event]
    assert int(cpu.step) == int(gpu.step) == 4


@DEVICES
@pytest.mark.parametrize("dtype", [tf.float16, tf.bfloat16, tf.float32])
def test_unfused_optimizers_of_other_dtypes(devices, rng, dtype):
    gradients = [some_gradient(rng) for _ in range(3)]
    tables = table(dtype=dtype), table(devices, dtype=dtype)
    for t in tables:
        train(t, wrap(FourSlots(0.1)), gradients, graph=True)
    assert_same(*tables, tolerance=1e-2 if dtype.size == 2 else 1e-5)


def test_unfused_optimizers_train_shared_rows(rng):
    gradients = [some_gradient(rng) for _ in range(4)]
    options = {"default_row": lodestar.SharedRows(2), "ids": [1, 3, 5]}
    tables = table(**options), table(["/GPU:0"], **options)
    for t in tables:
        train(t, wrap(UNFUSED["rmsprop"]()), gradients, graph=False)
    assert_same(*tables)


@DEVICES
@pytest.mark.parametrize("nonfinite", ["raise", "skip", "pass"])
@GRAPH
def test_gradients_that_are_not_finite(devices, nonfinite, graph):
    gradient = slices([1, 2, 2, 3], [[1.0], [np.inf], [-np.inf], [2.0]])
    tables = table(), table(devices)
    for t in tables:
        optimizer = wrap(UNFUSED["rmsprop"](), nonfinite=nonfinite)
        train(t, optimizer, [slices([1])], graph)
        before = t.lookup([1, 2, 3]).numpy()
        if nonfinite == "raise":
            with pytest.raises(
                tf.errors.InvalidArgumentError,
                match="the gradient of id 2 is not finite",
            ):
                train(t, optimizer, [gradient], graph)
            np.testing.assert_array_equal(t.lookup([1, 2, 3]), before)
            assert int(t.step) == 1
        else:
            train(t, optimizer, [gradient], graph)
            after = t.lookup([1, 2, 3]).numpy()
            skipped = nonfinite == "skip"
            assert np.isnan(after[1]).all() != skipped
            assert (after[1] == before[1]).all() == skipped
            assert t.stats()["nonfinite_gradients"] == int(skipped)
    assert_same(*tables)


@DEVICES
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


@DEVICES
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


@DEVICES
def test_no_update_is_lost(devices):
    ids = list(range(200))
    t = table(devices, ids, embeddings_initializer="zeros")
    optimizer = wrap(Count(0.0))
    with tf.device("/CPU:0"):
        optimizer.build([t])
    gradient = slices(ids)

    @tf.function
    def step():
        optimizer.apply([gradient], [t])

    step.get_concrete_function()
    callers, rounds = 3, 6

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


@DEVICES
def test_slots_of_another_optimizer_are_replaced(devices, rng):
    tables = table(), table(devices)
    for t in tables:
        train(t, wrap(FourSlots(0.1)), [slices([1, 2])], graph=False)
        with pytest.warns(UserWarning, match="fresh slots"):
            train(t, wrap(K.Adam(0.1)), [slices([1, 2])], graph=False)
        with pytest.warns(UserWarning, match="fresh slots"):
            train(t, wrap(Count(0.0)), [slices([2, 3])], graph=False)
    assert_same(*tables)


@DEVICES
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


# Gradient accumulation.

ACCUMULATED = {
    "sgd": lambda: wrap(K.SGD(0.1, **STEPS)),
    "adam": lambda: wrap(K.Adam(0.1, **STEPS)),
    "nadam": lambda: wrap(K.Nadam(0.1, weight_decay=0.1, **STEPS)),
    "loss_scale": lambda: wrap(K.SGD(0.1, loss_scale_factor=64.0, **STEPS)),
    "own_class": lambda: lodestar.optimizers.Adagrad(0.1, **STEPS),
    "unfused": lambda: wrap(unfused(K.RMSprop)(0.1, momentum=0.5, **STEPS)),
}


def waiting(optimizer):
    """Returns the tables of sums."""
    return [member.sums for member in optimizer._gradient_sums.members]


@DEVICES
@GRAPH
@pytest.mark.parametrize("name", ACCUMULATED)
def test_gradients_are_accumulated(devices, rng, name, graph):
    # Two updates, and one gradient that waits.
    gradients = [some_gradient(rng) for _ in range(7)]
    tables, sums = (table(), table(devices)), []
    for t in tables:
        with tf.device("/CPU:0"):
            optimizer = ACCUMULATED[name]()
        train(t, optimizer, gradients[:2], graph)
        assert int(t.step) == int(optimizer.iterations) == 0
        train(t, optimizer, gradients[2:], graph)
        assert int(t.step) == int(optimizer.iterations) == 2
        sums += waiting(optimizer)
    assert_same(*tables)
    assert_same(*sums)
    assert sums[1].devices == tables[1].devices
    assert sums[1].size() == len(set(gradients[6].indices.numpy()))


@DEVICES
@pytest.mark.parametrize("dtype", [tf.float16, tf.bfloat16])
def test_gradients_of_other_dtypes_are_accumulated(devices, rng, dtype):
    gradients = [some_gradient(rng) for _ in range(7)]
    tables = table(dtype=dtype), table(devices, dtype=dtype)
    for t in tables:
        with tf.device("/CPU:0"):
            optimizer = ACCUMULATED["adam"]()
        train(t, optimizer, gradients, graph=True)
    assert_same(*tables, tolerance=1e-2 if dtype.size == 2 else 1e-5)


@DEVICES
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


@DEVICES
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


@DEVICES
def test_snapshots_of_waiting_gradients(devices, tmp_path):
    t = table(devices)
    with tf.device("/CPU:0"):
        optimizer = wrap(unfused(K.Adagrad)(1.0, **STEPS))
        optimizer.build([t])
    tables = [t, *waiting(optimizer)]
    path = str(tmp_path / "snapshot")
    for delta in (False, True):
        for ids in ([1], [1, 2], [2, 3], [3]):
            optimizer.apply([slices(ids)], [t])
        lodestar.snapshot.save(tables, path, delta=delta)
        with tf.device("/CPU:0"):
            restored = [
                lodestar.EmbeddingVariable(3, name=kept.name) for kept in tables
            ]
        lodestar.snapshot.restore(restored, path)
        for kept, copied in zip(tables, restored, strict=True):
            assert_same(kept, copied)


@DEVICES
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


# Steps on several devices.


@DEVICES
@GRAPH
def test_a_step_on_a_cpu_and_gpus_is_atomic(devices, graph):
    tables = table(), table(devices), table(devices, name="other")
    with tf.device("/CPU:0"):
        optimizer = wrap(UNFUSED["adamw"]())
        optimizer.build(tables)

    def step(bad):
        optimizer.apply([slices([1]), slices([1], bad), slices([1])], tables)

    if graph:
        step = tf.function(step)
    before = [t.lookup([1]).numpy() for t in tables]
    with pytest.raises(tf.errors.InvalidArgumentError, match="not finite"):
        step([np.nan])
    for t, rows in zip(tables, before, strict=True):
        np.testing.assert_array_equal(t.lookup([1]), rows)
        assert int(t.step) == 0
    step([1.0])
    for t, rows in zip(tables, before, strict=True):
        assert (t.lookup([1]).numpy() != rows).all()
        assert int(t.step) == 1


@DEVICES
def test_a_step_that_may_run_again_writes_tables_on_a_gpu_once(devices):
    logs = UpdateLogs(["/CPU:0"])
    cpu = table(["/CPU:0"], embeddings_initializer="zeros")
    gpu = table(devices, embeddings_initializer="zeros", name="other")
    with tf.device("/CPU:0"):
        optimizer = wrap(K.SGD(1.0))
        optimizer.build([cpu, gpu])

    def step():
        optimizer.apply([slices([1]), slices([1])], [cpu, gpu])
        return tf.constant(1)

    @tf.function(autograph=False)
    def once(update):
        attempt = logs.begin(update, tf.constant(0, tf.int64))
        return attempt.once(step, lambda: tf.constant(0))

    for ran in (1, 0):
        assert int(once(tf.constant(0, tf.int64))) == ran
        for t in (cpu, gpu):
            np.testing.assert_array_equal(t.lookup([1]), -np.ones((1, 3)))
