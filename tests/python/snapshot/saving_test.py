"""Saving: full snapshots, deltas, concurrent training, and errors."""

import copy
import dataclasses
import gc
import itertools
import os
import shutil
import subprocess
import sys
import threading

import numpy as np
import pytest
import snapshot_tables as st
import tensorflow as tf

import lodestar
from lodestar import _files, snapshot
from lodestar.snapshot import saving
from lodestar.snapshot.found_tables import find_tables
from lodestar.snapshot.saving import Content, begin


def restored(path, like, **options):
    """Returns the content of a new table after a restore."""
    new = lodestar.EmbeddingVariable.from_config(
        {**like.get_config(), "num_shards": 3}
    )
    snapshot.restore({like.name: new}, path, on_extra="ignore", **options)
    return st.content(new)


def test_a_full_snapshot_holds_everything(path):
    t, by = st.table(), st.optimizer()
    for step in range(3):
        st.train(t, st.numbers(1, 2, 2**62, -5, step), by)
    info = snapshot.save(t, path, metadata={"day": 3})
    assert (info.version, info.kind, info.parent, info.step) == (
        1,
        "full",
        None,
        3,
    )
    assert info.rows == 5 and info.removed == 0 and info.seconds > 0
    assert info.metadata == {"day": 3}
    (entry,) = info.tables.values()
    assert entry.name == "t" and entry.whole and entry.rows == 5
    assert (entry.dim, entry.dtype) == (4, "float32")
    assert entry.optimizer == "adagrad" and len(entry.slot_names) == 1
    assert entry.bytes == info.bytes
    assert entry.bytes == os.path.getsize(
        os.path.join(info.path, entry.files[0].file)
    )
    assert restored(path, t) == st.content(t)
    assert snapshot.versions(path) == [dataclasses.replace(info, seconds=None)]


def test_deltas_contain_only_changes(path):
    t, by = st.table(), st.optimizer()
    st.train(t, tf.range(1000, dtype=tf.int64), by)
    full = snapshot.save(t, path)
    states = [st.content(t)]
    st.train(t, st.numbers(3, 7, 5000), by)
    t.remove([8, 9, 10_000])
    delta = snapshot.save(t, path, delta=True)
    states.append(st.content(t))
    assert (delta.kind, delta.parent, delta.version) == ("delta", 1, 2)
    assert delta.rows == 3 and delta.removed >= 2
    assert delta.bytes < full.bytes / 10
    # An id that was removed before, and no id at all.
    st.train(t, st.numbers(8), by)
    third = snapshot.save(t, path, delta=True)
    states.append(st.content(t))
    assert (third.rows, third.parent) == (1, 2)
    empty = snapshot.save(t, path, delta=True)
    states.append(st.content(t))
    assert (empty.rows, empty.removed, empty.kind) == (0, 0, "delta")
    for version, state in enumerate(states, 1):
        assert restored(path, t, version=version) == state


def test_a_new_table_and_a_returning_one_are_full_within_a_delta(path):
    a, b = st.table("a"), st.table("b")
    st.fill(a, range(100))
    st.fill(b, range(50))
    first = snapshot.save(a, path, delta=True)
    assert (first.kind, first.parent, first.rows) == ("full", None, 100)
    st.fill(a, [5], scale=2)
    info = snapshot.save([a, b], path, delta=True)
    assert (info.kind, info.parent) == ("delta", 1)
    found = [(t.whole, t.rows) for t in info.tables.values()]
    assert found == [(False, 1), (True, 50)]
    snapshot.save(a, path, delta=True)
    st.fill(b, [3], scale=2)
    info = snapshot.save([a, b], path, delta=True)
    assert [t.whole for t in info.tables.values()] == [False, True]
    assert restored(path, a) == st.content(a)
    assert restored(path, b) == st.content(b)


def _without_newest(t, path):
    shutil.rmtree(snapshot.versions(path)[-1].path)


