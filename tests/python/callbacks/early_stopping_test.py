"""Compares early stopping with tables to Keras's early stopping."""

import os

import keras
import numpy as np
import pytest
import tensorflow as tf

import lodestar

X = np.arange(24).reshape(8, 3)
Y = np.sin(np.arange(8.0)).reshape(8, 1)
OPTIONS = [
    {"patience": 1, "start_from_epoch": 2},
    {"patience": 3, "mode": "max", "min_delta": 0.01},
    {"patience": 50},
]
# By epoch.
VALUES = [0.9, 0.6, 0.7, 0.5, 0.8, 0.95, 0.3, 0.4]


class Scripted(keras.callbacks.Callback):
    """Reports scripted values of the monitor, and records each epoch's end."""

    def __init__(self, look):
        super().__init__()
        self.look = look
        self.seen = []

    def on_epoch_end(self, epoch, logs=None):
        logs["score"] = VALUES[epoch]
        self.seen.append(self.look(self.model))


class New(keras.callbacks.Callback):
    """Adds ids in each epoch, and removes one."""

    def on_epoch_begin(self, epoch, logs=None):
        table = self.model.get_layer("rows").table
        table.lookup([1000 + epoch], training=True)
        table.remove([1000 + epoch - 2])


def embedding_model(**options):
    ids = keras.Input((3,), dtype="int64")
    layer = lodestar.layers.DynamicEmbedding(
        2, combiner="sum", name="rows", **options
    )
    out = keras.layers.Dense(1, name="dense")(layer(ids))
    model = keras.Model(ids, out)
    model.compile(lodestar.optimizers.Adam(), "mse", run_eagerly=True)
    return model


def dense_model():
    model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(1)])
    model.compile("adam", "mse", run_eagerly=True)
    return model


def table_state(model):
    state = model.get_layer("rows").table._export_all()
    return {name: value.numpy() for name, value in state.items()}


def state(model):
    dense = model.get_layer("dense").get_weights()
    return {**table_state(model), "kernel": dense[0], "bias": dense[1]}


def assert_equal(found, wanted):
    assert found.keys() == wanted.keys()
    for name, value in wanted.items():
        np.testing.assert_array_equal(found[name], value, name)


def train(model, stop, look, *others):
    script = Scripted(look)
    history = model.fit(
        X,
        Y,
        batch_size=4,
        epochs=len(VALUES),
        verbose=0,
        callbacks=[*others, script, stop],
    )
    return script.seen, len(history.history["loss"])


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_stops_and_restores_as_keras(options):
    options = {"mode": "min", "restore_best_weights": True, **options}
    expected = keras.callbacks.EarlyStopping("score", **options)
    dense = dense_model()
    seen, epochs = train(dense, expected, lambda m: m.get_weights())
    stop = lodestar.callbacks.EarlyStopping("score", **options)
    model = embedding_model()
    states, found_epochs = train(model, stop, state, New())
    assert found_epochs == epochs
    assert stop.best_epoch == expected.best_epoch
    assert stop.stopped_epoch == expected.stopped_epoch
    np.testing.assert_array_equal(
        dense.get_weights()[0], seen[expected.best_epoch][0]
    )
    assert_equal(state(model), states[stop.best_epoch])
    if stop.best_epoch < epochs - 1:
        with pytest.raises(AssertionError):
            assert_equal(state(model), states[-1])


def test_restores_pending_ids_sketches_and_shared_rows():
    model = embedding_model(
        admission=lodestar.CountingBloom(3, 0.01, 100),
        default_row=lodestar.SharedRows(4),
    )
    stop = lodestar.callbacks.EarlyStopping(
        "score", mode="min", patience=2, restore_best_weights=True
    )
    states, _ = train(model, stop, state, New())
    assert stop.best_epoch == 3
    assert_equal(state(model), states[3])
    assert states[3]["sketch"].size and states[3]["shared_slots"].size


def test_without_restoring_the_last_epoch_stays(tmp_path):
    model = embedding_model()
    stop = lodestar.callbacks.EarlyStopping(
        "score", mode="min", patience=2, directory=tmp_path
    )
    states, epochs = train(model, stop, state)
    assert epochs == 6
    assert_equal(state(model), states[-1])
    assert os.listdir(tmp_path) == []


