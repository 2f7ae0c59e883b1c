"""Compares tables in GPU memory with the same tables on the CPU."""

import emulated

emulated.load()

import gc  # noqa: E402

import keras  # noqa: E402
import numpy as np  # noqa: E402
import pytest  # noqa: E402
import tensorflow as tf  # noqa: E402

import lodestar  # noqa: E402

GPUS = [["/GPU:0"], ["/GPU:0", "/GPU:1"]]


@pytest.fixture(params=GPUS, ids=["one", "two"])
def devices(request):
    """Returns the devices of a table."""
    return request.param


def table(devices=None, **kwargs):
    """Returns a table; all start with the same rows."""
    kwargs = {"output_dim": 4, "seed": (1, 3)} | kwargs
    with tf.device("/CPU:0"):
        return lodestar.EmbeddingVariable(
            kwargs.pop("output_dim"), devices=devices, **kwargs
        )


def pair(devices, **kwargs):
    """Returns a table on the CPU and one on `devices`."""
    return table(**kwargs), table(devices, **kwargs)


def content(table):
    """Returns the complete content of a table by name."""
    return {k: v.numpy() for k, v in table._export_all().items()}


def assert_same(a, b):
    """Checks that both tables are equal, bit by bit."""
    a, b = content(a), content(b)
    for name in a:
        np.testing.assert_array_equal(a[name], b[name], err_msg=name)


def some_ids(rng, shape):
    """Returns ids from the whole range and close ones, with some repeated."""
    near = rng.integers(-20, 20, shape)
    far = rng.choice([2**63 - 1, -(2**63), 2**40], shape)
    return np.where(rng.random(shape) < 0.2, far, near)


@pytest.mark.parametrize(
    "dtype", [tf.float32, tf.float64, tf.float16, tf.bfloat16]
)
@pytest.mark.parametrize("initializer", ["uniform", "normal", "zeros"])
def test_lookups_are_those_of_the_cpu(devices, rng, dtype, initializer):
    cpu, gpu = pair(
        devices, dtype=dtype, embeddings_initializer=initializer, output_dim=5
    )
    for step in range(3):
        ids = some_ids(rng, (4, 6))
        for t in (cpu, gpu):
            t.set_step(step)
        np.testing.assert_array_equal(
            cpu.lookup(ids, training=True), gpu.lookup(ids, training=True)
        )
        asked = some_ids(rng, (30,))
        np.testing.assert_array_equal(
            cpu.lookup(asked, training=False),
            gpu.lookup(asked, training=False),
        )
        for a, b in zip(cpu.find(asked), gpu.find(asked), strict=True):
            np.testing.assert_array_equal(a, b)
        np.testing.assert_array_equal(
            cpu.frequency(asked), gpu.frequency(asked)
        )
    assert_same(cpu, gpu)
    assert cpu.size() == gpu.size()


@pytest.mark.parametrize("combiner", ["sum", "mean", "sqrtn", "max", "first"])
def test_bags(devices, rng, combiner):
    cpu, gpu = pair(devices, default_row="initial")
    ids = tf.RaggedTensor.from_row_lengths(some_ids(rng, (12,)), [3, 0, 7, 2])
    for training in (True, False):
        np.testing.assert_allclose(
            cpu.lookup(ids, combiner=combiner, training=training),
            gpu.lookup(ids, combiner=combiner, training=training),
            # One device computes the CPU's bits; several add partial sums.
            rtol=0 if len(devices) == 1 else 1e-5,
            atol=0 if len(devices) == 1 else 1e-7,
        )
    assert_same(cpu, gpu)


