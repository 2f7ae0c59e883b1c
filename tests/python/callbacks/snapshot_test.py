"""The Snapshot callback: when it saves, and that training resumes bitwise."""

import os

import keras
import numpy as np
import pytest
import resume_trainer
import tensorflow as tf

import lodestar
from lodestar import snapshot
from lodestar.callbacks import Snapshot
from lodestar.callbacks import snapshot as module
from lodestar.embedding.table_variable import as_table
from lodestar.snapshot import save_interval, saving
from lodestar.snapshot.folder import SnapshotFolder

model = resume_trainer.model


def batches():
    rng = np.random.default_rng(5)
    ids = rng.integers(0, 200, (400, 2))
    y = rng.normal(size=(400, 1)).astype(np.float32)
    data = tf.data.Dataset.from_tensor_slices((ids, y))
    return data.shuffle(100, seed=2).repeat().batch(8)


def fit(m, callback, steps=6, epochs=2, data=None, **options):
    m.fit(
        batches() if data is None else data,
        steps_per_epoch=steps,
        epochs=epochs,
        verbose=0,
        callbacks=[callback],
        **options,
    )


def state(m):
    """Returns the complete state of training, for bitwise comparison."""
    variables = list(m.variables) + list(m.optimizer.variables)
    variables = [v for v in variables if as_table(v) is None]
    table = m.get_layer("user").table._export_all()
    return [v.numpy().tobytes() for v in variables] + [
        repr(np.array(t.numpy()).tolist())
        if t.dtype == tf.string
        else t.numpy().tobytes()
        for t in table.values()
    ]


def kinds(path):
    return [(info.kind, info.step) for info in snapshot.versions(path)]


def test_every_epoch(path):
    fit(model(), Snapshot(path, metadata={"name": "x"}))
    assert kinds(path) == [("full", 6), ("delta", 12)]
    assert [info.metadata for info in snapshot.versions(path)] == [
        {"epoch": epoch, "batch": 5, "epoch_ended": True, "name": "x"}
        for epoch in range(2)
    ]


def test_every_n_steps_and_at_the_end(path, monkeypatch):
    _write_at_once(monkeypatch)
    fit(model(), Snapshot(path, 5))
    assert [step for _, step in kinds(path)] == [5, 10, 12]
    assert [info.metadata["batch"] for info in snapshot.versions(path)] == [
        4,
        3,
        5,
    ]


def _write_at_once(monkeypatch):
    """Waits for every snapshot before the next batch ends."""
    save_now = module.save

    def save(*args, **options):
        pending = save_now(*args, **options)
        pending._work.ended.wait()
        return pending

    monkeypatch.setattr(module, "save", save)


class SteppedClock(keras.callbacks.Callback):
    """Replaces the module `time`; a step takes 10 seconds."""

    def __init__(self):
        super().__init__()
        self.now = 0.0

    def perf_counter(self):
        return self.now

    def on_train_batch_end(self, batch, logs=None):
        self.now += 10.0


def fit_with_clock(clock, callback, epochs):
    model().fit(
        batches(),
        steps_per_epoch=6,
        epochs=epochs,
        verbose=0,
        callbacks=[clock, callback],
    )


def test_the_duration_of_snapshots_decides_how_often(path, monkeypatch):
    _write_at_once(monkeypatch)
    clock = SteppedClock()
    monkeypatch.setattr(save_interval, "time", clock)
    # A snapshot takes a second, so 50 seconds follow its end.
    made = saving.make_info
    monkeypatch.setattr(
        saving,
        "make_info",
        lambda folder, manifest, seconds: made(folder, manifest, 1.0),
    )
    fit_with_clock(clock, Snapshot(path, "auto"), 3)
    # It is the next step that sees a snapshot end.
    assert [step for _, step in kinds(path)] == [1, 7, 13, 18]


