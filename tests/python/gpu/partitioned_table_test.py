"""Compares tables on one GPU and over several with tables on the CPU."""

import emulated

emulated.load()

import numpy as np  # noqa: E402
import pytest  # noqa: E402
import tensorflow as tf  # noqa: E402
from gpu_tables import DEVICES, GPUS, GRAPH, bags  # noqa: E402
from table_cases import assert_same, content, pair, table  # noqa: E402

import lodestar  # noqa: E402
from lodestar.optimizers import table_updates  # noqa: E402

COMBINERS = ["sum", "mean", "sqrtn", "max", "first", "last"]


def trained(table, lookups, optimizer, graph, steps=3):
    """Returns the rows of all lookups in `steps` training steps.

    Each of `lookups` is ids, arguments of a lookup, and factors of its rows.
    """

    def step():
        with tf.GradientTape() as tape:
            rows = [
                table.lookup(ids, training=True, **kwargs)
                for ids, kwargs, _ in lookups
            ]
            losses = [
                tf.reduce_sum(r * factors)
                for r, (_, _, factors) in zip(rows, lookups, strict=True)
            ]
            loss = tf.add_n(losses)
        optimizer.apply(tape.gradient(loss, [table]), [table])
        return rows

    run = tf.function(step) if graph else step
    return [run() for _ in range(steps)]


def sums_shares(devices, kwargs):
    """Whether each GPU pools its share of a bag, so that last bits may differ."""
    if len(devices) == 1:
        return False
    combiner = kwargs.get("combiner")
    if kwargs.get("default_id") is not None:
        return False
    return combiner in ("sum", "mean", "sqrtn")


@DEVICES
@GRAPH
@pytest.mark.parametrize("combiner", COMBINERS)
@pytest.mark.parametrize("options", [{}, {"padding_id": 3}, {"default_id": 5}])
def test_pooled_lookups_and_updates(devices, rng, combiner, options, graph):
    kwargs = {"combiner": combiner, **options}
    factors = tf.cast(rng.normal(size=(9, 4)), tf.float32)
    dense = tf.constant(rng.integers(-5, 5, (9, 4)))
    lookups = [(bags(rng), kwargs, factors), (dense, kwargs, factors)]
    tables = pair(devices)
    results = [
        trained(t, lookups, lodestar.optimizers.Adagrad(0.1), graph)
        for t in tables
    ]
    exact = not sums_shares(devices, kwargs)
    for wanted, got in zip(*results, strict=True):
        for a, b in zip(wanted, got, strict=True):
            if exact:
                np.testing.assert_array_equal(a, b)
            else:
                np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5)
    assert_same(*tables, exact=exact)


@DEVICES
@GRAPH
@pytest.mark.parametrize("dtype", [tf.float16, tf.bfloat16])
def test_rows_of_16_bits(devices, rng, dtype, graph):
    factors = tf.cast(rng.normal(size=(9, 4)), dtype)
    lookups = [
        (bags(rng), {"combiner": combiner}, factors)
        for combiner in ("max", "first")
    ]
    tables = pair(devices, dtype=dtype)
    for t in tables:
        trained(t, lookups, lodestar.optimizers.Adagrad(0.1), graph)
    assert_same(*tables)


@DEVICES
@GRAPH
@pytest.mark.parametrize("combiner", ["sum", "mean", "sqrtn"])
@pytest.mark.parametrize("options", [{}, {"default_id": 5}])
def test_weights(devices, rng, combiner, options, graph):
    ids = bags(rng)
    weights = ids.with_values(
        tf.constant(
            rng.choice([-1.0, 0.0, 0.5, 2.0], ids.values.shape[0]), tf.float32
        )
    )
    factors = tf.constant(rng.normal(size=(9, 4)), tf.float32)
    kwargs = {"combiner": combiner, "padding_id": 2, **options}
    tables = pair(devices)
    results = []
    for t in tables:
        optimizer = lodestar.optimizers.SGD(0.1)

        def step(t=t, optimizer=optimizer):
            with tf.GradientTape() as tape:
                tape.watch(weights.values)
                rows = t.lookup(ids, weights=weights, training=True, **kwargs)
                loss = tf.reduce_sum(rows * factors)
            rows_gradient, gradient = tape.gradient(loss, [t, weights.values])
            optimizer.apply([rows_gradient], [t])
            return rows, gradient

        results.append((tf.function(step) if graph else step)())
    for wanted, got in zip(*results, strict=True):
        np.testing.assert_allclose(wanted, got, rtol=1e-4, atol=1e-5)
    assert_same(*tables, exact=False)


