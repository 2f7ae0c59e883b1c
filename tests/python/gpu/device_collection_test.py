"""Compares bags and collections on GPUs with the same on the CPU."""

import emulated

emulated.load()

import keras  # noqa: E402
import numpy as np  # noqa: E402
import pytest  # noqa: E402
import tensorflow as tf  # noqa: E402
from gpu_tables import DEVICES, GPUS, bags  # noqa: E402
from table_cases import assert_same, content, table  # noqa: E402

import lodestar  # noqa: E402
from lodestar.layers import EmbeddingCollection  # noqa: E402


@DEVICES
@pytest.mark.parametrize("combiner", ["first", "last"])
def test_unselected_rows_are_not_read(devices, combiner):
    gpu = table(devices)
    gpu.insert_or_assign(
        np.arange(20),
        np.where(np.arange(20) % 19 == 0, 1.0, np.inf)[:, None] * np.ones(4),
    )
    rows = gpu.lookup(np.arange(20)[None], combiner=combiner)
    np.testing.assert_array_equal(rows, np.ones((1, 4)))


def test_tables_on_the_cpu_stay_there_within_the_scope_of_a_gpu(rng):
    cpu, ids = table(), bags(rng)

    @tf.function
    def step():
        with tf.device("/GPU:0"), tf.GradientTape() as tape:
            rows = cpu.lookup(ids, combiner="mean", training=True)
            rows += cpu.lookup(tf.range(9, dtype=tf.int64), training=True)
        with tf.device("/GPU:0"):
            return tape.gradient(rows, cpu.value).values

    step()
    operations = step.get_concrete_function().graph.get_operations()
    found = {
        op.type: op.device
        for op in operations
        if op.type.startswith("Lodestar>Embedding")
    }
    assert {
        "Lodestar>EmbeddingCollectionLookup",
        "Lodestar>EmbeddingCollectionGradient",
        "Lodestar>EmbeddingFindOrInsert",
        "Lodestar>EmbeddingGradient",
    } <= set(found)
    assert all("CPU" in device for device in found.values()), found


FEATURES = {
    "row": {},
    "bag": {"combiner": "mean", "salt": "bag", "padding_id": -1},
    "weighted": {"combiner": "sum", "max_length": 3},
    "most": {"combiner": "max"},
    "one_hot": {"combiner": "sum", "padding_id": 0},
    "one_default": {"combiner": "mean", "default_id": 7},
}
PLANS = {
    "whole": {"small": GPUS[0], "large": GPUS[1]},
    "spread": {"small": GPUS, "large": GPUS},
    "mixed": {"small": GPUS[1], "large": GPUS},
}


# Features that GPUs can pool when their table is partitioned.
SUMS = ["row", "bag", "weighted", "one_hot"]


def collection(plan=None, names=tuple(FEATURES)):
    """Returns features over two tables, placed as the plan says."""
    plan = {} if plan is None else plan
    tables = {}
    for name, dim in (("small", 4), ("large", 8)):
        where = plan.get(name)
        if isinstance(where, str):
            where = [where]
        tables[name] = table(where, dim, name=name)
    return EmbeddingCollection(
        {
            name: lodestar.Feature(
                tables["small" if i % 2 else "large"], **options
            )
            for i, (name, options) in enumerate(FEATURES.items())
            if name in names
        }
    )


def a_batch(rng, size=8):
    """Returns ids and weights of all features."""
    ids = {
        "row": tf.constant(rng.integers(-9, 9, (size, 2))),
        "bag": bags(rng, size),
        "weighted": bags(rng, size),
        "most": bags(rng, size),
        "one_hot": tf.constant(rng.integers(0, 9, (size, 1))),
        "one_default": bags(rng, size, 3),
    }
    count = ids["weighted"].values.shape[0]
    weights = {
        "weighted": ids["weighted"].with_values(
            tf.constant(rng.normal(size=count), tf.float32)
        )
    }
    return ids, weights