@pytest.mark.parametrize(
    ("change", "kind"),
    [
        (lambda t, path: None, "delta"),
        (lambda t, path: t.clear(), "full"),
        (lambda t, path: t.load_rows(t.export()), "full"),
        (lambda t, path: snapshot.save(t, path + "2", delta=True), "full"),
        (lambda t, path: snapshot.restore(t, path), "delta"),
        (lambda t, path: snapshot.restore(t, path, version=1), "full"),
        (
            lambda t, path: snapshot.restore(t, path, optimizer_slots="reset"),
            "full",
        ),
        (_without_newest, "full"),
    ],
    ids=[
        *("nothing", "clear", "import", "elsewhere", "restore", "older"),
        *("reset", "removed"),
    ],
)
def test_what_the_next_delta_is_after(path, change, kind):
    t = st.table()
    st.train(t, tf.range(10, dtype=tf.int64), st.optimizer())
    snapshot.save(t, path)
    st.fill(t, [1], scale=2)
    snapshot.save(t, path, delta=True)
    change(t, path)
    st.fill(t, [4], scale=3)
    info = snapshot.save(t, path, delta=True)
    # The number of a removed version is not reused.
    assert (info.kind, info.version) == (kind, 3)
    assert restored(path, t) == st.content(t)
    st.fill(t, [2], scale=4)
    assert snapshot.save(t, path, delta=True).rows == 1
    assert restored(path, t) == st.content(t)


def test_a_change_of_optimizer_is_saved(path):
    t = st.table()
    st.fill(t, range(10))
    snapshot.save(t, path)
    st.train(t, st.numbers(2), st.optimizer("adam"))
    snapshot.save(t, path, delta=True)
    assert restored(path, t) == st.content(t)


def test_tables_that_swap_names_are_full(path):
    a, b = st.table("a"), st.table("b")
    st.fill(a, range(10))
    st.fill(b, range(10, 20))
    snapshot.save({"a": a, "b": b}, path)
    st.fill(a, [3], scale=2)
    info = snapshot.save({"a": b, "b": a}, path, delta=True)
    assert info.kind == "full"
    new = st.table("b")
    snapshot.restore(new, path, on_extra="ignore")
    assert st.rows_of(new) == st.rows_of(a)


def test_a_delta_does_not_build_on_the_same_number_in_a_copy(path):
    t, other = st.table(), st.table()
    st.fill(t, range(10))
    snapshot.save(t, path)
    copy = path + "2"
    shutil.copytree(path, copy)
    snapshot.restore(other, copy)
    st.fill(other, [3], scale=2)
    # Both folders have a version 2; only the copy's has the new row.
    assert snapshot.save(t, path, delta=True).version == 2
    assert snapshot.save(other, copy, delta=True).version == 2
    snapshot.restore(t, copy)
    assert snapshot.save(t, path, delta=True).kind == "full"
    assert restored(path, t) == st.content(t)


def test_after_a_restore_deltas_resume(path):
    t, by = st.table(), st.optimizer()
    st.train(t, tf.range(100, dtype=tf.int64), by)
    snapshot.save(t, path)
    st.train(t, st.numbers(1, 2), by)
    snapshot.save(t, path, delta=True)
    new = st.table()
    snapshot.restore(new, path)
    st.train(new, st.numbers(5), by)
    info = snapshot.save(new, path, delta=True)
    assert (info.kind, info.parent, info.rows) == ("delta", 2, 1)
    assert restored(path, t) == st.content(new)
    # The first table's changes are relative to version 2, not to the newest.
    assert snapshot.save(t, path, delta=True).kind == "full"


