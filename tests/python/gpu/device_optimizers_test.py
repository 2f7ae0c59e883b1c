"""Compares unfused optimizers and gradient accumulation on GPUs with the CPU."""

import emulated

emulated.load()

import keras  # noqa: E402
import numpy as np  # noqa: E402
import pytest  # noqa: E402
import tensorflow as tf  # noqa: E402
from gpu_tables import GPUS, GRAPH  # noqa: E402
from optimizer_cases import (  # noqa: E402, F401
    STEPS,
    FourSlots,
    assert_same,
    slices,
    table,
    test_a_refused_gradient_leaves_those_that_wait,
    test_a_row_that_changes_meanwhile_is_updated_as_it_is_then,
    test_an_export_goes_into_another_table,
    test_an_update_that_fails_changes_nothing,
    test_no_update_is_lost,
    test_the_optimizer_of_a_table_accumulates_with_the_wrapper,
    test_waiting_gradients_are_saved,
    train,
    waiting,
)
from own_optimizers import Count, unfused  # noqa: E402

import lodestar  # noqa: E402
from lodestar.optimizers.update_attempt import UpdateLogs  # noqa: E402

K = keras.optimizers
wrap = lodestar.optimizers.wrap


@pytest.fixture(params=[GPUS[:1], GPUS], ids=["one", "two"])
def devices(request):
    return request.param


def some_gradient(rng):
    """Returns a gradient of ids that repeat and of ids without a row."""
    ids = rng.integers(0, 16, rng.integers(1, 30))
    return slices(ids, rng.normal(size=(len(ids), 3)))


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


def test_slots_of_another_optimizer_are_replaced(devices, rng):
    tables = table(), table(devices)
    for t in tables:
        train(t, wrap(FourSlots(0.1)), [slices([1, 2])], graph=False)
        with pytest.warns(UserWarning, match="fresh slots"):
            train(t, wrap(K.Adam(0.1)), [slices([1, 2])], graph=False)
        with pytest.warns(UserWarning, match="fresh slots"):
            train(t, wrap(Count(0.0)), [slices([2, 3])], graph=False)
    assert_same(*tables)


# Gradient accumulation.

ACCUMULATED = {
    "sgd": lambda: wrap(K.SGD(0.1, **STEPS)),
    "adam": lambda: wrap(K.Adam(0.1, **STEPS)),
    "nadam": lambda: wrap(K.Nadam(0.1, weight_decay=0.1, **STEPS)),
    "loss_scale": lambda: wrap(K.SGD(0.1, loss_scale_factor=64.0, **STEPS)),
    "own_class": lambda: lodestar.optimizers.Adagrad(0.1, **STEPS),
    "unfused": lambda: wrap(unfused(K.RMSprop)(0.1, momentum=0.5, **STEPS)),
}


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


@pytest.mark.parametrize("dtype", [tf.float16, tf.bfloat16])
def test_gradients_of_other_dtypes_are_accumulated(devices, rng, dtype):
    gradients = [some_gradient(rng) for _ in range(7)]
    tables = table(dtype=dtype), table(devices, dtype=dtype)
    for t in tables:
        with tf.device("/CPU:0"):
            optimizer = ACCUMULATED["adam"]()
        train(t, optimizer, gradients, graph=True)
    assert_same(*tables, tolerance=1e-2 if dtype.size == 2 else 1e-5)


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


# Steps on several devices.


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
