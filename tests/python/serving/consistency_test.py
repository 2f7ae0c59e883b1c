"""A LiveModel's calls see one version while the model is updated.

LODESTAR_STRESS_SECONDS sets how long threads call.
"""

import copy
import os
import shutil
import threading
import time

import numpy as np
import pytest
import tensorflow as tf
from followed_models import (
    MutableIds,
    Trainer,
    flip_byte,
    table_file,
    wait_until,
)

import lodestar
from lodestar._library import gen_ops
from lodestar.serving import LiveModel, live_model

SECONDS = float(os.environ.get("LODESTAR_STRESS_SECONDS", "1"))
IDS = 300


class Marked:
    """A model whose rows and weights all equal the number of the save."""

    def __init__(self, folder, **options):
        self.trainer = Trainer(folder, **options)
        self._ids = tf.range(IDS, dtype=tf.int64)
        self.features = {
            "clicks": tf.RaggedTensor.from_row_lengths(self._ids, [1] * IDS)
        }
        self.arguments = {
            "clicks_values": self._ids,
            "clicks_row_splits": tf.range(IDS + 1, dtype=tf.int64),
        }
        self.number = 0

    def save(self, delta=True):
        self.number += 1
        number = float(self.number)
        self.trainer.table.insert_or_assign(
            self._ids, tf.fill([IDS, 4], number)
        )
        # With a row of ones these compute 4; the bias adds nothing.
        for variable in self.trainer.model.layers[-1].weights:
            variable.assign(tf.fill(variable.shape, number))
        return self.trainer.save(delta=delta)

    def follow(self, **options):
        return LiveModel(
            self.trainer.exported,
            self.trainer.snapshots,
            **{"poll_seconds": None, **options},
        )


def numbers(outputs):
    """Returns the numbers that a call has seen, in rows and in weights."""
    rows = np.unique(outputs["rows"])
    # number x rows x 4 + number
    weights = outputs["score"].numpy()[:, 0] / (
        4 * outputs["rows"].numpy()[:, 0] + 1
    )
    return {*rows.tolist(), *weights.tolist()}


@pytest.fixture
def marked(tmp_path):
    marked = Marked(tmp_path)
    marked.save(delta=False)
    return marked


class Calls:
    """A weight that calls the model before it is assigned."""

    def __init__(self, variable, call):
        self.shape, self.dtype = variable.shape, variable.dtype
        self._variable, self._call = variable, call
        self.seen = []

    def assign(self, value):
        self.seen.append(self._call())
        self._variable.assign(value)

    @classmethod
    def replace_first(cls, live, call):
        variables = live._copies.idle(10)._weights
        name = next(iter(variables))
        variables[name] = cls(variables[name], call)
        return variables[name]


@pytest.mark.parametrize("delta", [True, False])
@pytest.mark.parametrize("consistency", ["call", "row"])
def test_a_call_in_the_middle_of_an_update(marked, delta, consistency):
    live = marked.follow(consistency=consistency)
    spy = Calls.replace_first(live, lambda: numbers(live(marked.features)))
    marked.save(delta=delta)
    assert live.poll()
    # With one copy, rows are updated before weights.
    assert spy.seen[0] == {1.0} if consistency == "call" else {1.0, 2.0}
    assert numbers(live(marked.features)) == {2.0}
    assert live.stats()["full_updates"] == (1 if delta else 2)


def test_an_id_table_and_its_model_are_of_one_version(tmp_path):
    model = MutableIds()
    model(tf.constant([["a"]]))
    lodestar.export.save(
        model,
        tmp_path / "model",
        inputs={"words": tf.TensorSpec([None, None], tf.string)},
    )
    live = LiveModel(tmp_path / "model", tmp_path / "snapshots", None)
    words = {"words": tf.constant([["a", "b", "c"]])}
    for number in range(1, 5):
        model.table.load(["b", "c"][: 1 + number % 2], [7, 9][: 1 + number % 2])
        lodestar.snapshot.save(model, tmp_path / "snapshots", delta=number > 1)
        assert live.poll()
        want = model(words["words"])
        np.testing.assert_array_equal(live(words)["output_0"], want)