def test_dense_arrays_round_trip(path):
    dense = {
        "a": tf.Variable([[1.5, 2]]),
        "b/c": tf.constant([1, -2], tf.bfloat16),
        "d": np.float64(4),
        "e": np.zeros((0, 3), bool),
        "f": np.asfortranarray(np.arange(6, dtype=np.int8).reshape(2, 3)),
        "g": tf.constant(3, tf.float16),
    }
    t = st.table()
    snapshot.save(t, path, dense=dense)
    dense["a"].assign([[7, 7]])
    found = st.dense(path)
    assert list(found) == list(dense)
    np.testing.assert_array_equal(found["a"], [[1.5, 2]])
    for name in ("b/c", "d", "e", "f", "g"):
        wanted = np.asarray(
            dense[name] if name in "def" else dense[name].numpy()
        )
        assert found[name].dtype == wanted.dtype
        np.testing.assert_array_equal(found[name], wanted)
    snapshot.save(t, path, delta=True)
    assert st.dense(path) == {}
    assert list(st.dense(path, version=1)) == list(dense)


def test_big_arrays_round_trip(path):
    big = np.arange(20 << 20, dtype=np.int32)  # larger than a block
    snapshot.save(st.table(), path, dense={"x": 1, "big": big, "y": 2})
    found = st.dense(path)
    assert int(found["x"]) == 1 and int(found["y"]) == 2
    assert (found["big"] == big).all()
    snapshot.verify(path)


def test_a_thread_writes_the_moment_at_which_it_began(path):
    t, by = st.table(dim=16), st.optimizer()
    st.train(t, tf.range(200_000, dtype=tf.int64), by)
    before = st.content(t)
    pending = snapshot.save(t, path, blocking=False)
    for _ in range(5):
        st.train(t, tf.range(0, 200_000, 7, dtype=tf.int64), by)
        t.remove(tf.range(0, 1000, 3, dtype=tf.int64))
    info = pending.wait(300)
    assert pending.done() and pending.wait() == info
    assert restored(path, t) == before
    after = st.content(t)
    assert after != before
    snapshot.save(t, path, delta=True)
    assert restored(path, t) == after


def test_all_or_nothing_of_a_step_while_another_thread_trains(path):
    # Both start with zeros and learn the same, so they differ only within a
    # step.
    tables = [
        st.table(n, dim=8, embeddings_initializer="zeros") for n in ("a", "b")
    ]
    by = st.optimizer("sgd")
    ids = tf.range(1, 3000, dtype=tf.int64)
    st.train(tables, ids, by)
    stop = threading.Event()

    def loop():
        while not stop.is_set():
            st.train(tables, ids, by)

    thread = threading.Thread(target=loop)
    thread.start()
    try:
        steps = set()
        for i in itertools.count():
            snapshot.save(tables, path, delta=i % 4 != 0)
            new = [
                st.table(n, dim=8, embeddings_initializer="zeros")
                for n in ("a", "b")
            ]
            snapshot.restore(new, path)
            one, other = (st.content(t) for t in new)
            assert one["rows"] == other["rows"]
            assert int(new[0].step) == int(new[1].step)
            steps.add(int(new[0].step))
            # Also if the other thread is slow.
            if i >= 7 and len(steps) > 1:
                break
            assert thread.is_alive()
    finally:
        stop.set()
        thread.join()


def test_it_may_end_at_any_step(path, monkeypatch):
    # Like a process that dies there: nothing is cleaned up.
    t, by = st.table(), st.optimizer()
    st.train(t, tf.range(50, dtype=tf.int64), by)
    states = {snapshot.save(t, path).version: st.content(t)}
    for steps in range(1, 100):
        st.train(t, st.numbers(steps, steps + 1), by)
        state = st.content(t)
        with monkeypatch.context() as patched:
            ended = st.runs_to_its_end(
                patched,
                steps,
                lambda: snapshot.save(t, path, True, dense={"w": 1}),
            )
        newest = snapshot.versions(path)[-1].version
        if newest not in states:
            states[newest] = state
        assert restored(path, t) == states[newest]
        snapshot.verify(path)
        if ended:
            break
    assert 8 < steps < 99