OPTIMIZERS = [
    keras.optimizers.SGD(0.1),
    keras.optimizers.SGD(0.1, momentum=0.9, nesterov=True),
    keras.optimizers.Adagrad(0.1),
    lodestar.optimizers.RowWiseAdagrad(0.1, weight_decay=0.01),
    keras.optimizers.Adam(0.1),
    keras.optimizers.Adam(0.1, amsgrad=True),
    keras.optimizers.AdamW(0.1),
    keras.optimizers.RMSprop(0.1, centered=True, momentum=0.5),
    keras.optimizers.Adadelta(1.0),
    keras.optimizers.Adamax(0.1),
    keras.optimizers.Nadam(0.1),
    keras.optimizers.Lion(0.1),
    keras.optimizers.Ftrl(0.1),
]


@pytest.mark.parametrize(
    "optimizer",
    OPTIMIZERS,
    ids=[f"{i}{o.name}" for i, o in enumerate(OPTIMIZERS)],
)
def test_training(devices, rng, optimizer):
    cpu, gpu = pair(devices)
    batches = [some_ids(rng, (20,)) for _ in range(4)]
    for t in (cpu, gpu):
        with tf.device("/CPU:0"):
            wrapped = lodestar.optimizers.wrap(
                optimizer.from_config(optimizer.get_config())
            )
        for ids in batches:
            with tf.GradientTape() as tape:
                loss = tf.reduce_sum(t.lookup(ids, training=True) ** 2)
            hook = t
            wrapped.apply_gradients([(tape.gradient(loss, hook), hook)])
    assert_same(cpu, gpu)


@pytest.mark.parametrize("name", ["Adam", "RowWiseAdagrad", "Unfused"])
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_stochastic_rounding(devices, rng, dtype, name):
    class Unfused(keras.optimizers.SGD):
        def update_step(self, *args):
            super().update_step(*args)

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
            made = getattr(lodestar.optimizers, name, Unfused)(0.01)
            optimizer = lodestar.optimizers.wrap(made)
        for ids in batches:
            t.lookup(ids, training=True)
            gradient = tf.IndexedSlices(
                tf.constant(values), tf.constant(ids), tf.constant([-1, 4])
            )
            optimizer.apply_gradients([(gradient, t)])
    assert_same(cpu, gpu)


def test_a_model_trains_as_on_the_cpu(devices, rng):
    ids = rng.integers(0, 100, (64, 3))
    labels = rng.normal(size=(64, 1)).astype(np.float32)

    def train(devices):
        keras.utils.set_random_seed(1)
        with tf.device("/CPU:0"):
            inputs = keras.Input((3,), dtype="int64")
            x = lodestar.layers.DynamicEmbedding(
                8, seed=(2, 5), devices=devices
            )(inputs)
            outputs = keras.layers.Dense(1)(keras.layers.Flatten()(x))
            model = keras.Model(inputs, outputs)
            model.compile(
                lodestar.optimizers.Adagrad(0.1),
                "mse",
                jit_compile=False,
            )
            history = model.fit(ids, labels, epochs=3, batch_size=16, verbose=0)
        return model, history.history["loss"]

    cpu, losses = train(None)
    gpu, on_gpu = train(devices)
    np.testing.assert_allclose(on_gpu, losses, rtol=1e-6)
    np.testing.assert_allclose(
        gpu.predict(ids, verbose=0),
        cpu.predict(ids, verbose=0),
        rtol=1e-5,
        atol=1e-5,
    )


def test_rows_go_in_and_out(devices, rng):
    cpu, gpu = pair(devices)
    ids = some_ids(rng, (50,))
    rows = rng.normal(size=(50, 4)).astype(np.float32)
    for t in (cpu, gpu):
        t.insert_or_assign(ids, rows)
    assert_same(cpu, gpu)
    gone = some_ids(rng, (30,))
    assert cpu.remove(gone) == gpu.remove(gone)
    assert_same(cpu, gpu)
    for a, b in zip(cpu.inspect(ids), gpu.inspect(ids), strict=True):
        if isinstance(a, np.ndarray) and a.dtype != np.int64:
            np.testing.assert_array_equal(a, b)
    gpu.clear()
    assert gpu.size() == 0
    gpu.load_rows(cpu.export())
    assert_same(cpu, gpu)
    other = table(seed=(1, 9))
    other.lookup(some_ids(rng, (30,)), training=True)
    for t in (cpu, gpu):
        t.load_rows(other.export(), mode="merge")
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