@pytest.mark.parametrize("graph", [False, True], ids=["eager", "graph"])
@pytest.mark.parametrize("names", [[*FEATURES], SUMS], ids=["all", "sums"])
@pytest.mark.parametrize("plan", PLANS)
def test_a_collection_trains_as_on_the_cpu(rng, plan, names, graph):
    layers = [collection(None, names), collection(PLANS[plan], names)]
    batches = [a_batch(rng) for _ in range(3)]
    results = []
    for layer in layers:
        optimizer = lodestar.optimizers.Adagrad(0.1)

        def step(ids, weights, layer=layer, optimizer=optimizer):
            with tf.GradientTape() as tape:
                rows = layer(ids, weights)
                loss = tf.add_n(
                    [tf.reduce_sum(r**2) for r in tf.nest.flatten(rows)]
                )
            hooks = layer.trainable_variables
            optimizer.apply(tape.gradient(loss, hooks), hooks)
            return rows

        run = tf.function(step, reduce_retracing=True) if graph else step
        results.append([run(*batch) for batch in batches])
    for wanted, got in zip(*results, strict=True):
        for name in names:
            np.testing.assert_allclose(
                wanted[name], got[name], rtol=1e-5, atol=1e-6, err_msg=name
            )
            assert wanted[name].shape == got[name].shape
    for wanted, got in zip(layers[0].tables, layers[1].tables, strict=True):
        assert_same(wanted, got, exact=False)
    assert layers[0].stats() == layers[1].stats()
    layers[1].stats(reset=True)
    assert layers[1].stats()["bag"]["ids"] == 0
    ids, weights = a_batch(rng)
    for name, wanted in layers[0](ids, weights, training=False).items():
        np.testing.assert_allclose(
            wanted, layers[1](ids, weights, training=False)[name], atol=1e-5
        )


@DEVICES
@pytest.mark.parametrize(
    "dtype", [tf.float16, tf.bfloat16], ids=lambda d: d.name
)
def test_dtypes(devices, rng, dtype):
    cpu, gpu = table(dtype=dtype), table(devices, dtype=dtype)
    ids = bags(rng)
    for t in (cpu, gpu):
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(t.lookup(ids, combiner="mean") ** 2)
        gradient = tape.gradient(loss, [t])
        assert gradient[0].values.dtype == dtype
        lodestar.optimizers.SGD(0.1).apply(gradient, [t])
    a, b = content(cpu), content(gpu)
    np.testing.assert_array_equal(a["ids"], b["ids"])
    np.testing.assert_allclose(
        a["rows"].astype("float64"), b["rows"].astype("float64"), atol=1e-2
    )


@DEVICES
def test_errors_name_the_fault_of_a_batch(devices):
    layer = EmbeddingCollection(
        {"words": lodestar.Feature(table(devices), "mean")}
    )
    wrong = tf.RaggedTensor.from_row_splits(
        [1, 2, 3], [0, 5, 3], validate=False
    )
    with pytest.raises(tf.errors.InvalidArgumentError, match="'words'.*splits"):
        layer({"words": wrong}, training=True)
    right = tf.RaggedTensor.from_row_splits([1, 2, 3], [0, 2, 3])
    short = tf.RaggedTensor.from_row_splits([1.0], [0, 1], validate=False)
    with pytest.raises((ValueError, tf.errors.InvalidArgumentError)):
        layer({"words": right}, {"words": short})
    assert layer.tables[0].size() == 0


@DEVICES
def test_no_bags(devices):
    gpu = table(devices)
    none = tf.RaggedTensor.from_row_splits(tf.zeros([0], tf.int64), [0])
    assert gpu.lookup(none, combiner="mean", training=True).shape == (0, 4)
    empty = tf.RaggedTensor.from_row_splits(tf.zeros([0], tf.int64), [0, 0, 0])
    np.testing.assert_array_equal(
        gpu.lookup(empty, combiner="mean", training=True), np.zeros((2, 4))
    )