def test_a_failed_snapshot_is_not_repeated_by_every_step(path, monkeypatch):
    clock, tries = SteppedClock(), []
    monkeypatch.setattr(save_interval, "time", clock)

    def fails(*args, **options):
        tries.append(clock.now)
        clock.now += 0.5
        raise OSError("no room")

    monkeypatch.setattr(module, "save", fails)
    monkeypatch.setattr(
        SteppedClock,
        "on_train_batch_end",
        lambda self, batch, logs=None: setattr(self, "now", self.now + 0.4),
    )
    with pytest.warns(RuntimeWarning, match="no room"):
        fit_with_clock(clock, Snapshot(path, "auto", on_error="warn"), 2)
    assert len(tries) == 4  # of 12 steps


def test_nothing_is_saved_twice(path):
    m, callback = model(), Snapshot(path)
    fit(m, callback)
    fit(m, callback, epochs=1)
    assert [step for _, step in kinds(path)] == [6, 12, 18]


def test_steps_per_execution(path, monkeypatch):
    _write_at_once(monkeypatch)
    m = model()
    m.compile(m.optimizer, "mse", steps_per_execution=2)
    fit(m, Snapshot(path, 3), epochs=1)
    assert [step for _, step in kinds(path)] == [4, 6]


@pytest.mark.parametrize("deltas, wanted", [(0, "fff"), (1, "fdf"), (5, "fdd")])
def test_deltas_between_two_full_ones(path, deltas, wanted):
    fit(model(), Snapshot(path, deltas_per_full=deltas), epochs=3)
    assert "".join(kind[0] for kind, _ in kinds(path)) == wanted


def test_old_versions_go(path):
    fit(model(), Snapshot(path, deltas_per_full=1, keep=1), epochs=5)
    assert [info.version for info in snapshot.versions(path)] == [5]
    fit(model(), Snapshot(path + "2", deltas_per_full=2, keep=2), epochs=5)
    assert [info.version for info in snapshot.versions(path + "2")] == [4, 5]


@pytest.mark.parametrize("version, eager", [(1, False), (2, True)])
def test_resumed_training_is_bitwise_equal(path, version, eager):
    whole, reader = model(eager), snapshot.ResumableDataset(batches())
    fit(whole, Snapshot(path, iterator=reader), epochs=4, data=reader)
    resumed, reader = model(eager), snapshot.ResumableDataset(batches())
    callback = Snapshot(path, iterator=reader)
    report = callback.restore(resumed, version=version)
    assert report.metadata["epoch"] == version - 1
    fit(
        resumed,
        callback,
        epochs=4,
        initial_epoch=report.metadata["epoch"] + 1,
        data=reader,
    )
    assert state(resumed) == state(whole)
    assert snapshot.versions(path)[-1].step == 24


class Seen(keras.callbacks.Callback):
    """Records the calls of callbacks."""

    def __init__(self, stop_at=None):
        super().__init__()
        self.calls = []
        self._stop_at = stop_at

    def on_train_begin(self, logs=None):
        self.calls.append("begin")

    def on_epoch_begin(self, epoch, logs=None):
        self.calls.append(f"epoch {epoch}")

    def on_train_batch_begin(self, batch, logs=None):
        self._begun = batch

    def on_train_batch_end(self, batch, logs=None):
        assert self._begun == batch
        self.calls.append(batch)
        epoch = [call for call in self.calls if str(call).startswith("epoch")]
        if [epoch[-1], batch] == self._stop_at:
            self.model.stop_training = True

    def on_epoch_end(self, epoch, logs=None):
        assert set(logs) == {"loss", "val_loss"}
        self.calls.append("end")

    def on_train_end(self, logs=None):
        self.calls.append(f"over, {sorted(logs)}")


def whole_epochs(epochs, first=0, batches=5):
    return sum(
        ([f"epoch {e}", *range(batches), "end"] for e in range(first, epochs)),
        [],
    )


OVER = ["over, ['loss', 'val_loss']"]


