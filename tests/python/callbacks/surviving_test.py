"""A `fit` that is killed and resumed ends like one that is not interrupted."""

import functools
import os
import signal

import keras
import numpy as np
import pytest
import surviving_trainer
import tensorflow as tf
from processes import Fork

import lodestar
from lodestar import snapshot
from lodestar.callbacks import EarlyStopping, Snapshot
from lodestar.snapshot import saving

pytestmark = pytest.mark.filterwarnings("ignore:Your input ran out of data")


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    return surviving_trainer.write_files(tmp_path_factory.mktemp("files"))


@pytest.fixture(scope="module")
def whole(files, tmp_path_factory):
    """Returns the result and folder of an uninterrupted training."""

    @functools.cache
    def train(kind):
        path = str(tmp_path_factory.mktemp("whole"))
        return surviving_trainer.train(path, files, kind), path

    return train


def assert_resumed_as(found, whole):
    """Compares `found`, returned by `train` after the last resume, with `whole`."""
    assert found["state"] == whole["state"]
    assert found["early"] == whole["early"]
    for name in ("logs", "scalars"):
        for key, value in found[name].items():
            assert value == whole[name][key], (name, key)
        if found[name]:
            assert list(found[name])[-1] == list(whole[name])[-1]


@pytest.mark.parametrize(
    "kind, ends",
    [
        # In the second epoch, a few steps after a snapshot; between
        # the last step of an epoch and its end; at the very end.
        ("steps", [("step", 7), ("test", 3), ("train", 3)]),
        ("passes", [("step", 9), ("epoch", 2)]),
    ],
)
def test_killed_with_all_callbacks(tmp_path, files, whole, kind, ends):
    wanted, _ = whole(kind)
    assert wanted["early"] == [2, 0.8, 1, 3]
    killed = str(tmp_path)
    for at, order in zip(ends, ("ETB", "TBE", "BTE", "EBT")):
        trainer = Fork(surviving_trainer.train, killed, files, kind, order, at)
        assert trainer.wait() == -signal.SIGKILL
    found = surviving_trainer.train(killed, files, kind)
    assert_resumed_as(found, wanted)


class Died(Exception):
    """Ends a training without killing the process."""


def die(model):
    raise Died


def die_at(folder, files, kind, at, **options):
    with pytest.raises(Died):
        surviving_trainer.train(folder, files, kind, at=at, end=die, **options)


def versions(folder):
    return [info.version for info in snapshot.versions(f"{folder}/snapshots")]


def test_an_unknown_strategy(files):
    reader = surviving_trainer.reader(files, "steps")
    strategy = tf.distribute.experimental.CentralStorageStrategy(["CPU:0"])
    with strategy.scope():
        m = surviving_trainer.dense_model()
    with pytest.raises(
        NotImplementedError, match="CentralStorageStrategy is not"
    ):
        lodestar.train.fit(m, reader, snapshots="unused")


def test_a_finished_training_is_unchanged(files, whole):
    wanted, path = whole("steps")
    before = versions(path)
    again = surviving_trainer.train(path, files, "steps")
    assert again["state"] == wanted["state"]
    assert again["early"] == wanted["early"] and again["logs"] == {}
    assert versions(path) == before


def test_the_best_epoch_stays_until_it_is_restored(tmp_path, files, whole):
    options = {"keep": 1, "deltas_per_full": 0, "every": "epoch"}
    killed = str(tmp_path)
    die_at(killed, files, "steps", ("train", 3), **options)
    # The best epoch's snapshot, 1, and the snapshots of epochs 2 and 3.
    assert versions(killed) == [2, 3, 4]
    found = surviving_trainer.train(killed, files, "steps", **options)
    assert_resumed_as(found, whole("steps")[0])
    assert versions(killed) == [5]


def test_a_lost_best_epoch_causes_a_warning(tmp_path, files):
    options = {"deltas_per_full": 0, "every": "epoch"}
    die_at(str(tmp_path), files, "steps", ("train", 3), **options)
    os.unlink(tmp_path / "snapshots" / "00000002" / "MANIFEST")
    with pytest.warns(RuntimeWarning, match="The best epoch, 2, is no longer"):
        surviving_trainer.train(str(tmp_path), files, "steps", **options)


