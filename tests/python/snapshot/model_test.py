"""Snapshots of whole models: training resumes as if uninterrupted."""

import os
import threading

import keras
import numpy as np
import pytest
import snapshot_tables as st
import tensorflow as tf

import lodestar
from lodestar import snapshot
from lodestar.embedding.table_variable import as_table
from lodestar.ops import snapshot_ops


def model(optimizer="adam", units=3, features=("user",), **options):
    keras.utils.set_random_seed(3)
    ids = keras.Input((2,), dtype="int64", name="ids")
    rows = [
        lodestar.layers.DynamicEmbedding(4, combiner="sum", name=name)(ids)
        for name in features
    ]
    x = keras.layers.Dense(units, name="hidden")(sum(rows))
    x = keras.layers.Dropout(0.3, seed=1)(x)
    x = keras.layers.BatchNormalization()(x)
    m = keras.Model(ids, keras.layers.Dense(1)(x))
    inner = keras.optimizers.get(
        {"class_name": optimizer, "config": {"learning_rate": 0.05, **options}}
    )
    m.compile(lodestar.optimizers.wrap(inner), "mse")
    return m


def batches(window=100):
    rng = np.random.default_rng(5)
    ids = rng.integers(0, 200, (400, 2))
    y = rng.normal(size=(400, 1)).astype(np.float32)
    data = tf.data.Dataset.from_tensor_slices((ids, y))
    return data.shuffle(window, seed=2).repeat().batch(8)


def state(m):
    """Returns the complete state of training, for bitwise comparison."""
    variables = list(m.variables) + list(m.optimizer.variables)
    variables = [v for v in variables if as_table(v) is None]
    tables = [layer.table for layer in m.layers if hasattr(layer, "table")]
    return [v.numpy().tobytes() for v in variables], [
        st.content(t) for t in tables
    ]


def train(m, reader, steps):
    for _ in range(steps):
        m.train_on_batch(*next(reader))


@pytest.mark.parametrize(
    "options",
    [
        {"optimizer": "adagrad", "clipnorm": 1.0},
        {"optimizer": "nadam"},
        {"optimizer": "sgd", "gradient_accumulation_steps": 3},
    ],
    ids=str,
)
def test_resumed_training_is_bitwise_equal(path, options):
    whole, reader = model(**options), iter(batches())
    train(whole, reader, 5)
    info = snapshot.save(whole, path, iterator=reader)
    assert info.step == int(whole.optimizer.iterations)
    train(whole, reader, 5)
    snapshot.save(whole, path, delta=True, iterator=reader)
    train(whole, reader, 5)
    for version in (1, 2):
        resumed, reader = model(**options), iter(batches())
        train(resumed, reader, 2)  # its previous state does not matter
        report = snapshot.restore(
            resumed, path, version=version, iterator=reader
        )
        assert report.initial == () and report.ignored == ()
        train(resumed, reader, 15 - 5 * version)
        assert state(resumed) == state(whole)


@pytest.mark.parametrize("steps", [0, 3])
def test_an_untrained_model_restores_everything(path, steps):
    first, reader = model(), iter(batches())
    train(first, reader, steps)
    snapshot.save(first, path)
    second = model()
    snapshot.restore(second, path)
    assert state(second) == state(first)


def test_resumable_dataset_in_fit(path):
    data = batches(window=1)
    whole, reader = model(), snapshot.ResumableDataset(data)
    whole.fit(reader, steps_per_epoch=4, epochs=2, verbose=0)
    snapshot.save(whole, path, iterator=reader)
    whole.fit(reader, steps_per_epoch=4, epochs=2, verbose=0)
    resumed, reader = model(), snapshot.ResumableDataset(data)
    snapshot.restore(resumed, path, iterator=reader)
    resumed.fit(reader, steps_per_epoch=8, verbose=0)
    assert state(resumed) == state(whole)
    # Together, the batches cover the data once.
    ids, _ = next(iter(batches(window=1).skip(16)))
    np.testing.assert_array_equal(next(iter(reader))[0], ids)


