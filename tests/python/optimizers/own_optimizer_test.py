"""Tests of tables that own their optimizer, under a plain Keras optimizer."""

import gc

import keras
import numpy as np
import own_optimizers
import pytest
import tensorflow as tf
import two_replicas

import lodestar

K = keras.optimizers
IDS = np.arange(60).reshape(20, 3) % 17
LABELS = (IDS.sum(1, keepdims=True) % 5).astype(np.float32)


def make(own, compiled, eager=False, **options):
    keras.utils.set_random_seed(1)
    layer = lodestar.layers.DynamicEmbedding(
        4, combiner="sum", optimizer=own, seed=1, name="embed"
    )
    ids = keras.Input((3,), dtype="int64")
    model = keras.Model(ids, keras.layers.Dense(1)(layer(ids)))
    model.compile(compiled, "mse", run_eagerly=eager, **options)
    return model


def train(model, epochs=3, batch_size=5):
    model.fit(IDS, LABELS, batch_size, epochs, verbose=0, shuffle=False)
    table = model.get_layer("embed").table
    exported = table.export()
    return [
        exported.rows.numpy(),
        *[slot.numpy() for slot in exported.optimizer_slots.values()],
        *model.layers[-1].get_weights(),
    ]


def assert_equal(left, right):
    for a, b in zip(left, right, strict=True):
        np.testing.assert_array_equal(a, b)


SCHEDULE = K.schedules.ExponentialDecay(0.5, 2, 0.5)
OWN = {
    "adagrad": lambda: "adagrad",
    "adam": lambda: K.Adam(0.05),
    "schedule": lambda: K.SGD(SCHEDULE, momentum=0.9),
    "nadam": lambda: K.Nadam(0.05),
    "decayed": lambda: K.AdamW(0.05, weight_decay=0.1),
    "replayed": lambda: own_optimizers.Own(0.05),
    "of ours": lambda: lodestar.optimizers.Lion(0.05),
    "config": lambda: K.serialize(K.RMSprop(0.05)),
}


@pytest.mark.parametrize(
    "name, eager",
    [
        *((name, False) for name in ("schedule", "nadam", "replayed")),
        *((name, True) for name in OWN if name not in ("schedule", "nadam")),
    ],
)
def test_rows_are_those_of_an_optimizer_for_tables(name, eager):
    plain = train(make(OWN[name](), K.Adam(0.01), eager))
    joint = train(make(OWN[name](), lodestar.optimizers.Adam(0.01), eager))
    assert_equal(plain, joint)


@pytest.mark.parametrize("compiled", ["adafactor", K.Muon])
def test_any_optimizer_trains_the_dense_weights(compiled):
    model = make(
        "adagrad", compiled if isinstance(compiled, str) else compiled()
    )
    rows = train(model, 1)[0]
    assert_equal([rows[:, 0] != train(model, 1)[0][:, 0]], [np.ones(17, bool)])
    assert int(model.get_layer("embed").table.step) == 8
    assert int(model.get_layer("embed").optimizer.iterations) == 8


def test_several_tables_and_a_shared_one():
    shared = lodestar.EmbeddingVariable(2, optimizer="sgd", name="shared")
    ids = keras.Input((3,), dtype="int64")
    parts = [
        lodestar.layers.DynamicEmbedding(table=shared, combiner="sum")(ids),
        lodestar.layers.DynamicEmbedding(table=shared, combiner="max")(ids),
        lodestar.layers.EmbeddingCollection(
            {
                "a": lodestar.Feature(
                    output_dim=2, combiner="sum", optimizer="adam"
                )
            }
        )({"a": ids})["a"],
    ]
    model = keras.Model(
        ids, keras.layers.Dense(1)(keras.ops.concatenate(parts, -1))
    )
    model.compile("adam", "mse")
    before = shared.lookup(np.arange(17)).numpy()
    model.fit(IDS, LABELS, verbose=0)
    assert int(shared.step) == 1
    assert np.all(shared.lookup(np.arange(17)).numpy() != before)


@pytest.mark.parametrize("graph", [False, True])
@pytest.mark.parametrize("way", ["apply", "apply_gradients"])
def test_loop_of_the_users_own(graph, way):
    table = lodestar.EmbeddingVariable(
        2, embeddings_initializer="zeros", optimizer=K.SGD(1.0), name="t"
    )
    dense, optimizer = keras.Variable([1.0, 2.0]), K.SGD(0.5)

    @(tf.function if graph else lambda step: step)
    def step():
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(table.lookup([1, 2, 1], True) * dense.value)
        variables = [table, dense]
        gradients = tape.gradient(loss, variables)
        if way == "apply":
            optimizer.apply(gradients, variables)
        else:
            optimizer.apply_gradients(zip(gradients, variables, strict=True))

    step()
    np.testing.assert_allclose(table.lookup([1, 2]), [[-2, -4], [-1, -2]])
    step()
    assert int(table.step) == 2


