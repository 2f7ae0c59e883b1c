"""Tests of training by threads: how work is divided, and synchronization."""

import threading
import time

import keras
import numpy as np
import pytest
import tensorflow as tf
from click_models import BATCH, ROWS, SPEC, make_model, write_files

import lodestar
from lodestar.data import open_dataset
from lodestar.train import fit
from lodestar.train.threads import Crew


@pytest.mark.parametrize(
    "threads, num_pieces", [(1, 7), (2, 0), (2, 7), (5, 1), (5, 7)]
)
def test_every_piece_is_worked_on_once(threads, num_pieces):
    done = []

    def work(piece):
        for turn in range(piece):
            done.append((piece, turn))
            yield

    crew = Crew(range(1, num_pieces + 1), work, threads)
    crew.run(1000)
    wanted = [(p, t) for p in range(1, num_pieces + 1) for t in range(p)]
    assert sorted(done) == wanted
    assert crew.steps == len(wanted)


def test_a_free_thread_takes_the_next_piece():
    others_done = threading.Event()
    left = list(range(9))

    def work(piece):
        if piece == 0:  # one long piece
            assert others_done.wait(60)
        else:
            left.remove(piece)
            if left == [0]:
                others_done.set()
        yield

    Crew(range(9), work, 2).run(1000)


@pytest.mark.parametrize("threads", [1, 2, 4])
def test_no_step_is_under_way_between_rounds(threads):
    stepping, before = [], threading.active_count()

    def work(piece):
        for _ in range(25):
            stepping.append(piece)
            time.sleep(0.0005)
            stepping.remove(piece)
            yield

    crew = Crew(range(8), work, threads)
    for steps in (30, 60, 90, 120, 150, 180, 200, 200):
        crew.run(30)
        assert crew.steps == steps
        assert not stepping
        assert threading.active_count() <= before


def test_no_step_is_lost_where_pieces_end_within_a_round():
    def work(piece):
        for _ in range(piece % 3):
            yield

    for threads in (1, 2, 7):
        crew, rounds = Crew(range(100), work, threads), 0
        while (before := crew.steps) < 99:
            crew.run(2)
            assert crew.steps == min(before + 2, 99)
            rounds += 1
        assert rounds == 50


def test_a_thread_without_a_piece_leaves_its_step_to_others():
    asked = threading.Event()

    def pieces():
        yield 0
        asked.set()  # The other thread finds no piece.

    def work(piece):
        for _ in range(4):
            assert asked.wait(60)
            yield

    crew = Crew(pieces(), work, 2)
    crew.run(2)
    assert crew.steps == 2


def test_the_first_error_ends_all_and_is_raised():
    turns, before = [], threading.active_count()

    def work(piece):
        while True:
            turns.append(piece)
            if piece == 1 and len(turns) > 20:
                raise KeyError("the first")
            time.sleep(0.0005)
            yield

    crew = Crew([0, 1], work, 2)
    with pytest.raises(KeyError, match="the first"):
        crew.run(10**9)
    assert threading.active_count() <= before
    assert crew.steps == len(turns) - 1


def test_no_step_is_under_way_after_ctrl_c_at_the_start_of_a_thread(
    monkeypatch,
):
    began, stepping, ended = threading.Event(), [], []

    def work(piece):
        while True:
            stepping.append(piece)
            began.set()
            time.sleep(0.1)
            stepping.remove(piece)
            ended.append(piece)
            yield

    class Interrupted(threading.Thread):
        def start(self):
            super().start()
            assert began.wait(60)
            raise KeyboardInterrupt

    crew = Crew(range(8), work, 2)
    with monkeypatch.context() as patch:
        patch.setattr(threading, "Thread", Interrupted)
        with pytest.raises(KeyboardInterrupt):
            crew.run(10**9)
    assert not stepping
    assert crew.steps == len(ended) > 0


# fit


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    return write_files(tmp_path_factory.mktemp("files"), 3)


STEPS = 3 * ROWS // BATCH


class Calls(keras.callbacks.Callback):
    """Records calls of callbacks."""

    def __init__(self):
        super().__init__()
        self.calls = []

    def on_epoch_begin(self, epoch, logs=None):
        self.calls.append(("epoch", epoch))

    def on_train_batch_begin(self, batch, logs=None):
        self.calls.append(("begin", batch))

    def on_train_batch_end(self, batch, logs=None):
        assert (
            int(self.model.optimizer.iterations) % STEPS == (batch + 1) % STEPS
        )
        self.calls.append(("end", batch))

    def on_epoch_end(self, epoch, logs=None):
        assert {"loss", "AUC", "val_loss"} <= logs.keys()
        self.calls.append(("epoch end", epoch))