def test_a_layers_own_optimizer_is_saved(path):
    def make():
        ids = keras.Input((2,), dtype="int64")
        rows = lodestar.layers.DynamicEmbedding(
            4, combiner="sum", name="user", optimizer=keras.optimizers.Adam(0.1)
        )(ids)
        m = keras.Model(ids, keras.layers.Dense(1)(rows))
        m.compile(lodestar.optimizers.SGD(), "mse")
        return m

    whole, reader = make(), iter(batches())
    train(whole, reader, 3)
    whole.get_layer("user").optimizer.learning_rate = 0.02
    snapshot.save(whole, path)
    resumed = make()
    snapshot.restore(resumed, path)
    own = resumed.get_layer("user").optimizer
    assert float(own.learning_rate) == pytest.approx(0.02)
    batch = next(reader)
    for m in (whole, resumed):
        m.train_on_batch(*batch)
    assert state(resumed) == state(whole)


def test_a_new_feature_and_another_optimizer(path):
    old, reader = model("adagrad"), iter(batches())
    train(old, reader, 3)
    snapshot.save(old, path)
    new = model("adam", features=("user", "item"))
    bias = new.optimizer
    report = snapshot.restore(
        new, path, on_missing="init", optimizer_slots="reset"
    )
    assert report.restored == {"user": int(old.get_layer("user").table.size())}
    assert report.initial == ("item",)
    assert len(report.ignored) == len(old.optimizer.variables)
    np.testing.assert_array_equal(
        new.get_layer("hidden").kernel.numpy(),
        old.get_layer("hidden").kernel.numpy(),
    )
    assert int(bias.iterations) == 0
    assert new.get_layer("user").table.export().optimizer == ""
    train(new, reader, 2)
    assert new.get_layer("user").table.export().optimizer == "adam"


def test_a_snapshot_of_one_model_does_not_stop_another(path, monkeypatch):
    ids, y = np.arange(60000).reshape(-1, 2), np.zeros((30000, 1))
    saved, other = model(), model()
    for m in (saved, other):
        m.train_on_batch(ids, y)
    write, released = snapshot_ops.write, threading.Event()

    def wait_and_write(*arguments):
        assert released.wait(300)
        return write(*arguments)

    def start(m):
        steps = [(ids, y)] * 2
        thread = threading.Thread(
            target=train, args=(m, iter(steps), 2), daemon=True
        )
        thread.start()
        return thread

    monkeypatch.setattr(snapshot_ops, "write", wait_and_write)
    pending = snapshot.save(saved, path, blocking=False)
    try:
        # Its copies of changed rows exceed their limit.
        waiting, free = start(saved), start(other)
        free.join(60)
        assert not free.is_alive()
        assert waiting.is_alive()
    finally:
        released.set()
    pending.wait()
    waiting.join(60)
    assert not waiting.is_alive()


def _refused(path, m, message, kind=snapshot.SnapshotError, **options):
    m.optimizer.build(m.trainable_variables)
    before = state(m)
    with pytest.raises(kind, match=message):
        snapshot.restore(m, path, **options)
    assert state(m) == before


def test_mismatches_are_named(path):
    old, reader = model("adagrad"), iter(batches())
    train(old, reader, 3)
    snapshot.save(old, path)
    _refused(
        path, model("adam"), "optimizer has the variables 'adagrad.* 'adam"
    )
    _refused(
        path,
        model("adagrad", units=5),
        r"'hidden/kernel' has shape \(4, 3\) and dtype float32 in the snapshot, "
        r"but shape \(4, 5\)",
    )
    _refused(
        path, model("adagrad", features=("user", "item")), "has no table 'item'"
    )
    _refused(path, model("adagrad", features=("item",)), "has no table 'item'")
    _refused(
        path,
        model("adagrad"),
        "has no reader position; it was saved without `iterator`",
        iterator=iter(batches()),
    )
    _refused(path, model("adagrad"), "has no version 7", version=7)