def test_evicted_rows_are_returned(rng, devices):
    kept = []
    cpu, gpu = pair(devices, on_evict=lambda *evicted: kept.append(evicted))
    for step in range(3):
        ids = rng.integers(0, 60, (25,))
        for t in (cpu, gpu):
            t.set_step(step)
            t.lookup(ids, training=True)
    for policy in (lodestar.MinFrequency(2), lodestar.MaxRows(3)):
        for a, b in zip(
            cpu.evict(policy, return_rows=True),
            gpu.evict(policy, return_rows=True),
        ):
            np.testing.assert_array_equal(a, b)
        for a, b in zip(*kept):
            np.testing.assert_array_equal(a, b)
        kept.clear()
    assert_same(cpu, gpu)


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


ADMISSIONS = {
    "step": lodestar.MinCount(3),
    "occurrence": lodestar.MinCount(4, unit="occurrence"),
    "bloom": lodestar.CountingBloom(2, 0.01, 1000),
}


@pytest.fixture(params=ADMISSIONS)
def admission(request):
    """Returns an admission policy."""
    return ADMISSIONS[request.param]


def trainers(*tables):
    """Returns functions that train each table with a batch of ids."""

    def trainer(table):
        with tf.device("/CPU:0"):
            optimizer = lodestar.optimizers.Adagrad(0.1)

        def train(ids):
            with tf.GradientTape() as tape:
                rows = table.lookup(ids, training=True)
                loss = tf.reduce_sum(rows**2)
            optimizer.apply([tape.gradient(loss, table)], [table])
            return rows

        return train

    return [trainer(table) for table in tables]


def assert_same_pending(a, b, ids):
    """Checks that both tables have the same waiting ids and counters."""
    assert_same(a, b)
    a_ids, b_ids = a.inspect(ids), b.inspect(ids)
    assert a_ids.states == b_ids.states
    np.testing.assert_array_equal(a_ids.frequencies, b_ids.frequencies)
    np.testing.assert_array_equal(a_ids.last_seen, b_ids.last_seen)
    a, b = a.stats(), b.stats()
    for name in ("rows", "pending", "admitted", "misses", "gradients_dropped"):
        assert a[name] == b[name], name


def test_admission(devices, rng, admission):
    cpu, gpu = pair(devices, admission=admission, eviction=lodestar.MaxAge(2))
    train_cpu, train_gpu = trainers(cpu, gpu)
    ids = some_ids(rng, (40,))
    for step in range(6):
        batch = ids[: 30 if step < 4 else 5].reshape([-1, 5])
        for t in (cpu, gpu):
            t.set_step(step)
            t.lookup(batch[:2], training=True)  # two lookups in a step
        np.testing.assert_array_equal(train_cpu(batch), train_gpu(batch))
        assert_same_pending(cpu, gpu, np.unique(ids))
        assert cpu.evict() == gpu.evict()
        assert_same_pending(cpu, gpu, np.unique(ids))
    assert 0 < gpu.stats()["rows"] < len(np.unique(ids))
    cpu.load_rows(gpu.export())
    for t in (cpu, gpu):
        t.clear()
    assert_same_pending(cpu, gpu, np.unique(ids))


def test_admission_in_bags(devices, rng, admission):
    cpu, gpu = pair(devices, admission=admission)
    for step in range(4):
        ids = tf.RaggedTensor.from_row_lengths(
            rng.integers(0, 30, (20,)), [4, 0, 9, 7]
        )
        for t in (cpu, gpu):
            t.set_step(step)
            t.lookup(ids, combiner="sum", training=True)
        assert_same_pending(cpu, gpu, np.arange(30))