def test_an_unwritable_best_epoch_causes_a_warning(
    tmp_path, files, monkeypatch
):
    def write(snapshot_, paths, labels):
        raise tf.errors.ResourceExhaustedError(None, None, "no room")

    monkeypatch.setattr(saving.snapshot_ops, "write", write)
    with pytest.warns(RuntimeWarning) as warned:
        surviving_trainer.train(str(tmp_path), files, "steps", on_error="warn")
    texts = [str(warning.message) for warning in warned]
    assert any("No snapshot was written to" in text for text in texts)
    assert any("could not be written" in text for text in texts)


def test_stopped_within_an_epoch_and_resumed(tmp_path, files, whole):
    def stop(model):
        model.stop_training = True

    stopped = str(tmp_path)
    # Epoch 1 is the best so far, and is restored at the end. Training resumes
    # from neither.
    surviving_trainer.train(stopped, files, "steps", at=("step", 7), end=stop)
    newest = snapshot.versions(f"{stopped}/snapshots")[-1]
    assert newest.metadata == {"epoch": 1, "batch": 2, "epoch_ended": False}
    found = surviving_trainer.train(stopped, files, "steps")
    assert_resumed_as(found, whole("steps")[0])


def test_stopped_between_two_batches(tmp_path):
    """A signal arrives while the last callback of a batch runs."""
    m, callback = model(), Snapshot(str(tmp_path))
    m.optimizer.build(m.trainable_variables)
    callback.set_model(m)
    callback.set_params({"steps": 3})
    callback.on_train_begin()
    callback.on_epoch_begin(0)
    callback.on_train_batch_end(1)
    m.stop_training = True
    callback.on_epoch_end(0)
    callback.on_train_end()
    (info,) = snapshot.versions(tmp_path)
    assert info.metadata == {"epoch": 0, "batch": 1, "epoch_ended": False}


def test_logs_of_an_epoch_without_remaining_batches(tmp_path, files, whole):
    killed = str(tmp_path)
    # The snapshot of the last batch is taken before it is known to be the last.
    die_at(killed, files, "passes", ("test", 0), every=6)
    assert snapshot.versions(f"{killed}/snapshots")[-1].step == 6
    found = surviving_trainer.train(killed, files, "passes")
    assert found["logs"]["0"] == whole("passes")[0]["logs"]["0"]


def fit(path, callbacks, epochs=2, steps=3, m=None):
    """Trains a few epochs; pass other `callbacks` to resume with them."""
    m = m or model()
    ids = np.arange(24).reshape(12, 2)
    data = tf.data.Dataset.from_tensor_slices((ids, ids[:, :1] % 3)).repeat()
    lodestar.train.fit(
        m,
        data.batch(4),
        epochs=epochs,
        steps_per_epoch=steps,
        callbacks=callbacks,
        snapshots=path,
        verbose=0,
    )
    return m


def model(metrics=()):
    keras.utils.set_random_seed(1)
    ids = keras.Input((2,), dtype="int64")
    rows = lodestar.layers.DynamicEmbedding(2, combiner="sum", name="user")(ids)
    m = keras.Model(ids, keras.layers.Dense(1)(rows))
    m.compile(
        lodestar.optimizers.SGD(),
        "mse",
        metrics=list(metrics),
        run_eagerly=True,
    )
    return m


class Counter(keras.callbacks.Callback):
    """Counts epochs and prints the count."""

    def on_train_begin(self, logs=None):
        self.epochs = 0

    def on_epoch_end(self, epoch, logs=None):
        self.epochs += 1

    def get_state(self):
        return {"epochs": np.int64(self.epochs)}

    def set_state(self, state):
        self.epochs = state["epochs"]


def test_state_of_other_callbacks(tmp_path):
    def callbacks():
        return [
            keras.callbacks.ReduceLROnPlateau(
                "loss", patience=2, min_delta=1e9
            ),
            keras.callbacks.ModelCheckpoint(
                str(tmp_path / "best.keras"),
                "loss",
                mode="max",
                save_best_only=True,
            ),
            keras.callbacks.EarlyStopping("loss", patience=9, mode="max"),
            lodestar.callbacks.TableStats(str(tmp_path / "logs")),
            Counter(),
        ]

    def known(callbacks):
        plateau, checkpoint, stop, table_stats, counter = callbacks
        return [
            *[plateau.wait, plateau.best, checkpoint.best, stop.wait],
            *[stop.best, table_stats.get_state(), counter.epochs],
        ]

    whole, parts = callbacks(), []
    rate = fit(str(tmp_path / "whole"), whole, 5).optimizer.learning_rate
    for epochs in (2, 2, 5):  # the second call has nothing to do
        parts = callbacks()
        m = fit(str(tmp_path / "parts"), parts[::-1], epochs)
        assert parts[-1].epochs == epochs
    assert known(parts) == known(whole)
    assert parts[3].get_state() == {"batches": 15}
    assert float(m.optimizer.learning_rate) == float(rate) < 1e-3