def test_directory_is_used_and_cleaned_up(tmp_path):
    held = []

    def look(model):
        held.append([len(os.listdir(tmp_path / d)) for d in folders()])
        return None

    def folders():
        return os.listdir(tmp_path)

    model = embedding_model()
    stop = lodestar.callbacks.EarlyStopping(
        "score",
        mode="min",
        patience=2,
        restore_best_weights=True,
        directory=str(tmp_path),
    )
    for _ in range(2):  # a callback can be used again
        train(model, stop, look)
        assert folders() == []
    # For each epoch: its index, its data, and whether it is the latest.
    assert held[1:6] == [[3]] * 5


def test_messages(capsys):
    stop = lodestar.callbacks.EarlyStopping(
        "score",
        mode="min",
        patience=1,
        verbose=1,
        restore_best_weights=True,
    )
    train(embedding_model(), stop, lambda m: None)
    out = capsys.readouterr().out
    assert "Epoch 3: early stopping" in out
    assert "tables from the end of the best epoch: 2." in out


def test_a_model_without_tables():
    model = dense_model()
    stop = lodestar.callbacks.EarlyStopping(
        "score", mode="min", patience=2, restore_best_weights=True
    )
    seen, _ = train(model, stop, lambda m: m.get_weights())
    for found, wanted in zip(model.get_weights(), seen[3], strict=True):
        np.testing.assert_array_equal(found, wanted)


def test_id_tables_are_restored():
    class Model(keras.Model):
        def __init__(self):
            super().__init__()
            self.keys = lodestar.lookup.IdTable(["a"], mutable=True)
            self.dense = keras.layers.Dense(1)

        def call(self, x):
            return self.dense(x)

    class Insert(keras.callbacks.Callback):
        def on_epoch_begin(self, epoch, logs=None):
            self.model.keys.insert([str(epoch)], [epoch])

    model = Model()
    model.compile("sgd", "mse", run_eagerly=True)
    stop = lodestar.callbacks.EarlyStopping(
        "score", mode="min", patience=2, restore_best_weights=True
    )
    train(model, stop, lambda m: None, Insert())
    keys = set(model.keys.export()[0].numpy().tolist())
    assert keys == {b"a", b"0", b"1", b"2", b"3"}


def test_pending_gradients_are_the_optimizers_own():
    ids = keras.Input((3,), dtype="int64")
    layer = lodestar.layers.DynamicEmbedding(1, combiner="sum", name="rows")
    model = keras.Model(ids, layer(ids))
    inner = keras.optimizers.SGD(0.1, gradient_accumulation_steps=3)
    model.compile(lodestar.optimizers.wrap(inner), "mse", run_eagerly=True)
    stop = lodestar.callbacks.EarlyStopping(
        "score", mode="min", patience=2, restore_best_weights=True
    )
    states, _ = train(model, stop, table_state)
    assert_equal(table_state(model), states[3])
    # None of 12 batches waits; two did after the best epoch, number 8.
    assert int(model.optimizer.iterations) == 4
    sums = tf.train.TrackableView(model.optimizer).descendants()
    sums = [t for t in sums if isinstance(t, lodestar.EmbeddingVariable)]
    assert [int(t.size()) for t in sums] == [0]


def test_directory_must_exist(tmp_path):
    with pytest.raises(ValueError, match="existing directory, got .*no_such"):
        lodestar.callbacks.EarlyStopping(directory=tmp_path / "no_such")


def test_training_that_fails_leaves_nothing(tmp_path):
    class Fail(keras.callbacks.Callback):
        def on_epoch_end(self, epoch, logs=None):
            if epoch == 2:
                raise KeyboardInterrupt

    stop = lodestar.callbacks.EarlyStopping(
        "score",
        mode="min",
        restore_best_weights=True,
        patience=5,
        directory=tmp_path,
    )
    model = embedding_model()
    with pytest.raises(KeyboardInterrupt):
        train(model, stop, lambda m: None, Fail())
    assert len(os.listdir(tmp_path)) == 1
    stop.on_train_begin()
    assert os.listdir(tmp_path) == []


def test_checkpoint_of_the_model_is_not_disturbed(tmp_path):
    """The callback's checkpoint is not part of the user's checkpoint."""
    model = embedding_model()
    saved = tf.train.Checkpoint(model=model)
    before = len(tf.train.list_variables(saved.save(str(tmp_path / "a"))))
    stop = lodestar.callbacks.EarlyStopping(
        "score", mode="min", restore_best_weights=True
    )
    train(model, stop, lambda m: None)
    after = len(tf.train.list_variables(saved.save(str(tmp_path / "b"))))
    # The optimizer has created its variables since.
    assert after - before == len(model.optimizer.variables) - 2


# Keras's callbacks that would lose the rows of tables.


class Begun(keras.callbacks.Callback):
    """Records that a batch began."""

    batches = 0

    def on_train_batch_begin(self, batch, logs=None):
        self.batches += 1


