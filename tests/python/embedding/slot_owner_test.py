"""Tests of tables that another optimizer continues to train."""

import threading
import warnings

import keras
import numpy as np
import pytest
import tensorflow as tf

import lodestar
from lodestar.snapshot import saving

IDS = np.arange(12).reshape(4, 3)
Y = np.sin(np.arange(4.0)).reshape(4, 1)
KINDS = {
    "sgd": set(),
    "adagrad": {"accumulator"},
    "adam": {"momentum", "velocity"},
    "rmsprop": {"velocity"},
}
wrap = lodestar.optimizers.wrap


class Own(keras.optimizers.Optimizer):
    """An unfused optimizer."""

    def build(self, variables):
        super().build(variables)
        self.sums = self.add_optimizer_variables(variables, "sum")

    def update_step(self, gradient, variable, learning_rate):
        total = self.sums[self._get_variable_index(variable)]
        self.assign_add(total, gradient)
        self.assign_sub(variable, learning_rate * total)


def make(dense=False, **of_table):
    """Returns a model with a dynamic embedding or Keras's Embedding."""
    ids = keras.Input((3,), dtype="int64")
    if dense:
        rows = keras.layers.Embedding(12, 2, "ones", name="rows")(ids)
        rows = keras.ops.sum(rows, 1)
    else:
        rows = lodestar.layers.DynamicEmbedding(
            2,
            embeddings_initializer="ones",
            combiner="sum",
            name="rows",
            **of_table,
        )(ids)
    scores = keras.layers.Dense(1, kernel_initializer="ones", name="dense")
    return keras.Model(ids, scores(rows))


def fit(model, optimizer=None, epochs=2, eager=True):
    """Trains on all rows in each step."""
    if optimizer is not None:
        model.compile(optimizer, "mse", run_eagerly=eager)
    model.fit(IDS, Y, epochs=epochs, verbose=0)


def table_of(model):
    return model.get_layer("rows").table


def slots_of(model):
    return {
        name: value.numpy()
        for name, value in table_of(model).export().optimizer_slots.items()
    }


@pytest.fixture(autouse=True)
def no_warning():
    """Fails if slots are dropped unexpectedly."""
    with warnings.catch_warnings():
        warnings.filterwarnings("error", ".*fresh slots")
        yield


def dropped(*names):
    return pytest.warns(UserWarning, match=rf"\({', '.join(names)}\) were drop")


@pytest.mark.parametrize(
    "before, after",
    [
        ("sgd", "adam"),
        ("adam", "rmsprop"),
        ("adagrad", "adagrad"),
    ],
)
def test_a_new_optimizer_starts_as_it_does_for_a_dense_matrix(before, after):
    model, dense = make(), make(dense=True)
    fit(model, wrap(optimizer(before)), eager=False)
    fit(dense, optimizer(before))
    if KINDS[before]:
        with dropped(before):
            fit(model, wrap(optimizer(after)), eager=False)
    else:
        fit(model, wrap(optimizer(after)), eager=False)
    fit(dense, optimizer(after))
    assert set(slots_of(model)) == KINDS[after]
    np.testing.assert_allclose(
        table_of(model).export().rows,
        dense.get_layer("rows").embeddings.numpy(),
        0,
        1e-5,
    )
    np.testing.assert_allclose(
        model.get_layer("dense").kernel,
        dense.get_layer("dense").kernel,
        0,
        1e-5,
    )
    assert int(table_of(model).step) == 4  # the count does not restart


def optimizer(name):
    return keras.optimizers.get(
        {"class_name": name, "config": {"learning_rate": 0.05}}
    )