@pytest.mark.parametrize("to_gpu", [True, False])
def test_checkpoints_have_waiting_ids(
    devices, rng, tmp_path, admission, to_gpu
):
    cpu, gpu = pair(devices, admission=admission)
    source, target = (cpu, gpu) if to_gpu else (gpu, cpu)
    ids = some_ids(rng, (40,))
    source.lookup(ids, training=True)
    path = tf.train.Checkpoint(table=source).save(str(tmp_path / "saved"))
    tf.train.Checkpoint(table=target).restore(path).assert_consumed()
    for step in range(4):
        assert_same(source, target)
        for t in (cpu, gpu):
            t.set_step(step)
            t.lookup(ids[10 * step :], training=True)
    assert source.stats()["rows"] > 0
    assert_same(source, target)


@pytest.mark.parametrize("shared", [1, 3])
@pytest.mark.parametrize("dtype", [tf.float32, tf.bfloat16, tf.float64])
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


def test_a_function_of_unknown_dimensions(devices, rng):
    cpu, gpu = pair(devices)

    @tf.function(input_signature=[tf.TensorSpec(None, tf.int64)])
    def on_gpu(ids):
        return gpu.lookup(ids, training=True)

    for shape in [(0,), (3,), (2, 0), (2, 3, 2)]:
        ids = some_ids(rng, shape).astype(np.int64)
        np.testing.assert_array_equal(
            on_gpu(ids), cpu.lookup(ids, training=True)
        )
    assert_same(cpu, gpu)


def test_gradients_that_are_not_finite_are_refused_or_skipped(devices):
    for nonfinite in ("raise", "skip"):
        gpu = table(devices)
        gpu.lookup([1, 2], training=True)
        before = content(gpu)
        with tf.device("/CPU:0"):
            optimizer = lodestar.optimizers.SGD(1.0, nonfinite=nonfinite)
        hook = gpu
        gradient = tf.IndexedSlices(
            tf.constant([[1.0] * 4, [float("nan")] * 4]),
            tf.constant([1, 2], tf.int64),
            tf.constant([-1, 4]),
        )
        if nonfinite == "raise":
            with pytest.raises(
                tf.errors.InvalidArgumentError,
                match="the gradient of id 2 is not finite",
            ):
                optimizer.apply_gradients([(gradient, hook)])
            np.testing.assert_array_equal(content(gpu)["rows"], before["rows"])
        else:
            optimizer.apply_gradients([(gradient, hook)])
            np.testing.assert_array_equal(
                content(gpu)["rows"],
                before["rows"] - np.float32([[1.0], [0.0]]),
            )


def test_another_optimizer_starts_with_fresh_slots(devices):
    gpu = table(devices)
    gpu.lookup([1, 2], training=True)
    gradient = tf.IndexedSlices(
        tf.ones([2, 4]), tf.constant([1, 2], tf.int64), tf.constant([-1, 4])
    )
    with tf.device("/CPU:0"):
        optimizers = [
            lodestar.optimizers.wrap(name)
            for name in ("sgd", "adagrad", "adam", "adam")
        ]

    def step(optimizer):
        optimizer.apply_gradients([(gradient, gpu)])

    sgd, adagrad, adam, again = optimizers
    step(sgd)
    step(adagrad)  # nothing is lost
    step(adagrad)
    with pytest.warns(UserWarning, match=r"fresh slots .*\(adagrad\)"):
        step(adam)
    with pytest.raises(
        tf.errors.FailedPreconditionError,
        match="'adam', but the update uses 'adagrad'",
    ):
        step(adagrad)
    step(adam)
    with pytest.warns(UserWarning, match=r"fresh slots .*\(adam\)"):
        step(again)
    velocity = gpu.export().optimizer_slots["velocity"].numpy()
    np.testing.assert_allclose(velocity, 0.001, 1e-3)
    assert int(gpu.step) == 6


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