@pytest.mark.parametrize(
    "steps, data, at_once",
    [(5, resume_trainer.repeated, False), (None, resume_trainer.once, False)]
    # The snapshot of the last batch is taken before it is known to be the last.
    + [(None, resume_trainer.of_unknown_length, True)],
)
@pytest.mark.filterwarnings("ignore:Your input ran out of data")
def test_fit_resumes_where_it_was_stopped(
    path, steps, data, at_once, monkeypatch
):
    if at_once:
        _write_at_once(monkeypatch)

    def fit_on(seen, epochs, name=path):
        m, batches, callback = model(), data(), Snapshot(name, 2)
        history = lodestar.train.fit(
            m,
            batches,
            snapshots=callback,
            epochs=epochs,
            steps_per_epoch=steps,
            callbacks=[seen],
            validation_data=resume_trainer.once().take(1),
            verbose=0,
        )
        return m, history, (callback, batches)

    whole = Seen()
    trained, history, _ = fit_on(whole, 4, path + "_whole")
    assert whole.calls == ["begin", *whole_epochs(4), *OVER]
    assert history.epoch == [0, 1, 2, 3]

    stopped = Seen(stop_at=["epoch 1", 2])
    fit_on(stopped, 4)
    assert stopped.calls == [
        *["begin", *whole_epochs(1), "epoch 1", 0, 1, 2, "end"],
        *OVER,
    ]
    assert snapshot.versions(path)[-1].metadata["epoch_ended"] is False
    resumed = Seen()
    m, history, (callback, reader) = fit_on(resumed, 3)
    assert resumed.calls == [
        *["begin", "epoch 1", 3, 4, "end", *whole_epochs(3, 2)],
        *OVER,
    ]
    assert history.epoch == [1, 2]
    # In the same process it restores nothing.
    resumed.calls.clear()
    lodestar.train.fit(
        m,
        reader,
        snapshots=callback,
        epochs=4,
        steps_per_epoch=steps,
        callbacks=[resumed],
        validation_data=resume_trainer.once().take(1),
        verbose=0,
    )
    assert resumed.calls == ["begin", *whole_epochs(4, 3), *OVER]
    assert int(m.optimizer.iterations) == 20
    assert state(m) == state(trained)
    # All epochs are done.
    again = Seen()
    m, _, _ = fit_on(again, 4)
    assert again.calls[:1] == ["begin"] and state(m) == state(trained)


def passes(path, epochs, every=2, **options):
    """Trains or resumes `epochs` epochs."""
    m = model()
    lodestar.train.fit(
        m,
        resume_trainer.once(),
        epochs=epochs,
        snapshots=Snapshot(path, every),
        verbose=0,
        **options,
    )
    return m


@pytest.mark.parametrize("every", ["epoch", 5])
def test_the_epoch_after_a_finished_one(path, every):
    passes(path, 2, every)
    assert snapshot.versions(path)[-1].step == 10
    assert state(passes(path, 3, every)) == state(passes(path + "_whole", 3))


class Interrupted(Exception):
    pass


def test_a_fit_that_was_interrupted_is_called_again(path):
    class Interrupt(keras.callbacks.Callback):
        calls = 0

        def on_train_batch_end(self, batch, logs=None):
            self.calls += 1
            if self.calls == 8:
                raise Interrupted  # before the Snapshot callback sees the batch

    m, data = model(), resume_trainer.once()
    interrupt = Interrupt()
    options = {
        "epochs": 3,
        "snapshots": Snapshot(path, 2),
        "callbacks": [interrupt],
        "verbose": 0,
    }
    with pytest.raises(Interrupted):
        lodestar.train.fit(m, data, **options)
    lodestar.train.fit(m, data, **options)
    assert int(m.optimizer.iterations) == 15
    assert state(m) == state(passes(path + "_whole", 3))


