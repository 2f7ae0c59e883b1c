"""Compares tables in GPU memory with the same tables on the CPU."""

import emulated

emulated.load()

import gc  # noqa: E402

import keras  # noqa: E402
import numpy as np  # noqa: E402
import pytest  # noqa: E402
import tensorflow as tf  # noqa: E402
from gpu_tables import DEVICES, GPUS  # noqa: E402
from own_optimizers import unfused  # noqa: E402
from table_cases import (  # noqa: E402, F401
    admission,
    assert_same,
    assert_same_pending,
    pair,
    some_ids,
    table,
    test_a_function_of_unknown_dimensions,
    test_admission,
    test_admission_in_bags,
    test_checkpoints_have_waiting_ids,
    test_evicted_rows_are_returned,
    test_lookups_are_those_of_the_cpu,
    test_rows_go_in_and_out,
    test_training,
    trainers,
)

import lodestar  # noqa: E402


@pytest.fixture(params=[GPUS[:1], GPUS], ids=["one", "two"])
def devices(request):
    return request.param


@DEVICES
@pytest.mark.parametrize("name", ["Adam", "RowWiseAdagrad", "Unfused"])
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_stochastic_rounding(devices, rng, dtype, name):
    kwargs = (
        {}
        if len(devices) > 1
        else {
            "admission": lodestar.MinCount(2),
            "default_row": lodestar.SharedRows(3),
        }
    )
    cpu, gpu = pair(devices, dtype=dtype, rounding="stochastic", **kwargs)
    batches = [rng.integers(0, 40, 20) for _ in range(4)]
    values = rng.normal(size=(20, 4)).astype(np.float32)
    for t in (cpu, gpu):
        with tf.device("/CPU:0"):
            made = getattr(
                lodestar.optimizers, name, unfused(keras.optimizers.SGD)
            )(0.01)
            optimizer = lodestar.optimizers.wrap(made)
        for ids in batches:
            t.lookup(ids, training=True)
            gradient = tf.IndexedSlices(
                tf.constant(values), tf.constant(ids), tf.constant([-1, 4])
            )
            optimizer.apply_gradients([(gradient, t)])
    assert_same(cpu, gpu)


@pytest.mark.parametrize(
    "eviction",
    [
        lodestar.MaxRows(20),
        lodestar.MaxAge(1),
        lodestar.MinNorm(0.06),
        lodestar.MinFrequency(3),
    ],
    ids=["rows", "age", "norm", "frequency"],
)
def test_eviction(rng, eviction):
    # On one device, where the limit is for the whole table.
    cpu, gpu = pair(["/GPU:0"], eviction=eviction)
    for step in range(5):
        ids = rng.integers(0, 60, (25,))
        for t in (cpu, gpu):
            t.set_step(step)
            t.lookup(ids, training=True)
    assert cpu.evict() == gpu.evict()
    assert_same(cpu, gpu)
    for t in (cpu, gpu):
        t.decay_frequencies(0.5)
    assert_same(cpu, gpu)
    a, b = cpu.stats(), gpu.stats()
    for name in ("rows", "inserts", "evicted", "hits", "misses", "refused"):
        assert a[name] == b[name], name


def test_a_full_table_raises(rng):
    cpu, gpu = pair(
        ["/GPU:0"], eviction=lodestar.MaxRows(20, when_full="raise")
    )
    for t in (cpu, gpu):
        t.lookup(tf.range(15, dtype=tf.int64), training=True)
        for call in (
            lambda t=t: t.lookup(np.arange(10, 24), training=True),
            lambda t=t: t.lookup(
                [np.arange(10, 24)], combiner="sum", training=True
            ),
        ):
            with pytest.raises(
                tf.errors.FailedPreconditionError,
                match="is full: it has 15 of at most 20 rows, and the call has 9",
            ):
                call()
    assert_same(cpu, gpu)


@pytest.mark.parametrize("shared", [1, 3])
@pytest.mark.parametrize("dtype", [tf.float32, tf.bfloat16])
def test_shared_rows(rng, tmp_path, shared, dtype):
    cpu, gpu = pair(
        ["/GPU:0"],
        default_row=lodestar.SharedRows(shared),
        admission=lodestar.MinCount(2),
        dtype=dtype,
    )
    train_cpu, train_gpu = trainers(cpu, gpu)
    for step in range(4):
        ids = some_ids(rng, (8, 6))
        for t in (cpu, gpu):
            t.set_step(step)
        np.testing.assert_array_equal(train_cpu(ids), train_gpu(ids))
        assert_same_pending(cpu, gpu, np.unique(ids))
        asked = some_ids(rng, (3, 4))
        for combiner in (None, "mean", "max"):
            np.testing.assert_array_equal(
                cpu.lookup(asked, combiner=combiner, training=False),
                gpu.lookup(asked, combiner=combiner, training=False),
            )
    path = tf.train.Checkpoint(table=gpu).save(str(tmp_path / "saved"))
    for t in (cpu, gpu):
        t.clear()
    assert_same(cpu, gpu)
    tf.train.Checkpoint(table=cpu).restore(path).assert_consumed()
    gpu._import_all(cpu._export_all())
    assert_same(cpu, gpu)


