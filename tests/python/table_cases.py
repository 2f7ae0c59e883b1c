"""Promises of tables on any devices: they hold what a table on the CPU holds.

A module that imports these tests defines the fixture `devices`, the `devices` of
tables.
"""

import keras
import numpy as np
import pytest
import tensorflow as tf

import lodestar


def table(devices=None, dim=4, **kwargs):
    """Returns a table; all start with the same rows."""
    kwargs = {"seed": (1, 3)} | kwargs
    with tf.device("/CPU:0"):
        return lodestar.EmbeddingVariable(dim, devices=devices, **kwargs)


def pair(devices, **kwargs):
    """Returns a table on the CPU and one on `devices`."""
    return table(**kwargs), table(devices, **kwargs)


def content(table):
    """Returns the complete content of a table by name."""
    return {k: np.asarray(v) for k, v in table._export_all().items()}


def assert_same(a, b, exact=True, atol=1e-6):
    """Checks that both tables have the same content, or nearly the same rows."""
    a, b = content(a), content(b)
    assert a.keys() == b.keys()
    for name in a:
        if exact or a[name].dtype.kind != "f":
            np.testing.assert_array_equal(a[name], b[name], err_msg=name)
        else:
            np.testing.assert_allclose(
                a[name], b[name], rtol=1e-5, atol=atol, err_msg=name
            )


def some_ids(rng, shape):
    """Returns ids from the whole range and close ones, with some repeated."""
    near = rng.integers(-20, 20, shape)
    far = rng.choice([2**63 - 1, -(2**63), 2**40], shape)
    return np.where(rng.random(shape) < 0.2, far, near)


@pytest.mark.parametrize("dtype", [tf.float32, tf.float16, tf.bfloat16])
@pytest.mark.parametrize("initializer", ["uniform", "normal", "zeros"])
def test_lookups_are_those_of_the_cpu(devices, rng, dtype, initializer):
    cpu, other = pair(
        devices, dtype=dtype, embeddings_initializer=initializer, dim=5
    )
    for step in range(3):
        ids = some_ids(rng, (4, 6))
        for t in (cpu, other):
            t.set_step(step)
        np.testing.assert_array_equal(
            cpu.lookup(ids, training=True), other.lookup(ids, training=True)
        )
        asked = some_ids(rng, (30,))
        np.testing.assert_array_equal(
            cpu.lookup(asked, training=False),
            other.lookup(asked, training=False),
        )
        for a, b in zip(cpu.find(asked), other.find(asked), strict=True):
            np.testing.assert_array_equal(a, b)
        np.testing.assert_array_equal(
            cpu.frequency(asked), other.frequency(asked)
        )
    assert_same(cpu, other)
    assert cpu.size() == other.size()


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
    cpu, other = pair(devices)
    batches = [some_ids(rng, (20,)) for _ in range(4)]
    for t in (cpu, other):
        with tf.device("/CPU:0"):
            wrapped = lodestar.optimizers.wrap(
                optimizer.from_config(optimizer.get_config())
            )
        for ids in batches:
            with tf.GradientTape() as tape:
                loss = tf.reduce_sum(t.lookup(ids, training=True) ** 2)
            wrapped.apply_gradients([(tape.gradient(loss, t), t)])
    assert_same(cpu, other)


def test_rows_go_in_and_out(devices, rng):
    cpu, other = pair(devices)
    ids = some_ids(rng, (50,))
    rows = rng.normal(size=(50, 4)).astype(np.float32)
    for t in (cpu, other):
        t.insert_or_assign(ids, rows)
    assert_same(cpu, other)
    gone = some_ids(rng, (30,))
    assert cpu.remove(gone) == other.remove(gone)
    assert_same(cpu, other)
    a, b = cpu.inspect(ids), other.inspect(ids)
    for name in ("states", "rows", "frequencies", "last_seen"):
        np.testing.assert_array_equal(getattr(a, name), getattr(b, name))
    other.clear()
    assert other.size() == 0
    other.load_rows(cpu.export())
    assert_same(cpu, other)
    more = table(seed=(1, 9))
    more.lookup(some_ids(rng, (30,)), training=True)
    for t in (cpu, other):
        t.load_rows(more.export(), mode="merge")
    assert_same(cpu, other)