def test_there_is_one_warning_for_all_tables():
    features = {
        name: lodestar.Feature(
            lodestar.EmbeddingVariable(2, name=name), combiner="sum"
        )
        for name in "ab"
    }
    ids = keras.Input((3,), dtype="int64")
    rows = lodestar.layers.EmbeddingCollection(features)({"a": ids, "b": ids})
    model = keras.Model(ids, keras.layers.Dense(1)(rows["a"] + rows["b"]))
    fit(model, wrap("adagrad"))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        fit(model, wrap("adam"))
    (text,) = [str(w.message) for w in caught if "fresh slots" in str(w)]
    assert "'a'" in text and "'b'" in text and "(adagrad)" in text


def test_the_same_optimizer_keeps_its_slots():
    inner = keras.optimizers.Adam(0.1)
    model = make()
    fit(model, wrap(inner))
    before = slots_of(model)
    model.compile(wrap(inner), "mse")  # in another wrapper
    inner.learning_rate = 0.0
    fit(model, epochs=1)
    assert np.abs(slots_of(model)["velocity"]).min() > 0
    assert not np.array_equal(slots_of(model)["velocity"], before["velocity"])
    assert int(inner.iterations) == 3


def test_unfused_optimizers():
    model = make()
    fit(model, wrap(Own(0.1)))
    assert set(slots_of(model)) == {"sum"}
    with dropped("replay:Own"):
        fit(model, wrap("adagrad"))
    with dropped("adagrad"):
        fit(model, wrap(Own(0.1)), epochs=1)
    assert set(slots_of(model)) == {"sum"}


def test_gradients_that_wait_stay_with_their_optimizer():
    waits = keras.optimizers.SGD(0.1, gradient_accumulation_steps=2)
    model = make()
    fit(model, wrap(waits), epochs=1)
    rows = table_of(model).export().rows.numpy()
    np.testing.assert_array_equal(rows, 1)
    fit(model, wrap(keras.optimizers.Adam(0.0)))
    np.testing.assert_array_equal(table_of(model).export().rows, rows)


def test_loss_scaling():
    model = make()
    scaled = lodestar.optimizers.LossScaleOptimizer
    fit(model, scaled(wrap("adagrad")))
    with dropped("adagrad"):
        fit(model, scaled(wrap("adam")))
    assert set(slots_of(model)) == {"momentum", "velocity"}


# Restored slots.


def saved(tmp_path, kind="adagrad"):
    model = make()
    fit(model, wrap(kind))
    model.save(tmp_path / "m.keras")
    return model, tmp_path / "m.keras"


@pytest.mark.parametrize("kind, compiled", [("adam", True), ("adagrad", False)])
def test_a_loaded_model_with_a_new_optimizer(kind, compiled, tmp_path):
    _, path = saved(tmp_path)
    loaded = keras.saving.load_model(path, compile=compiled)
    with dropped("adagrad"):
        fit(loaded, wrap(kind))
    assert set(slots_of(loaded)) == KINDS[kind]


def test_a_loaded_model_that_was_trained_by_sgd(tmp_path):
    _, path = saved(tmp_path, "sgd")
    fit(keras.saving.load_model(path, compile=False), wrap("adam"))
    other = make()
    other.compile(wrap("adam"), "mse")
    other.load_weights(path)
    fit(other)
    assert set(slots_of(other)) == KINDS["adam"]


def test_a_checkpoint_with_its_optimizer_resumes(tmp_path):
    model, _ = saved(tmp_path, "adam")
    path = tf.train.Checkpoint(model=model, optimizer=model.optimizer).save(
        str(tmp_path / "c")
    )
    other = make()
    fit(other, wrap("adam"))  # but another optimizer resumes
    other.compile(wrap("adam"), "mse")
    tf.train.Checkpoint(model=other, optimizer=other.optimizer).restore(path)
    fit(model)
    fit(other)
    for name, slot in slots_of(model).items():
        np.testing.assert_array_equal(slots_of(other)[name], slot)


def slices(ids=(1, 2)):
    return tf.IndexedSlices(
        tf.ones([len(ids), 2]),
        tf.constant(ids, tf.int64),
        tf.constant([-1, 2], tf.int32),
    )