REFUSED = {
    "clipnorm": lambda: K.SGD(clipnorm=1.0),
    "clipvalue": lambda: K.Adam(clipvalue=1.0),
    "global_clipnorm": lambda: K.SGD(global_clipnorm=1.0),
    "loss_scale_factor": lambda: K.SGD(loss_scale_factor=4.0),
    "gradient_accumulation_steps": lambda: K.Adam(
        gradient_accumulation_steps=2
    ),
    "LossScaleOptimizer": lambda: K.LossScaleOptimizer(K.SGD()),
}


@pytest.mark.parametrize(
    "name, eager",
    [(name, i % 2 == 0) for i, name in enumerate(REFUSED)],
)
def test_unsupported_options_are_refused(name, eager):
    gc.collect()  # optimizers of other tests, which could take the gradient
    model = make("adagrad", REFUSED[name](), eager)
    before = model.get_layer("embed").table.lookup(IDS).numpy()
    with pytest.raises(Exception, match="lodestar.optimizers"):
        model.fit(IDS, LABELS, verbose=0)
    table = model.get_layer("embed").table
    assert int(table.step) == 0
    np.testing.assert_array_equal(table.lookup(IDS[:0]), before[:0])


def test_mixed_float16_names_the_line():
    keras.config.set_dtype_policy("mixed_float16")
    try:
        model = make("adagrad", "adam")
        with pytest.raises(RuntimeError) as raised:
            model.fit(IDS, LABELS, verbose=0)
        line = "optimizer=lodestar.optimizers.LossScaleOptimizer(lodestar."
        assert line in str(raised.value)
    finally:
        keras.config.set_dtype_policy("float32")


@pytest.mark.parametrize("nonfinite", ["raise", "skip"])
def test_nonfinite_gradients(nonfinite):
    own = lodestar.optimizers.SGD(0.1, nonfinite=nonfinite)
    model = make(own, "sgd")
    labels = np.full_like(LABELS, np.inf)
    if nonfinite == "raise":
        with pytest.raises(
            tf.errors.InvalidArgumentError, match="not finite|id"
        ):
            model.fit(IDS, labels, verbose=0)
    else:
        model.fit(IDS, labels, verbose=0)
    assert np.isfinite(model.get_layer("embed").table.export().rows).all()


@pytest.mark.parametrize("name", ["m.keras", "m.weights.h5", "checkpoint"])
def test_training_resumes_exactly(tmp_path, name):
    own = OWN["nadam"]
    whole = make(own(), K.Adam(0.01))
    expected = train(whole, 4)
    first = make(own(), K.Adam(0.01))
    train(first, 2)
    path = tmp_path / name
    if name == "m.keras":
        first.save(path)
        again = keras.saving.load_model(path)
        assert type(again.optimizer) is K.Adam
    else:
        again = make(own(), K.Adam(0.01))
        again.optimizer.build(again.trainable_variables)
        if name == "checkpoint":
            saved = tf.train.Checkpoint(model=first).save(path)
            tf.train.Checkpoint(model=again).restore(saved)
        else:
            first.save_weights(path)
            again.load_weights(path)
            for old, new in zip(
                first.optimizer.variables,
                again.optimizer.variables,
                strict=True,
            ):
                new.assign(old)
    assert_equal(train(again, 2), expected)


def test_replicas_apply_it_once():
    with two_replicas.two_replicas().scope():
        several = make("adagrad", K.SGD(0.01))
    one = make("adagrad", K.SGD(0.01))
    for a, b in zip(train(several, 3, 4), train(one, 3, 4), strict=True):
        np.testing.assert_allclose(a, b, 1e-4, 1e-6)
    assert int(several.get_layer("embed").table.step) == 15


def test_a_frozen_table_stays():
    model = make("adagrad", "adam")
    layer = model.get_layer("embed")
    layer.table.lookup(IDS, training=True)
    layer.trainable = False
    model.compile("adam", "mse")
    before = layer.table.export().rows
    model.fit(IDS, LABELS, verbose=0)
    np.testing.assert_array_equal(before, layer.table.export().rows)