class HoldsTable(keras.Model):
    def __init__(self):
        super().__init__()
        self.tables = {"rows": [lodestar.EmbeddingVariable(2)]}
        self.dense = keras.layers.Dense(1)

    def call(self, ids):
        (table,) = self.tables["rows"]
        return self.dense(table.lookup(ids, combiner="sum"))


class Collection(keras.Model):
    def __init__(self):
        super().__init__()
        self.rows = lodestar.layers.EmbeddingCollection(
            {"f": lodestar.Feature(output_dim=2, combiner="sum")}
        )
        self.dense = keras.layers.Dense(1)

    def call(self, ids):
        return self.dense(self.rows({"f": ids})["f"])


def compiled(model):
    model.compile(lodestar.optimizers.Adam(), "mse", run_eagerly=True)
    return model


MODELS = {
    "layer": embedding_model,
    "collection": lambda: compiled(Collection()),
    "variable": lambda: compiled(HoldsTable()),
}
REFUSED = {
    "EarlyStopping": (
        lambda folder: keras.callbacks.EarlyStopping(
            "loss", restore_best_weights=True
        ),
        r"EarlyStopping\(restore_best_weights=True\).*Use lodestar.callbacks",
    ),
    "ModelCheckpoint": (
        lambda folder: keras.callbacks.ModelCheckpoint(folder / "m.h5"),
        r"ModelCheckpoint\('.*m.h5'\), a legacy HDF5 file.*\.keras",
    ),
    "SwapEMAWeights": (
        lambda folder: keras.callbacks.SwapEMAWeights(),
        "SwapEMAWeights copies .*no moving average",
    ),
    "OrbaxCheckpoint": (
        # The constructor needs the package.
        lambda folder: keras.callbacks.OrbaxCheckpoint.__new__(
            keras.callbacks.OrbaxCheckpoint
        ),
        "OrbaxCheckpoint copies .*Use keras.callbacks.ModelCheckpoint",
    ),
}


@pytest.mark.parametrize(
    "kind, name",
    [("layer", name) for name in REFUSED]
    + [("collection", "ModelCheckpoint"), ("variable", "EarlyStopping")],
)
def test_callbacks_that_lose_rows_are_refused_at_once(kind, name, tmp_path):
    make, message = REFUSED[name]
    model = MODELS[kind]()
    model.fit(X, Y, verbose=0)
    begun, callback = Begun(), make(tmp_path)
    if name == "OrbaxCheckpoint":
        callback.on_train_begin = callback.set_model = lambda *_, **__: None
    with pytest.raises(RuntimeError, match=message):
        lodestar.train.fit(
            model,
            tf.data.Dataset.from_tensor_slices((X, Y)).batch(4),
            callbacks=[[begun], callback],
            verbose=0,
        )
    assert begun.batches == 0


# Keras's own `fit` tells no layer about its callbacks. A callback that copies weights
# fails when it does.
@pytest.mark.parametrize(
    "kind, name",
    [
        ("layer", "EarlyStopping"),
        ("collection", "ModelCheckpoint"),
        ("variable", "EarlyStopping"),
    ],
)
def test_callbacks_that_lose_rows_fail_in_fit_of_keras(kind, name, tmp_path):
    make, _ = REFUSED[name]
    with pytest.raises(
        RuntimeError,
        match="get_weights, set_weights and legacy .h5 files would lose",
    ):
        MODELS[kind]().fit(X, Y, verbose=0, callbacks=[[make(tmp_path)]])


def test_a_plain_model_may_use_any_callback(tmp_path):
    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
    model.compile("adam", "mse", run_eagerly=True)
    data = tf.data.Dataset.from_tensor_slices((np.ones((4, 2)), np.ones(4)))
    stop = keras.callbacks.EarlyStopping("loss", restore_best_weights=True)
    lodestar.train.fit(model, data.batch(2), callbacks=[stop], verbose=0)


def test_callbacks_that_save_tables_are_not_refused(tmp_path):
    callbacks = keras.callbacks
    model = embedding_model()
    model.fit(
        X,
        Y,
        verbose=0,
        validation_data=(X, Y),
        callbacks=[
            callbacks.EarlyStopping("loss"),
            callbacks.ModelCheckpoint(tmp_path / "m.keras"),
            callbacks.ModelCheckpoint(
                tmp_path / "m.weights.h5", save_weights_only=True
            ),
            callbacks.BackupAndRestore(tmp_path / "backup"),
            lodestar.callbacks.EarlyStopping("loss", restore_best_weights=True),
        ],
    )