def test_cancel_leaves_nothing(path):
    t = st.table(dim=16)
    st.fill(t, range(300_000))
    snapshot.save(t, path)
    st.fill(t, range(100), scale=2)
    state = st.content(t)
    pending = snapshot.save(t, path, blocking=False)
    cancelled = pending.cancel()
    assert pending.done() and pending.cancel() == cancelled
    if cancelled:
        with pytest.raises(snapshot.SnapshotError, match="was cancelled"):
            pending.wait()
        assert [info.version for info in snapshot.versions(path)] == [1]
    # The changes since version 1 are not lost.
    info = snapshot.save(t, path, delta=True)
    assert restored(path, t) == state
    assert info.kind == "delta"


def test_cancel_before_the_commit_leaves_nothing(path, monkeypatch):
    t = st.table()
    st.fill(t, range(10))
    write = saving._Saving._write

    def write_and_cancel(self):
        written = write(self)
        self.cancel()
        return written

    with monkeypatch.context() as patched:
        patched.setattr(saving._Saving, "_write", write_and_cancel)
        pending = snapshot.save(t, path, blocking=False)
        with pytest.raises(snapshot.SnapshotError, match="was cancelled"):
            pending.wait()
    assert snapshot.versions(path) == []
    assert snapshot.save(t, path).rows == 10


def test_wait_raises_errors_of_the_thread(path):
    t = st.table()
    st.fill(t, range(10))
    snapshot.save(t, path)
    st.fill(t, [3], scale=2)
    pending = _pending_that_fails(path, t)
    with pytest.raises((OSError, tf.errors.OpError), match="00000002"):
        pending.wait(300)
    assert [info.version for info in snapshot.versions(path)] == [1]
    info = snapshot.save(t, path, delta=True)
    assert (info.kind, info.parent, info.rows) == ("delta", 1, 1)
    assert restored(path, t) == st.content(t)


def test_an_error_that_nobody_waits_for_warns(path):
    t = st.table()
    snapshot.save(t, path)
    pending = _pending_that_fails(path, t)
    pending._thread.join(300)
    assert pending.done()
    with pytest.warns(RuntimeWarning, match="nobody waited for it: .*00000002"):
        del pending
        gc.collect()


def test_one_that_is_pending_is_not_copied(path):
    pending = snapshot.save(st.table(), path, blocking=False)
    with pytest.raises(TypeError, match="PendingSnapshot cannot be copied"):
        copy.copy(pending)
    pending.wait()


def test_an_error_after_the_handle_was_dropped_warns(path):
    t = st.table()
    snapshot.save(t, path)
    with pytest.warns(RuntimeWarning, match="nobody waited for it: .*00000002"):
        pending = _pending_that_fails(path, t)
        thread = pending._thread
        del pending
        gc.collect()
        thread.join(300)


def test_a_version_that_was_seen_stays(path, monkeypatch):
    t = st.table()
    st.fill(t, range(10))
    snapshot.save(t, path)
    st.fill(t, [3], scale=2)
    sync = _files.sync

    def fails_at_the_end(synced):
        sync(synced)
        if os.path.exists(os.path.join(synced, "MANIFEST")):
            raise OSError("the disk is gone")

    with monkeypatch.context() as patched:
        patched.setattr(_files, "sync", fails_at_the_end)
        with pytest.raises(OSError, match="the disk is gone"):
            snapshot.save(t, path, delta=True)
    assert [info.version for info in snapshot.versions(path)] == [1, 2]
    # Its number is not reused, and no change is lost.
    assert snapshot.save(t, path, delta=True).version == 3
    assert restored(path, t) == st.content(t)


def test_a_new_working_directory_does_not_move_it(tmp_path, monkeypatch):
    t = st.table()
    st.fill(t, range(10))
    monkeypatch.chdir(tmp_path)
    pending = snapshot.save(t, "snapshots", blocking=False)
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    pending.wait(300)
    assert restored(tmp_path / "snapshots", t) == st.content(t)