def test_evicted_rows_are_returned(rng, devices):
    kept = []
    cpu, other = pair(devices, on_evict=lambda *evicted: kept.append(evicted))
    for step in range(3):
        ids = rng.integers(0, 60, (25,))
        for t in (cpu, other):
            t.set_step(step)
            t.lookup(ids, training=True)
    for policy in (
        lodestar.MaxAge(1),
        lodestar.MinNorm(0.04),
        lodestar.MinFrequency(2),
        lodestar.MaxRows(3),
    ):
        for a, b in zip(
            cpu.evict(policy, return_rows=True),
            other.evict(policy, return_rows=True),
        ):
            np.testing.assert_array_equal(a, b)
        for a, b in zip(*kept):
            np.testing.assert_array_equal(a, b)
        kept.clear()
        assert_same(cpu, other)
    train_cpu, train_other = trainers(cpu, other)
    for t in (cpu, other):
        t.set_step(10)
        t.decay_frequencies(0.5)
        t.set_step(None)
    np.testing.assert_array_equal(train_cpu([1]), train_other([1]))
    assert_same(cpu, other)


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
    cpu, other = pair(devices, admission=admission, eviction=lodestar.MaxAge(2))
    train_cpu, train_other = trainers(cpu, other)
    ids = some_ids(rng, (40,))
    for step in range(6):
        batch = ids[: 30 if step < 4 else 5].reshape([-1, 5])
        for t in (cpu, other):
            t.set_step(step)
            t.lookup(batch[:2], training=True)  # two lookups in a step
        np.testing.assert_array_equal(train_cpu(batch), train_other(batch))
        assert_same_pending(cpu, other, np.unique(ids))
        assert cpu.evict() == other.evict()
        assert_same_pending(cpu, other, np.unique(ids))
    assert 0 < other.stats()["rows"] < len(np.unique(ids))
    cpu.load_rows(other.export())
    for t in (cpu, other):
        t.clear()
    assert_same_pending(cpu, other, np.unique(ids))


def test_admission_in_bags(devices, rng, admission):
    cpu, other = pair(devices, admission=admission)
    for step in range(4):
        ids = tf.RaggedTensor.from_row_lengths(
            rng.integers(0, 30, (20,)), [4, 0, 9, 7]
        )
        for t in (cpu, other):
            t.set_step(step)
            t.lookup(ids, combiner="sum", training=True)
        assert_same_pending(cpu, other, np.arange(30))


@pytest.mark.parametrize("to_other", [True, False])
def test_checkpoints_have_waiting_ids(
    devices, rng, tmp_path, admission, to_other
):
    cpu, other = pair(devices, admission=admission)
    source, target = (cpu, other) if to_other else (other, cpu)
    ids = some_ids(rng, (40,))
    source.lookup(ids, training=True)
    path = tf.train.Checkpoint(table=source).save(str(tmp_path / "saved"))
    tf.train.Checkpoint(table=target).restore(path).assert_consumed()
    for step in range(4):
        assert_same(source, target)
        for t in (cpu, other):
            t.set_step(step)
            t.lookup(ids[10 * step :], training=True)
    assert source.stats()["rows"] > 0
    assert_same(source, target)


def test_a_function_of_unknown_dimensions(devices, rng):
    cpu, other = pair(devices)

    @tf.function(input_signature=[tf.TensorSpec(None, tf.int64)])
    def lookup(ids):
        return other.lookup(ids, training=True)

    for shape in [(0,), (3,), (2, 0), (2, 3, 2)]:
        ids = some_ids(rng, shape).astype(np.int64)
        np.testing.assert_array_equal(
            lookup(ids), cpu.lookup(ids, training=True)
        )
    assert_same(cpu, other)