def test_fit_refuses(path):
    train, data = lodestar.train.fit, batches()
    reader = snapshot.ResumableDataset(data)
    callback = Snapshot(path, iterator=snapshot.ResumableDataset(batches()))
    for other in (data, reader):
        with pytest.raises(
            ValueError, match="saves the position of <.* not of"
        ):
            train(model(), other, snapshots=callback, steps_per_epoch=2)
    with pytest.raises(TypeError, match="class_weight"):
        train(model(), data, snapshots=path, class_weight={0: 1.0})
    with pytest.raises(
        TypeError, match="`data` must be a tf.data.Dataset, paths"
    ):
        train(model(), 3, snapshots=path)
    with pytest.raises(ValueError, match="`initial_epoch` works only without"):
        train(model(), data, snapshots=path, initial_epoch=1)
    with pytest.raises(ValueError, match="`data` is endless. Pass the number"):
        train(model(), data, snapshots=path)
    m = model()
    m.optimizer.build(m.trainable_variables)
    snapshot.save(m, path, iterator=reader)
    with pytest.raises(ValueError, match="has no `epoch` and `batch`"):
        train(model(), data, snapshots=path, steps_per_epoch=2)
    callback = Snapshot(path)
    snapshot.restore(m, path)
    fit(m, callback, epochs=1)
    with pytest.raises(ValueError, match="saves the position of None, not of"):
        train(m, data, snapshots=callback, steps_per_epoch=2)
    with pytest.raises(ValueError, match="reserved names batch, epoch"):
        fit(model(), Snapshot(path, metadata={"epoch": 1, "batch": 2}))


def test_deltas_resume_after_a_restore(path):
    fit(model(), Snapshot(path))
    m, callback = model(), Snapshot(path)
    callback.restore(m)
    fit(m, callback, epochs=1)
    assert kinds(path) == [("full", 6), ("delta", 12), ("delta", 18)]


def test_it_waits_for_another_writer(path, monkeypatch):
    folder = SnapshotFolder(path)
    lock = folder.acquire()
    slept = []

    def sleep(seconds):
        slept.append(seconds)
        if len(slept) == 3:
            lock.release()

    monkeypatch.setattr(module.time, "sleep", sleep)
    fit(model(), Snapshot(path), epochs=1)
    assert kinds(path) == [("full", 6)] and len(slept) == 3


def test_another_writer_that_stays_is_an_error(path, monkeypatch):
    monkeypatch.setattr(module, "_LOCK_SECONDS", 0)
    with SnapshotFolder(path).lock():
        with pytest.raises(snapshot.SnapshotError, match="is held by"):
            fit(model(), Snapshot(path), epochs=1)


@pytest.mark.parametrize("every", ["epoch", 2])
def test_errors(path, every):
    with open(path, "w"):
        pass  # creates no folder
    with pytest.raises(OSError, match="snapshots"):
        fit(model(), Snapshot(path, every))
    m = model()
    with pytest.warns(RuntimeWarning, match="No snapshot was .*snapshots: "):
        fit(m, Snapshot(path, every, on_error="warn"))
    assert int(m.optimizer.iterations) == 12
    os.unlink(path)
    fit(m, Snapshot(path, every, on_error="warn"))
    assert snapshot.versions(path)[-1].step == 24


def test_errors_of_the_thread(path, monkeypatch):
    def write(snapshot_, paths, labels):
        raise tf.errors.ResourceExhaustedError(None, None, "no room")

    with monkeypatch.context() as patched:
        patched.setattr(saving.snapshot_ops, "write", write)
        with pytest.raises(tf.errors.ResourceExhaustedError, match="no room"):
            fit(model(), Snapshot(path, 1))
    assert snapshot.versions(path) == []
    fit(model(), Snapshot(path, 1))
    assert snapshot.versions(path)[-1].step == 12


@pytest.mark.parametrize(
    "options, message",
    [
        (
            {"every_n_steps": 0},
            "`every_n_steps` must be 'epoch', 'auto' or an int.* got 0",
        ),
        ({"every_n_steps": "batch"}, "`every_n_steps` must .*got 'batch'"),
        ({"every_n_steps": True}, "`every_n_steps` must .*got True"),
        (
            {"deltas_per_full": -1},
            "`deltas_per_full` must be an integer of at least 0, got -1",
        ),
        ({"keep": 0}, "`keep` must be an integer of at least 1, got 0"),
        (
            {"on_error": "skip"},
            r"`on_error`='skip' is not in \('raise', 'warn'\)",
        ),
        (
            {"path": "s3://b"},
            "`path` must be a folder of a local .* got 's3://b'",
        ),
    ],
)
def test_bad_arguments(path, options, message):
    with pytest.raises(ValueError, match=message):
        Snapshot(**{"path": path, **options})