def test_no_thread_to_be_had(path, monkeypatch):
    # As in a function that atexit calls, in later versions of Python.
    t = st.table()
    st.fill(t, range(10))

    def fails(thread):
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", fails)
        with pytest.raises(RuntimeError, match="can't start"):
            snapshot.save(t, path, blocking=False)
        assert snapshot.versions(path) == []
        assert snapshot.save(t, path).rows == 10
    snapshot.verify(path)


def _pending_that_fails(path, t):
    """Starts a snapshot whose folder is deleted before it is written."""

    def write_files(folder):
        os.rmdir(folder)
        return ()

    content = Content(find_tables(t), write_files=write_files)
    return begin(path, content, True, metadata=None, step=None, blocking=False)


@pytest.fixture
def go_on(monkeypatch):
    """Returns an event; once set, snapshots write their arrays, then tables."""
    go_on, write = threading.Event(), saving.blobs.write

    def write_late(*arguments):
        assert go_on.wait(300)
        return write(*arguments)

    monkeypatch.setattr(saving.blobs, "write", write_late)
    return go_on


def test_two_at_once_are_refused(path, go_on):
    t, other = st.table("a"), st.table("b")
    pending = snapshot.save(t, path, dense={"w": 1}, blocking=False)
    try:
        with pytest.raises(
            snapshot.SnapshotError,
            match=f"LOCK: is held by process {os.getpid()}",
        ):
            snapshot.save(other, path)
    finally:
        go_on.set()
    pending.wait()
    snapshot.save(other, path)


def test_one_table_in_two_folders_at_once_is_refused(path, go_on):
    t = st.table()
    st.fill(t, range(10))
    pending = snapshot.save(t, path, dense={"w": 1}, blocking=False)
    try:
        with pytest.raises(tf.errors.FailedPreconditionError):
            snapshot.save(t, path + "2")
        assert snapshot.versions(path + "2") == []
    finally:
        go_on.set()
    pending.wait()
    assert snapshot.save(t, path + "2").rows == 10


def test_id_tables_are_saved_completely(path):
    words = lodestar.lookup.IdTable(["a", "", "\u00e9"], name="words")
    numbers = lodestar.lookup.IdTable([7, -9], [3, 1], name="numbers")
    lookup = lodestar.layers.IdLookup(["x", "y"], name="lookup")
    info = snapshot.save([words, numbers, lookup], path)
    assert (info.kind, info.rows, info.step) == ("full", 0, 0)
    new = [
        lodestar.lookup.IdTable(["z"], name="words"),
        lodestar.lookup.IdTable(
            [], key_dtype=tf.int64, name="numbers", mutable=True
        ),
        lodestar.layers.IdLookup(name="lookup"),
    ]
    report = snapshot.restore(new, path)
    assert report.restored == {"words": 3, "numbers": 2, "lookup": 2}
    for old, loaded in zip((words, numbers), new):
        for wanted, found in zip(old.export(), loaded.export()):
            assert wanted.numpy().tolist() == found.numpy().tolist()
    assert new[2].get_vocabulary() == ["[UNK]", "x", "y"]
    t = st.table()
    info = snapshot.save([t, words], path, delta=True)
    assert info.kind == "full"


def test_an_empty_vocabulary_does_not_replace_one(path):
    t = st.table()
    st.fill(t, [1])
    snapshot.save([t, lodestar.layers.IdLookup(name="lookup")], path)
    new = st.table()
    lookup = lodestar.layers.IdLookup(["x"], name="lookup")
    with pytest.raises(
        snapshot.SnapshotError, match="'lookup' has no vocabulary in the snap"
    ):
        snapshot.restore([new, lookup], path)
    assert int(new.size()) == 0 and lookup.get_vocabulary() == ["[UNK]", "x"]


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize("dim", [1, 3])
def test_row_types(path, dtype, dim):
    t, by = st.table(dim=dim, dtype=dtype), st.optimizer("adam")
    for ids in ([1, 2, 3], [2, 3, 4]):
        st.train(t, st.numbers(*ids), by)
        snapshot.save(t, path, delta=True)
        assert restored(path, t) == st.content(t)
    snapshot.verify(path)