def train(table, optimizer):
    table.lookup([1, 2], training=True)
    optimizer.apply([slices()], [table])


def accumulator(table):
    return float(table.export().optimizer_slots["accumulator"][0, 0])


def test_a_restored_table_without_dense_weights_keeps_its_slots(tmp_path):
    table = lodestar.EmbeddingVariable(2, name="t")
    train(table, wrap("adagrad"))
    lodestar.snapshot.save({"t": table}, str(tmp_path))
    other = lodestar.EmbeddingVariable(2, name="t")
    lodestar.snapshot.restore({"t": other}, str(tmp_path))
    train(other, wrap("adagrad"))
    assert accumulator(other) == pytest.approx(2.1)


def test_a_restore_after_the_optimizer_was_made_is_refused(tmp_path):
    table = lodestar.EmbeddingVariable(2, name="t")
    train(table, wrap("adagrad"))
    lodestar.snapshot.save({"t": table}, str(tmp_path))
    other, adam = lodestar.EmbeddingVariable(2, name="t"), wrap("adam")
    lodestar.snapshot.restore({"t": other}, str(tmp_path))
    for _ in range(2):
        with pytest.raises(
            tf.errors.FailedPreconditionError,
            match="'adagrad', but the update uses 'adam'",
        ):
            train(other, adam)
    assert accumulator(other) == pytest.approx(1.1)
    with dropped("adagrad"):
        train(other, wrap("adam"))


# Two optimizers at the same time.


@pytest.mark.parametrize("graph", [False, True])
def test_the_former_optimizer_is_refused(graph):
    table = lodestar.EmbeddingVariable(2)

    def step_of(optimizer):
        def step():
            train(table, optimizer)

        return tf.function(step) if graph else step

    steps = [step_of(wrap(name)) for name in ("adagrad", "adam")]
    steps[0]()
    with dropped("adagrad"):
        steps[1]()
    before = table.export()
    for _ in range(2):
        with pytest.raises(
            tf.errors.FailedPreconditionError,
            match="slots of 'adam', but the update uses 'adagrad'",
        ):
            steps[0]()
    np.testing.assert_array_equal(table.export().rows, before.rows)
    steps[1]()


def test_a_former_optimizer_does_not_get_the_table_back():
    table = lodestar.EmbeddingVariable(2)
    adagrad, sgd = wrap("adagrad"), wrap("sgd")
    train(table, adagrad)
    with dropped("adagrad"):
        train(table, sgd)
    with pytest.raises(
        tf.errors.FailedPreconditionError,
        match="of 'sgd', but the update uses 'adagrad'",
    ):
        train(table, adagrad)
    train(table, sgd)
    assert table.export().optimizer == "sgd"


def test_former_optimizers_of_one_kind_share_slots():
    table = lodestar.EmbeddingVariable(2)
    both = [wrap(keras.optimizers.Adagrad(1.0)) for _ in range(2)]
    train(table, both[0])
    with dropped("adagrad"):
        train(table, both[1])
    for step in range(4):
        train(table, both[step % 2])
    assert accumulator(table) == pytest.approx(5.1)


def test_optimizers_without_slots_may_train_one_table_in_turn():
    table = lodestar.EmbeddingVariable(2, embeddings_initializer="zeros")
    both = [wrap(keras.optimizers.SGD(1.0)) for _ in range(2)]
    for step in range(4):
        train(table, both[step % 2])
    np.testing.assert_array_equal(table.export().rows, np.full([2, 2], -4.0))
    assert int(table.step) == 4


def test_two_models_share_the_optimizer_of_a_table():
    table = lodestar.EmbeddingVariable(
        2,
        embeddings_initializer="ones",
        optimizer=keras.optimizers.Adagrad(1.0),
    )
    both = [wrap("adam"), wrap("rmsprop")]
    for step in range(4):
        train(table, both[step % 2])
    assert accumulator(table) == pytest.approx(4.1)