@pytest.mark.parametrize("kind", ["pattern", "dataset", "memory"])
def test_epochs_of_threads_are_epochs_of_fit(files, kind):
    model, seen = make_model(rate=0.0), Calls()
    whole = open_dataset(files, SPEC, BATCH)
    data, options = whole, {}
    if kind == "memory":
        data = lodestar.paddle.InMemoryDataset(SPEC, BATCH, num_queues=3)
        data.load(files)
    elif kind != "dataset":
        options = {"schema": SPEC, "batch_size": BATCH}
        data = files[0].replace("part-0", "part-*")
    history = fit(
        model,
        data,
        epochs=2,
        threads=2,
        steps_per_round=10,
        callbacks=[seen],
        validation_data=whole.take(2),
        verbose=0,
        **options,
    )
    an_epoch = [("begin", 0), ("end", 9), ("begin", 10), ("end", 19)]
    an_epoch += [("begin", 20), ("end", 23), ("begin", 24)]
    assert seen.calls == [
        call
        for epoch in range(2)
        for call in [("epoch", epoch), *an_epoch, ("epoch end", epoch)]
    ]
    assert int(model.optimizer.iterations) == 2 * STEPS
    wanted = model.evaluate(whole, return_dict=True, verbose=0)
    validated = model.evaluate(whole.take(2), return_dict=True, verbose=0)
    assert history.epoch == [0, 1]
    for epoch in range(2):
        for name, value in wanted.items():
            np.testing.assert_allclose(
                history.history[name][epoch], value, rtol=1e-4
            )
            np.testing.assert_allclose(
                history.history[f"val_{name}"][epoch],
                validated[name],
                rtol=1e-4,
            )


def test_callbacks_of_lodestar_see_rounds(files, tmp_path):
    model = make_model()
    stats = lodestar.callbacks.TableStats(str(tmp_path / "logs"), 10)
    history = fit(
        model,
        open_dataset(files, SPEC, BATCH),
        epochs=9,
        threads=3,
        steps_per_round=5,
        callbacks=[
            stats,
            lodestar.callbacks.EarlyStopping(
                "loss", mode="max", patience=1, restore_best_weights=True
            ),
            lodestar.callbacks.Snapshot(str(tmp_path / "snapshots"), 10),
        ],
        verbose=0,
    )
    # The first epoch has the largest loss.
    assert history.epoch == [0, 1]
    assert stats.get_state() == {"batches": 2 * STEPS}
    assert any(name.startswith("table/") for name in history.history)
    infos = lodestar.snapshot.versions(tmp_path / "snapshots")
    assert infos[0].metadata["batch"] == 9
    assert infos[-1].metadata == {"epoch": 1, "batch": 23, "epoch_ended": True}
    other = make_model()
    callback = lodestar.callbacks.Snapshot(str(tmp_path / "snapshots"))
    assert callback.restore(other).step == 2 * STEPS


def test_one_can_stop_threads(files):
    class Stop(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            self.model.stop_training = True

    model = make_model()
    data = open_dataset(files, SPEC, BATCH)
    options = {"threads": 2, "steps_per_round": 4, "callbacks": [Stop()]}
    fit(model, data, epochs=3, verbose=0, **options)
    assert int(model.optimizer.iterations) == 4


def test_unsupported_options_with_threads(files):
    model, data = make_model(), open_dataset(files, SPEC, BATCH)
    mirrored = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
    with mirrored.scope():
        spread = make_model()
    for error, words, given, options in (
        (ValueError, "`snapshots` works only without `threads`", data,
         {"snapshots": "unused"}),
        (ValueError, "`sync_every` works only under Par", data,
         {"sync_every": 2}),
        (ValueError, "`steps_per_epoch` works only without", data,
         {"steps_per_epoch": 2}),
        (ValueError, "threads", data, {"threads": -1}),
        (ValueError, "`schema` works only if `data` are path", data,
         {"schema": SPEC}),
        (ValueError, "`batch_size` works only if `data` are", data,
         {"batch_size": 2}),
        (TypeError, "got _MapDataset", data.map(lambda x, y: (x, y)), {}),
        (TypeError, "got list", [], {}),
        (TypeError, "got function", lambda context: data, {}),
        (ValueError, "under MirroredStrategy. Remove `threads`", data,
         {"model": spread}),
    ):  # fmt: skip
        options = {"model": model, "threads": 2, **options}
        with pytest.raises(error, match=words):
            fit(data=given, verbose=0, **options)
    with pytest.raises(ValueError, match="`steps_per_round` works only under"):
        fit(model, data, steps_per_round=2)
    assert int(model.optimizer.iterations) == 0