@pytest.mark.parametrize("way", ["call", "signature", "function", "dataset"])
def test_threads_see_one_version_a_call(marked, way, monkeypatch):
    # On a slow machine, no update is postponed.
    monkeypatch.setattr(live_model, "_MAX_CALL_SECONDS", 300)
    live = marked.follow(poll_seconds=0.01)
    function = live.signatures["serving_default"]  # before any update
    traced = tf.function(live)
    dataset = tf.data.Dataset.from_tensors(marked.features).repeat()
    batches = threading.local()

    def from_dataset():
        if not hasattr(batches, "iterator"):
            batches.iterator = iter(dataset.map(live, num_parallel_calls=2))
        return next(batches.iterator)

    call = {
        "call": lambda: live(marked.features),
        "signature": lambda: function(**marked.arguments),
        "function": lambda: traced(marked.features),
        "dataset": from_dataset,
    }[way]
    done = threading.Event()
    failures, seen = [], [[] for _ in range(4)]

    def versions():
        return {number for mine in seen for number in mine}

    def read(mine):
        try:
            while not done.is_set():
                found = numbers(call())
                assert len(found) == 1, f"two versions: {found}"
                mine.append(found.pop())
        except BaseException as error:  # noqa: BLE001 (reported below)
            failures.append(error)

    threads = [threading.Thread(target=read, args=[mine]) for mine in seen]
    with live:
        for thread in threads:
            thread.start()
        end = time.monotonic() + SECONDS
        while not failures and (
            time.monotonic() < end
            or live.stats()["updates"] < 8
            or min(map(len, seen)) < 8
            or len(versions()) <= 2
        ):
            # Threads see versions that they skip as well.
            marked.save(delta=marked.number % 5 != 0)
        done.set()
        for thread in threads:
            thread.join()
    assert not failures, failures[0]
    assert live.stats()["failures"] == 0, live.stats()["last_error"]
    assert len(versions()) > 2
    if way != "dataset":  # which computes some batches in advance
        assert all(mine == sorted(mine) for mine in seen), "went back"


def test_rows_switch_whole_while_threads_lookup(tmp_path):
    trainer = Trainer(tmp_path)
    ids = tf.range(300, dtype=tf.int64)
    features = {"clicks": tf.RaggedTensor.from_row_lengths(ids, [1] * 300)}

    def save(number, delta):
        trainer.table.insert_or_assign(ids, tf.fill([300, 4], float(number)))
        trainer.save(delta=delta)

    save(1, delta=False)
    failures = []
    done = threading.Event()

    def lookup(live):
        last = np.zeros(300)
        try:
            while not done.is_set():
                rows = live(features)["rows"].numpy()
                assert (rows == rows[:, :1]).all(), "a torn row"
                assert (rows[:, 0] >= last).all(), "an older row"
                last = rows[:, 0]
        except BaseException as error:  # noqa: BLE001 (reported below)
            failures.append(error)

    with LiveModel(
        trainer.exported, trainer.snapshots, 0.01, consistency="row"
    ) as live:
        threads = [
            threading.Thread(target=lookup, args=[live]) for _ in range(4)
        ]
        for thread in threads:
            thread.start()
        number, end = 1, time.monotonic() + SECONDS
        while number <= 5 or time.monotonic() < end:
            number += 1
            save(number, delta=number % 5 != 0)
            wait_until(lambda: live.version() == number)  # noqa: B023
        done.set()
        for thread in threads:
            thread.join()
        assert not failures, failures[0]
        stats = live.stats()
        assert stats["failures"] == 0 and 1 < stats["full_updates"] < number
        np.testing.assert_array_equal(
            live(features)["rows"], np.full([300, 4], number)
        )


def test_an_update_waits_for_calls_of_the_copy_that_it_writes(
    marked, monkeypatch
):
    live = marked.follow()
    begun, end = threading.Event(), threading.Event()
    found = []

    def slow(content):
        begun.set()
        assert end.wait(300)
        found.append(numbers(content.loaded.serve(marked.features)))

    thread = threading.Thread(target=live._copies.run, args=[slow])
    thread.start()
    assert begun.wait(300)
    marked.save()
    assert live.poll() and live.version() == 2
    monkeypatch.setattr(live_model, "_MAX_CALL_SECONDS", 0.05)
    marked.save()
    assert not live.poll()
    assert (
        "A call that began before the last update still runs"
        in live.stats()["last_error"]
    )
    with pytest.raises(TimeoutError, match="after 0.05 seconds"):
        live.rollback(1)
    assert numbers(live(marked.features)) == {2.0}
    assert not live.stats()["pinned"]
    end.set()
    thread.join()
    assert found == [{1.0}]
    assert live.poll() and live.version() == 3
    assert numbers(live(marked.features)) == {3.0}
    assert live.stats()["full_updates"] == 1