@DEVICES
def test_max_of_equal_and_infinite_rows(devices):
    tables = pair(devices)
    ids = np.arange(20)
    rows = np.where(ids % 3 == 0, -np.inf, np.where(ids == 7, np.inf, 1.0))
    batch = tf.ragged.constant(
        [[0, 3, 6], [4, 5, 8], [8, 5, 4], [7, 1], [], [2, 2, 5], [9]],
        dtype=tf.int64,
    )
    factors = tf.constant(np.arange(28.0).reshape(7, 4), tf.float32)
    results = []
    for t in tables:
        t.insert_or_assign(ids, rows[:, None] * np.ones(4))
        with tf.GradientTape() as tape:
            pooled = t.lookup(batch, combiner="max", training=True)
            loss = tf.reduce_sum(pooled * factors)
        gradient = tape.gradient(loss, t.value)
        order = np.argsort(gradient.indices)
        results.append(
            (
                pooled,
                gradient.indices.numpy()[order],
                gradient.values.numpy()[order],
            )
        )
    for wanted, got in zip(*results, strict=True):
        np.testing.assert_array_equal(wanted, got)


@DEVICES
@GRAPH
def test_several_lookups_without_a_combiner(devices, rng, graph):
    lookups = [
        (
            tf.constant(rng.integers(-9, 9, shape)),
            {},
            tf.constant(rng.normal(size=(*shape, 4)), tf.float32),
        )
        for shape in [(30,), (4, 5), (12, 1)]
    ]
    tables = pair(devices)
    for optimizer in (lodestar.optimizers.Adam, lodestar.optimizers.Ftrl):
        rows = [
            trained(t, lookups, optimizer(0.1), graph, steps=2) for t in tables
        ]
        for wanted, got in zip(*rows, strict=True):
            for a, b in zip(wanted, got, strict=True):
                np.testing.assert_array_equal(a, b)
        assert_same(*tables)


@DEVICES
@pytest.mark.parametrize("clip", ["clipnorm", "clipvalue", "global_clipnorm"])
@GRAPH
def test_clipped_gradients(devices, rng, clip, graph):
    lookups = [
        (bags(rng), {"combiner": "max"}, tf.ones((9, 4))) for _ in range(2)
    ]
    tables = pair(devices)
    for t in tables:
        optimizer = lodestar.optimizers.SGD(0.1, **{clip: 0.5})
        trained(t, lookups, optimizer, graph)
    assert_same(*tables, exact=False)


@GRAPH
def test_repeated_runs_have_the_same_bits(rng, graph):
    ids = bags(rng, 64, 30, 9)
    lookups = [
        (
            ids,
            {"combiner": c},
            tf.constant(rng.normal(size=(64, 4)), tf.float32),
        )
        for c in ("mean", "sum")
    ]
    tables = [table(GPUS), table(GPUS)]
    for t in tables:
        trained(t, lookups, lodestar.optimizers.Adam(0.1), graph)
    assert_same(*tables)