def test_a_table_is_taken_over_while_threads_train():
    table = lodestar.EmbeddingVariable(2)
    former, error = wrap("adagrad"), []
    train(table, former)
    begun = threading.Event()

    def go_on():
        try:
            while True:
                train(table, former)
                begun.set()
        except tf.errors.FailedPreconditionError as refused:
            error.append(refused)

    threads = [threading.Thread(target=go_on, daemon=True) for _ in range(3)]
    for thread in threads:
        thread.start()
    assert begun.wait(60)
    adam = wrap("adam")
    with dropped("adagrad"):
        train(table, adam)
    for thread in threads:
        thread.join(60)
    assert len(error) == 3
    train(table, adam)
    assert table.export().optimizer == "adam"
    velocity = table.export().optimizer_slots["velocity"].numpy()
    np.testing.assert_allclose(velocity, 1 - 0.999**2, 1e-3)


# Snapshots.


def test_slots_change_after_a_snapshot_that_is_running(tmp_path, monkeypatch):
    table = lodestar.EmbeddingVariable(2, name="t")
    train(table, wrap("adagrad"))
    write, waits = saving.snapshot_ops.write, threading.Event()

    def held(*arguments):
        assert waits.wait(60)
        return write(*arguments)

    monkeypatch.setattr(saving.snapshot_ops, "write", held)
    pending = lodestar.snapshot.save(
        {"t": table}, str(tmp_path), blocking=False
    )

    def take_over():
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            train(table, wrap("adam"))

    thread = threading.Thread(target=take_over, daemon=True)
    thread.start()
    waits.set()
    pending.wait()
    thread.join(60)
    assert not thread.is_alive()
    assert table.export().optimizer == "adam"
    restored = lodestar.EmbeddingVariable(2, name="t")
    lodestar.snapshot.restore({"t": restored}, str(tmp_path))
    assert restored.export().optimizer == "adagrad"
    assert accumulator(restored) == pytest.approx(1.1)


@pytest.mark.parametrize("kind", ["adam", "adagrad"])
def test_the_next_snapshot_is_full(kind, tmp_path):
    table = lodestar.EmbeddingVariable(2, name="t")
    table.lookup(np.arange(100), training=True)
    path, tables = str(tmp_path), {"t": table}
    train(table, wrap("adagrad"))
    lodestar.snapshot.save(tables, path)
    with dropped("adagrad"):
        train(table, wrap(kind))
    lodestar.snapshot.save(tables, path, delta=True)
    restored = lodestar.EmbeddingVariable(2, name="t")
    lodestar.snapshot.restore({"t": restored}, path)
    wanted, found = table.export(), restored.export()
    assert found.optimizer == kind
    np.testing.assert_array_equal(found.rows, wanted.rows)
    for name, slot in wanted.optimizer_slots.items():
        np.testing.assert_array_equal(found.optimizer_slots[name], slot)


# Frozen tables, and tables on several devices.


def test_a_frozen_table_keeps_its_slots():
    model = make()
    fit(model, wrap("adagrad"))
    before = slots_of(model)["accumulator"]
    model.get_layer("rows").trainable = False
    fit(model, wrap("adam"))
    np.testing.assert_array_equal(slots_of(model)["accumulator"], before)
    model.get_layer("rows").trainable = True
    with dropped("adagrad"):
        fit(model, wrap("adam"))


def test_all_parts_of_a_table_start_afresh():
    table = lodestar.EmbeddingVariable(2, devices=["/CPU:0", "/CPU:0"])
    ids = np.arange(20)
    table.lookup(ids, training=True)
    wrap("adagrad").apply([slices(ids)], [table])
    with dropped("adagrad"):
        wrap("adam").apply([slices(ids)], [table])
    velocity = table.export().optimizer_slots["velocity"].numpy()
    np.testing.assert_allclose(velocity, 0.001, 1e-3)