def test_layer_makes_its_tables_by_a_plan(rng):
    with tf.device("/CPU:0"):
        layer = EmbeddingCollection(
            {
                "user": lodestar.Feature(
                    output_dim=8, combiner="sum", expected_rows=10**9
                ),
                "item": lodestar.Feature(
                    output_dim=8, combiner="sum", expected_rows=10**6
                ),
                "word": lodestar.Feature(
                    output_dim=8, combiner="mean", expected_rows=10**6
                ),
            },
            devices=GPUS,
            plan={"word": "/GPU:1"},
        )
    plan = layer.plan
    assert len(plan["user"]) == 2
    assert plan["word"][0].endswith("GPU:1")
    assert plan["item"][0].endswith("GPU:0")
    ids = {name: bags(rng) for name in plan}
    rows = layer(ids, training=True)
    assert all(r.shape == (9, 8) for r in rows.values())
    again = EmbeddingCollection.from_config(layer.get_config())
    assert again.plan == plan
    assert again.features["user"].expected_rows == 10**9


def small_model(devices):
    """Returns a compiled click model over a collection."""
    keras.utils.set_random_seed(1)
    inputs = {
        "user": keras.Input((1,), dtype="int64"),
        "words": keras.Input((5,), dtype="int64"),
        "most": keras.Input((5,), dtype="int64"),
    }
    embed = EmbeddingCollection(
        {
            "user": lodestar.Feature(output_dim=4, combiner="sum"),
            "words": lodestar.Feature(
                output_dim=4, combiner="mean", padding_id=0
            ),
            "most": lodestar.Feature(output_dim=4, combiner="max"),
        },
        devices=devices,
        name="embed",
    )
    hidden = keras.layers.Concatenate()([*embed(inputs).values()])
    model = keras.Model(inputs, keras.layers.Dense(1)(hidden))
    model.compile(
        lodestar.optimizers.Adam(0.05),
        keras.losses.BinaryCrossentropy(from_logits=True),
    )
    return model, embed


def examples(rng):
    """Returns 64 examples of `small_model` in batches."""
    ids = {
        "user": rng.integers(0, 50, (64, 1)),
        "words": rng.integers(0, 30, (64, 5)),
        "most": rng.integers(0, 30, (64, 5)),
    }
    label = rng.integers(0, 2, (64, 1)).astype("float32")
    return tf.data.Dataset.from_tensor_slices((ids, label)).batch(16)


@pytest.mark.parametrize("plan", [GPUS[:1], GPUS], ids=["one", "two"])
def test_data_parallel_replicas_over_partitioned_tables(rng, plan):
    data = examples(rng)
    with tf.device("/CPU:0"):
        model, embed = small_model(None)
        wanted = model.fit(data, epochs=3, verbose=0).history["loss"]
    strategy = tf.distribute.MirroredStrategy(
        GPUS, cross_device_ops=tf.distribute.ReductionToOneDevice()
    )
    with strategy.scope():
        model, spread = small_model(plan)
    got = model.fit(data, epochs=3, verbose=0).history["loss"]
    np.testing.assert_allclose(got, wanted, rtol=1e-5)
    for on_cpu, on_gpus in zip(embed.tables, spread.tables, strict=True):
        assert_same(on_cpu, on_gpus, exact=False, atol=1e-5)


def test_a_model_fits_and_loads_on_the_cpu(rng, tmp_path):
    data = examples(rng)
    losses = []
    with tf.device("/CPU:0"):
        for where in (None, GPUS[:1], GPUS):
            made, _ = small_model(where)
            losses.append(made.fit(data, epochs=3, verbose=0).history["loss"])
        other, _ = small_model(None)
    np.testing.assert_allclose(losses[0], losses[1], rtol=1e-4)
    np.testing.assert_allclose(losses[0], losses[2], rtol=1e-4)
    assert losses[0][-1] < losses[0][0]
    made.save_weights(tmp_path / "model.weights.h5")
    other.load_weights(tmp_path / "model.weights.h5")
    np.testing.assert_allclose(
        made.predict(data, verbose=0),
        other.predict(data, verbose=0),
        rtol=1e-5,
        atol=1e-5,
    )