@DEVICES
@GRAPH
@pytest.mark.parametrize("combiner", ["sum", "max"])
def test_nonfinite_gradients(devices, rng, combiner, graph):
    ids = bags(rng)
    kwargs = {"combiner": combiner}
    factors = np.ones((9, 4), np.float32)
    factors[np.argmax(ids.row_lengths()), 1] = np.nan
    start = [(ids, kwargs, tf.ones((9, 4)))]
    bad = [(ids, kwargs, tf.constant(factors))]
    tables = pair(devices)
    for t in tables:
        trained(t, start, lodestar.optimizers.SGD(0.1), graph, steps=1)
        before = content(t)
        # The lookup counts ids even if the update fails.
        for name in ("last_seen", "frequencies"):
            del before[name]
        step = int(t.step)
        optimizer = lodestar.optimizers.SGD(0.1)
        with pytest.raises(tf.errors.InvalidArgumentError, match="finite"):
            trained(t, bad, optimizer, graph, steps=1)
        after = content(t)
        for name, value in before.items():
            np.testing.assert_array_equal(value, after[name], err_msg=name)
        assert int(t.step) == step
        optimizer = lodestar.optimizers.SGD(0.1, nonfinite="skip")
        trained(t, bad, optimizer, graph, steps=1)
    assert_same(*tables, exact=False)
    assert np.isfinite(content(tables[1])["rows"]).all()


# Ops of a training step that work on the host: they check ids and divide them.
ON_HOST = {
    "Lodestar>EmbeddingCollectionPartitionBags",
    "Lodestar>EmbeddingCollectionUnique",
    "Lodestar>EmbeddingPartition",
}
READS_GRADIENTS = {"Lodestar>EmbeddingPartitionRows", "Lodestar>EmbeddingApply"}


@pytest.mark.parametrize("dtype", [tf.float32, tf.float16])
@pytest.mark.parametrize("combiner", [*COMBINERS, None])
@pytest.mark.parametrize("clip", [{}, {"global_clipnorm": 1.0}])
def test_rows_and_gradients_stay_on_gpus(rng, dtype, combiner, clip):
    t = table(GPUS, dtype=dtype)
    optimizer = lodestar.optimizers.Adagrad(0.1, **clip)
    ids = tf.constant(rng.integers(0, 30, (9, 4)))

    @tf.function
    def step(ids):
        with tf.GradientTape() as tape:
            rows = [
                t.lookup(i, combiner=combiner, training=True)
                for i in (ids, ids + 1)
            ]
            loss = tf.add_n([tf.reduce_sum(r**2) for r in rows])
        optimizer.apply(tape.gradient(loss, [t]), [t])

    step(ids)
    graph = step.get_concrete_function(ids).graph
    ops = [
        op
        for op in graph.get_operations()
        if op.type.startswith("Lodestar>") and op.type not in ON_HOST
    ]
    assert all("GPU" in op.device for op in ops), [
        (op.type, op.device) for op in ops
    ]
    devices = {
        name: [
            op.device for op in ops if op.type == f"Lodestar>Embedding{name}"
        ]
        for name in ("PartitionRows", "Apply")
    }
    assert len(set(devices["Apply"])) == len(GPUS)
    if clip:
        assert len(devices["PartitionRows"]) == 1
    else:
        # Each lookup's gradient is divided where it was computed.
        gradients = [op for op in ops if op.type.endswith("Gradient")]
        assert devices["PartitionRows"] == [op.device for op in gradients]
        joined = [
            x.op
            for op in ops
            if op.type in READS_GRADIENTS
            for x in op.inputs
            if x.op.type == "ConcatV2"
        ]
        assert len(joined) == 2 * len(GPUS)
        assert all("GPU" in op.device for op in joined)


@pytest.mark.parametrize("combiner", ["mean", "max"])
def test_eager_gradients_are_divided_on_a_gpu(rng, monkeypatch, combiner):
    divided = []
    partition_rows = table_updates.partition_rows

    def record(*args):
        divided.extend(partition_rows(*args))
        return divided[-len(GPUS) :]

    monkeypatch.setattr(table_updates, "partition_rows", record)
    lookups = [(bags(rng), {"combiner": combiner}, tf.ones((9, 4)))]
    optimizer = lodestar.optimizers.SGD(0.1)
    trained(table(GPUS), lookups, optimizer, graph=False, steps=1)
    assert len(divided) == len(GPUS)
    for ids, rows in divided:
        assert "GPU" in ids.device
        assert "GPU" in rows.device