def test_a_call_that_fails_holds_nothing(marked):
    live = marked.follow()
    errors = []
    for _ in range(3):
        with pytest.raises(Exception) as caught:  # noqa: PT011 (TensorFlow's)
            live({"no such": tf.constant([1])})
        errors.append(caught)  # with the frames
        marked.save()
        assert live.poll()
    assert live.stats()["failures"] == 0


def test_both_copies_load_deltas(marked):
    live = marked.follow()
    for _ in range(4):
        marked.save()
        assert live.poll()
        contents = live._copies.serving, live._copies.idle(10)
        assert {c.served.version for c in contents} == {marked.number}
    assert live.stats()["full_updates"] == 1
    assert live.stats()["rows_written"] == 5 * IDS


def test_a_copy_that_is_behind_catches_up(marked, monkeypatch):
    live = marked.follow()
    with monkeypatch.context() as context:
        context.setattr(LiveModel, "_catch_up", lambda self: None)
        marked.save()
        assert live.poll()
        lodestar.snapshot.compact(marked.trainer.snapshots)
        marked.save()
        assert live.poll() and live.version() == 4
    assert numbers(live(marked.features)) == {3.0}
    marked.save()
    assert live.poll() and live.version() == 5
    assert numbers(live(marked.features)) == {4.0}
    assert live.stats()["updates"] == 4


def test_a_broken_full_version_leaves_both_copies_usable(marked):
    live = marked.follow()
    marked.save(delta=False)
    path = table_file(marked.trainer.snapshots, 2)
    flip_byte(path)
    assert not live.poll() and live.version() == 1
    assert numbers(live(marked.features)) == {1.0}
    idle = live._copies.idle(10)
    assert idle.served.version == 1 and not idle.torn
    flip_byte(path)
    assert live.poll()
    assert numbers(live(marked.features)) == {2.0}


def test_functions_of_the_user(marked):
    live = marked.follow()
    function = live.signatures["serving_default"]
    assert set(function.structured_outputs) == {"rows", "score"}
    assert copy.copy(function).structured_outputs.keys() == {"rows", "score"}

    @tf.function
    def both(values, splits):
        outputs = function(clicks_values=values, clicks_row_splits=splits)
        assert outputs["score"].shape.as_list() == [IDS, 1]
        ragged = tf.RaggedTensor.from_row_splits(values, splits)
        again = live({"clicks": ragged})
        return outputs, tf.reduce_sum(again["rows"])

    for number in (1, 2, 3):
        outputs, total = both(*marked.arguments.values())
        assert numbers(outputs) == {float(number)}
        assert total == 4 * IDS * number
        marked.save()
        live.poll()


def test_from_rows_follows_snapshots(tmp_path):
    marked = Marked(tmp_path, from_rows=True)
    live = marked.follow()
    function = live.signatures["from_rows"]
    (name,) = function.structured_input_signature[1]
    for number in (1, 2, 3):
        marked.save(delta=number > 1)
        live.poll()
        score = function(**{name: tf.ones([2, 4])})["score"]
        np.testing.assert_array_equal(score, [[5.0 * number]] * 2)


def test_closing_while_an_update_runs(marked):
    live = marked.follow(poll_seconds=0.01)
    begun, end = threading.Event(), threading.Event()

    def wait():
        begun.set()
        assert end.wait(300)

    Calls.replace_first(live, wait)
    marked.save()
    assert begun.wait(300)
    closing = threading.Thread(target=live.close)
    closing.start()
    assert numbers(live(marked.features)) == {1.0}
    end.set()
    closing.join(300)
    assert not closing.is_alive() and not live.stats()["following"]
    assert live.version() == 2
    assert numbers(live(marked.features)) == {2.0}