def test_two_fits_in_one_process_are_one_training(tmp_path):
    counter, stop = Counter(), EarlyStopping("loss", patience=0, mode="max")
    stop.min_delta = 1e9  # no epoch is better than the first
    callback = Snapshot(str(tmp_path))
    data = tf.data.Dataset.from_tensors((np.ones((4, 2), int), np.ones(4)))
    data = data.repeat()
    m = model()
    for patience, epochs in ((0, 2), (0, 2), (3, 4)):
        stop.patience = patience
        lodestar.train.fit(
            m,
            data,
            epochs=9,
            snapshots=callback,
            steps_per_epoch=2,
            callbacks=[callback, [counter, stop]],
            verbose=0,
        )
        assert counter.epochs == epochs
    assert int(m.optimizer.iterations) == 8


def test_a_state_that_cannot_be_saved(tmp_path):
    counter = Counter()
    counter.get_state = lambda: {"what": object()}
    with pytest.raises(ValueError, match="state of a callback .* got <object"):
        fit(str(tmp_path), counter)


def test_other_metrics_than_saved(tmp_path):
    class Stop(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            self.model.stop_training = batch == 1

    fit(str(tmp_path), Stop())
    with pytest.warns(RuntimeWarning, match="restart, so .* they differ"):
        m = fit(str(tmp_path), [], m=model(["mae"]))
    assert int(m.optimizer.iterations) == 6


def test_an_epoch_restored_by_a_backup(tmp_path):
    class Die(keras.callbacks.Callback):
        def on_epoch_end(self, epoch, logs=None):
            raise Died

    data = (np.ones((4, 2), int), np.ones(4))
    for callbacks in ([Die()], []):
        m = model()
        backup = keras.callbacks.BackupAndRestore(str(tmp_path / "backup"))
        m(data[0])
        try:
            m.fit(*data, epochs=2, verbose=0, callbacks=[backup, *callbacks])
        except Died:
            continue
    counter = Counter()
    fit(str(tmp_path / "snapshots"), counter, m=m)
    assert counter.epochs == 2


def test_a_model_that_creates_metrics_in_its_first_step(tmp_path):
    class Model(keras.Model):
        def test_step(self, data):
            raise NotImplementedError("not tested")

    def made():
        keras.utils.set_random_seed(1)
        ids = keras.Input((2,), dtype="int64")
        rows = lodestar.layers.DynamicEmbedding(1, combiner="sum", name="user")
        m = Model(ids, rows(ids))
        m.compile(lodestar.optimizers.SGD(), "mse", run_eagerly=True)
        return m

    class Stop(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            self.model.stop_training = batch == 1

    fit(str(tmp_path), Stop(), m=made())
    with pytest.warns(RuntimeWarning, match="`test_step` cannot be traced"):
        m = fit(str(tmp_path), [], m=made())
    assert int(m.optimizer.iterations) == 6


@pytest.mark.parametrize(
    "devices, kind, at",
    [
        (2, "passes", ("step", 8)),
        (1, "steps", ("test", 1)),
    ],
)
def test_under_a_strategy(tmp_path, files, devices, kind, at):
    strategy = tf.distribute.OneDeviceStrategy("CPU:0")
    if devices > 1:
        strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
    options = {"strategy": strategy}
    killed = str(tmp_path / "killed")
    wanted = surviving_trainer.train(str(tmp_path), files, kind, **options)
    os.mkdir(killed)
    die_at(killed, files, kind, at, **options)
    found = surviving_trainer.train(killed, files, kind, **options)
    if devices > 1:
        # Keras's validation loss differs between two runs.
        for each in (found, wanted):
            for name in ("logs", "scalars"):
                each[name] = dict.fromkeys(each[name])
    assert_resumed_as(found, wanted)