def test_weights_too_many_or_missing_are_named(path):
    snapshot.save(model(), path)
    other = model()
    x = keras.layers.Dense(1, name="extra")(other.outputs[0])
    bigger = keras.Model(other.inputs, x)
    bigger.compile(lodestar.optimizers.Adam(), "mse")
    _refused(
        path, bigger, "has no weights 'extra/kernel', 'extra/bias'; it has"
    )
    report = snapshot.restore(
        bigger, path, on_missing="init", optimizer_slots="reset"
    )
    assert report.initial == ("extra/kernel", "extra/bias")
    snapshot.save(bigger, path)
    smaller = keras.Model(other.inputs, other.outputs)
    smaller.compile(lodestar.optimizers.Adam(), "mse")
    _refused(
        path, smaller, "has the weights 'extra/kernel', 'extra/bias', which"
    )
    report = snapshot.restore(
        smaller, path, on_extra="ignore", optimizer_slots="reset"
    )
    assert report.ignored[:2] == ("extra/kernel", "extra/bias")


def test_a_model_without_an_optimizer_restores_no_optimizer(path):
    old, reader = model(), iter(batches())
    train(old, reader, 2)
    snapshot.save(old, path)
    new = model()
    new.optimizer = None
    report = snapshot.restore(new, path)
    assert len(report.ignored) == len(old.optimizer.variables)
    x = np.array([[1, 2]])
    np.testing.assert_array_equal(
        new(x, training=False), old(x, training=False)
    )


def test_a_model_that_was_never_compiled(path):
    def make():
        compiled = model()
        return keras.Model(compiled.inputs, compiled.outputs)

    old, ids = make(), np.array([[1, 2]])
    old.get_layer("user").table.lookup([1, 2], training=True)
    assert snapshot.save(old, path).step == 0
    snapshot.save(old, path, delta=True)
    new = make()
    report = snapshot.restore(new, path)
    assert report.restored == {"user": 2} and report.ignored == ()
    np.testing.assert_array_equal(
        new(ids, training=False), old(ids, training=False)
    )
    # And by a compiled model.
    trained, reader = model(), iter(batches())
    train(trained, reader, 1)
    snapshot.save(trained, path)
    report = snapshot.restore(new, path)
    assert len(report.ignored) == len(trained.optimizer.variables)
    np.testing.assert_array_equal(
        new(ids, training=False), trained(ids, training=False)
    )


def test_a_damaged_place_of_the_reader(path):
    m, reader = model(), iter(batches())
    info = snapshot.save(m, path, iterator=reader)
    (name,) = [n for n in os.listdir(info.path) if n.startswith("reader.data")]
    with open(os.path.join(info.path, name), "r+b") as file:
        file.write(b"\xff")
    _refused(
        path,
        model(),
        f"{name}: bytes 0 to",
        snapshot.CorruptSnapshotError,
        iterator=reader,
    )
    with pytest.raises(snapshot.CorruptSnapshotError, match=name):
        snapshot.verify(path)


@pytest.mark.parametrize("call", [snapshot.save, snapshot.restore])
def test_bad_arguments(path, call):
    snapshot.save(model(), path)
    for m, options, message in (
        (
            keras.Sequential([keras.layers.Dense(1)]),
            {},
            "is not built. Call it",
        ),
        (
            model(),
            {"iterator": batches()},
            "`iterator` must be a lodestar.* got <",
        ),
        (model(), {"iterator": 3}, "`iterator` must be .* got 3"),
    ):
        with pytest.raises(ValueError, match=message):
            call(m, path, **options)
    for arguments, message in (
        ((path, model()), r"Pass the model first: .*\(model, path\)"),
        ((model(), None), "`path` must be a path, got a NoneType"),
    ):
        with pytest.raises(TypeError, match=message):
            call(*arguments)


def test_a_model_without_tables_is_refused(path):
    m = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
    with pytest.raises(ValueError, match="holds no table"):
        snapshot.save(m, path)


def test_additional_arrays(path):
    m = model()  # compiled, but never trained: the optimizer is not built
    snapshot.save(m, path, dense={"sum": np.arange(3.0)})
    assert st.dense(path)["sum"].tolist() == [0.0, 1.0, 2.0]
    snapshot.restore(m, path)
    with pytest.raises(ValueError, match="`dense` must be a dict"):
        snapshot.save(m, path, dense=[1.0])