@DEVICES
@pytest.mark.parametrize("asynchronous", [False, True])
@pytest.mark.parametrize("to_gpu", [True, False])
def test_checkpoints_go_both_ways(devices, rng, tmp_path, to_gpu, asynchronous):
    cpu, gpu = pair(devices)
    source, target = (cpu, gpu) if to_gpu else (gpu, cpu)
    source.lookup(some_ids(rng, (40,)), training=True)
    options = tf.train.CheckpointOptions(
        experimental_enable_async_checkpoint=asynchronous
    )
    checkpoint = tf.train.Checkpoint(table=source)
    path = checkpoint.save(str(tmp_path / "saved"), options)
    checkpoint.sync()
    tf.train.Checkpoint(table=target).restore(path).assert_consumed()
    assert_same(source, target)


def test_skipped_gradients_make_no_rows():
    gpu = table(["/GPU:0"])
    with tf.device("/CPU:0"):
        optimizer = lodestar.optimizers.SGD(1.0, nonfinite="skip")
    hook = gpu
    gpu.lookup([1], training=True)
    gradient = tf.IndexedSlices(
        tf.constant([[1.0] * 4, [float("inf")] * 4]),
        tf.constant([1, 2], tf.int64),
        tf.constant([-1, 4]),
    )
    optimizer.apply_gradients([(gradient, hook)])
    assert gpu.size() == 1
    assert gpu.stats()["nonfinite_gradients"] == 1


def test_gradients_of_tables_on_the_cpu_stay_there():
    cpu = table()
    with tf.GradientTape() as tape:
        rows = cpu.lookup([1, 1, 2], training=True)
        loss = tf.reduce_sum(rows)
    gradient = tape.gradient(loss, cpu)
    assert gradient.values.backing_device.endswith("CPU:0")


def test_the_device_scope_places_rows(rng):
    with tf.device("/GPU:1"):
        gpu = lodestar.EmbeddingVariable(4, seed=(1, 3))
    assert [d[-5:] for d in gpu.devices] == ["GPU:1"]
    cpu = table()
    ids = some_ids(rng, (20,))
    rows = gpu.lookup(ids, training=True)
    assert rows.backing_device.endswith("GPU:1")
    np.testing.assert_array_equal(rows, cpu.lookup(ids, training=True))
    copied = lodestar.EmbeddingVariable.from_config(gpu.get_config())
    assert copied.devices == gpu.devices
    assert lodestar.EmbeddingVariable(4).devices is None


@pytest.mark.parametrize("keys", [["a", "b"], [5, 6]], ids=["text", "int"])
def test_id_tables_stay_on_the_cpu(keys):
    with tf.device("/GPU:0"):
        ids = lodestar.lookup.IdTable(keys)
        hashed = lodestar.lookup.IdTableWithHashBuckets(ids, 1)
        for lookup in (ids.lookup, tf.function(hashed.lookup)):
            assert lookup(tf.constant(keys)).numpy().tolist() == [0, 1]
    assert ids.resource_handle.device.endswith("CPU:0")


def test_what_a_gpu_does_not_have_is_said():
    with pytest.raises(NotImplementedError, match="for a single GPU only"):
        table(["/GPU:0", "/GPU:1"], default_row=lodestar.SharedRows(2))
    with pytest.raises(ValueError, match=r"'/GPU:7' does not exist, only"):
        table(["/GPU:7"])
    with pytest.raises(ValueError, match="is not a CPU or GPU"):
        table(["/TPU:0"])


def test_no_device_memory_is_kept():
    def used():
        return [
            tf.config.experimental.get_memory_info(f"GPU:{i}")["current"]
            for i in range(2)
        ]

    gpu = table(["/GPU:0", "/GPU:1"])
    gpu.lookup(np.arange(1000), training=True)
    del gpu
    gc.collect()  # objects of other tests
    before = used()
    for _ in range(3):
        gpu = table(["/GPU:0", "/GPU:1"])
        gpu.lookup(np.arange(3000), training=True)
        assert all(a > b for a, b in zip(used(), before, strict=True))
        gpu.load_rows(gpu.export())
        del gpu
    assert used() == before