def test_folders_that_vanish(marked):
    live = marked.follow()
    marked.save()
    shutil.rmtree(marked.trainer.exported)
    assert live.poll()
    shutil.rmtree(marked.trainer.snapshots)
    assert not live.poll()
    assert numbers(live(marked.features)) == {2.0}
    with pytest.raises(lodestar.snapshot.SnapshotError, match="no version 1"):
        live.rollback(1)
    assert live.version() == 2
    with pytest.raises(FileNotFoundError, match="does not exist"):
        marked.follow()


@pytest.mark.parametrize("half", [False, True])
def test_an_export_that_is_replaced_while_it_is_loaded(
    marked, monkeypatch, half
):
    load, loads = tf.saved_model.load, []

    def replace_and_load(path):
        loads.append(path)
        if len(loads) in replaced:
            lodestar.export.save(marked.trainer.model, path)
            if half:
                raise tf.errors.DataLossError(None, None, "of two exports")
        return load(path)

    monkeypatch.setattr(tf.saved_model, "load", replace_and_load)
    replaced = {2}
    live = marked.follow()
    assert len(loads) == 4
    assert numbers(live(marked.features)) == {1.0}
    replaced = range(100)
    marked.number = 7
    changing = iter(range(100))
    monkeypatch.setattr(live_model, "_fingerprint", lambda path: next(changing))
    with pytest.raises(OSError, match="was replaced during each"):
        marked.follow()


def test_an_export_that_cannot_be_loaded(marked, monkeypatch):
    def load(path):
        raise tf.errors.DataLossError(None, None, "a disk is gone")

    monkeypatch.setattr(tf.saved_model, "load", load)
    with pytest.raises(tf.errors.DataLossError, match="a disk is gone"):
        marked.follow()


def test_wrong_consistency(marked):
    with pytest.raises(ValueError, match="`consistency`='table' is not in"):
        marked.follow(consistency="table")


class TestTurns:
    def test_a_turn_is_held_until_it_is_dropped(self):
        turns = gen_ops.lodestar_make_turns()
        first, number = gen_ops.lodestar_hold_turn(turns)
        assert number == 0
        gen_ops.lodestar_begin_turn(turns, 1)
        second, number = gen_ops.lodestar_hold_turn(turns)
        assert number == 1 and gen_ops.lodestar_last_turn_is_held(turns)
        with pytest.raises(
            tf.errors.FailedPreconditionError, match="is still held"
        ):
            gen_ops.lodestar_begin_turn(turns, 0)
        gen_ops.lodestar_release_turn(first)
        del first
        assert not gen_ops.lodestar_last_turn_is_held(turns)
        gen_ops.lodestar_begin_turn(turns, 0)
        assert gen_ops.lodestar_hold_turn(turns)[1] == 0
        assert gen_ops.lodestar_last_turn_is_held(turns)
        del second
        assert not gen_ops.lodestar_last_turn_is_held(turns)

    def test_a_graph_that_fails_holds_nothing(self):
        turns = gen_ops.lodestar_make_turns()

        @tf.function
        def fail(x):
            turn, number = gen_ops.lodestar_hold_turn(turns)
            with tf.control_dependencies([tf.debugging.assert_positive(x)]):
                gen_ops.lodestar_release_turn(turn)
            return number

        with pytest.raises(tf.errors.InvalidArgumentError):
            fail(tf.constant(-1))
        assert fail(tf.constant(1)) == 0
        gen_ops.lodestar_begin_turn(turns, 1)
        assert not gen_ops.lodestar_last_turn_is_held(turns)

    def test_other_tensors_are_refused(self):
        turns = gen_ops.lodestar_make_turns()
        turn, _ = gen_ops.lodestar_hold_turn(turns)
        for call, message in [
            (
                lambda: gen_ops.lodestar_hold_turn(turn),
                "must be an output of MakeTurns",
            ),
            (
                lambda: gen_ops.lodestar_begin_turn(turn, 0),
                "must be an output of MakeTurns",
            ),
            (
                lambda: gen_ops.lodestar_last_turn_is_held(turn),
                "must be an output of MakeTurns",
            ),
            (
                lambda: gen_ops.lodestar_release_turn(turns),
                "must be an output of HoldTurn",
            ),
            (
                lambda: gen_ops.lodestar_hold_turn(tf.stack([turns])),
                "`turns`",
            ),
        ]:
            with pytest.raises(tf.errors.InvalidArgumentError, match=message):
                call()