@pytest.mark.parametrize(
    "options",
    [
        {"admission": lodestar.MinCount(3)},
        {"admission": lodestar.CountingBloom(2, 0.01, 1000)},
        {"eviction": lodestar.MaxRows(6)},
        {"default_row": lodestar.SharedRows(4)},
        {"eviction": lodestar.MaxAge(2), "num_shards": 7},
    ],
    ids=lambda options: type(list(options.values())[0]).__name__,
)
def test_policies(path, options):
    t, by = st.table(**options), st.optimizer()
    states = []
    for step in range(6):
        st.train(t, st.numbers(step, step + 1, step + 2, 100), by)
        if "eviction" in options:
            t.evict()
        snapshot.save(t, path, delta=step > 0)
        states.append(st.content(t))
    for version, state in enumerate(states, 1):
        new = lodestar.EmbeddingVariable.from_config(t.get_config())
        snapshot.restore(new, path, version=version)
        assert st.content(new) == state
        # It resumes like the first one.
    other = st.optimizer()
    other.iterations.assign(by.iterations)
    st.train(t, st.numbers(5, 6, 200), by)
    st.train(new, st.numbers(5, 6, 200), other)
    assert st.content(new) == st.content(t)


@pytest.mark.parametrize(
    "options, message",
    [
        (
            {"path": "gs://b/x"},
            "`path` must be a folder of a local .* got 'gs://b/x'",
        ),
        ({"model": []}, "`model` holds no table"),
        ({"delta": "yes"}, "`delta` must be True or False, got 'yes'"),
        ({"blocking": 1}, "`blocking` must be True or False, got 1"),
        ({"step": 1.5}, "`step` must be a 64-bit integer, got 1.5"),
        ({"step": 2**63}, "`step` must be .* got 9223372036854775808"),
        ({"step": "a"}, "`step` must be .* got 'a'"),
        ({"step": float("inf")}, "`step` must be a 64-bit .* got inf"),
        ({"metadata": {"a": object()}}, "`metadata` cannot be written as JSON"),
        ({"dense": [1]}, r"`dense` must be a dict .* got \[1\]"),
        ({"dense": {"": 1}}, "`dense` must be a dict"),
        ({"dense": {"a": "text"}}, r"dense\['a'\] must hold numbers or bool"),
        ({"dense": {"a": tf.constant("x")}}, r"dense\['a'\]"),
        ({"dense": {"a": [[1], [2, 3]]}}, r"dense\['a'\] must be an ar"),
    ],
    ids=lambda value: str(value)[:40],
)
def test_bad_arguments(path, options, message):
    t = st.table()
    with pytest.raises(ValueError, match=message):
        snapshot.save(**{"path": path, "model": t, **options})
    assert snapshot.versions(path) == []
    # Nothing keeps the folder or the table alive.
    assert snapshot.save(t, path).kind == "full"


def test_inside_of_a_tf_function_is_refused(path):
    t = st.table()

    @tf.function
    def f():
        snapshot.save(t, path)

    with pytest.raises(RuntimeError, match="`snapshot.save` returns Python"):
        f()


def test_a_given_step_is_kept(path):
    info = snapshot.save(st.table(), path, step=np.int64(-7))
    assert info.step == -7 and snapshot.versions(path)[0].step == -7


_SAVE_AND_END = """
import sys
import lodestar
import snapshot_tables as st
t = st.table(dim=16)
st.fill(t, range(100_000))
lodestar.snapshot.save(t, sys.argv[1], blocking=False)
"""


def test_a_process_that_ends_waits_for_its_snapshot(path):
    subprocess.run(
        [sys.executable, "-c", _SAVE_AND_END, path],
        env={
            **os.environ,
            "PYTHONPATH": os.pathsep.join(
                [os.path.dirname(__file__), *sys.path]
            ),
        },
        check=True,
    )
    assert snapshot.versions(path)[0].rows == 100_000
    snapshot.verify(path)
