"""Compaction writes the same rows as one full version, without loss."""

import os
import shutil

import numpy as np
import pytest
import snapshot_tables as st
import tensorflow as tf

import lodestar
from lodestar import snapshot
from lodestar.snapshot.compaction import CompactReport, remove_old
from lodestar.snapshot.folder import SnapshotFolder


@pytest.fixture
def by():
    """Returns the optimizer that trains the tables of `saved`."""
    return st.optimizer()


@pytest.fixture
def saved(path, by):
    """Saves two tables: a full snapshot and two deltas."""
    a, b = st.table("a"), st.table("b", dim=2)
    words = lodestar.lookup.IdTable(["x", "y"], name="words")
    st.train([a, b], tf.range(200, dtype=tf.int64), by)
    snapshot.save([a, b, words], path, dense={"w": np.arange(3)})
    for step in range(2):
        st.train([a, b], st.numbers(step, 1000 + step), by)
        a.remove([50 + step, 1000])
        snapshot.save(
            [a, b, words],
            path,
            delta=True,
            dense={"w": np.arange(3) + step},
            metadata={"step": step},
        )
    return a, b


def same(path, saved, **options):
    new = [st.table("a"), st.table("b", dim=2)]
    snapshot.restore(new, path, on_extra="ignore", **options)
    return [st.content(t) for t in new] == [st.content(t) for t in saved]


def test_a_chain_becomes_one_full_version(path, saved):
    before = snapshot.versions(path)[-1]
    report = snapshot.compact(path)
    assert report == CompactReport(4, (1, 2, 3))
    (info,) = snapshot.versions(path)
    assert (info.version, info.kind, info.parent, info.same_as) == (
        4,
        "full",
        None,
        3,
    )
    assert (info.step, info.time, info.metadata) == (
        before.step,
        before.time,
        before.metadata,
    )
    assert info.tables["a"].rows == int(saved[0].size())
    assert same(path, saved)
    assert st.dense(path)["w"].tolist() == [1, 2, 3]
    words = lodestar.lookup.IdTable(["q"], name="words")
    snapshot.restore(words, path, on_extra="ignore")
    assert int(words.lookup(tf.constant("y"))) == 1
    snapshot.verify(path)
    assert sorted(os.listdir(path)) == ["00000004", "LOCK"]


def test_a_full_version_stays_and_old_ones_go(path, saved):
    full = snapshot.save(list(saved), path)
    assert snapshot.compact(path, keep=2) == CompactReport(4, ())
    assert snapshot.compact(path) == CompactReport(4, (1, 2, 3))
    assert snapshot.compact(path) == CompactReport(4, ())
    assert [i.version for i in snapshot.versions(path)] == [full.version]


def test_kept_versions_keep_what_they_need(path, saved):
    assert snapshot.compact(path, keep=3) == CompactReport(4, ())
    assert same(path, saved, version=3) and same(path, saved)
    assert snapshot.compact(path, keep=1).removed == (1, 2, 3)


def test_the_trainer_resumes_with_deltas(path, saved, by):
    snapshot.compact(path)
    st.train(list(saved), st.numbers(7), by)
    info = snapshot.save(list(saved), path, delta=True)
    assert (info.kind, info.parent, info.rows) == ("delta", 4, 2)
    assert same(path, saved)
    # Again, as restored by another process.
    new = [st.table("a"), st.table("b", dim=2)]
    snapshot.restore(new, path)
    assert snapshot.compact(path).version == 6
    st.train(new, st.numbers(9), st.optimizer())
    info = snapshot.save(new, path, delta=True)
    assert (info.kind, info.parent) == ("delta", 6)
    assert same(path, new)


def test_it_may_end_at_any_step(path, saved, monkeypatch, tmp_path):
    copy = str(tmp_path / "copy")
    shutil.copytree(path, copy)
    call = 0
    while True:
        call += 1
        shutil.rmtree(path)
        shutil.copytree(copy, path)
        with monkeypatch.context() as patched:
            ended = st.runs_to_its_end(patched, call, snapshot.compact, path)
        assert same(path, saved), call
        snapshot.verify(path)
        for version in SnapshotFolder(path).versions():
            assert SnapshotFolder(path).chain(version)
        # It can be repeated.
        report = snapshot.compact(path)
        assert same(path, saved) and report.version >= 4
        assert sorted(os.listdir(path)) == [f"{report.version:08d}", "LOCK"]
        if ended:
            break
    assert call > 15


@pytest.mark.parametrize("name", ["00000002/table-00000", "00000003/blobs"])
def test_damage_is_found_and_nothing_is_removed(path, saved, name):
    with open(os.path.join(path, name), "r+b") as file:
        file.seek(100)
        file.write(b"\xff\xff")
    with pytest.raises(snapshot.CorruptSnapshotError, match=f"{name}', byte "):
        snapshot.compact(path)
    kept = ["00000001", "00000002", "00000003", "LOCK"]
    assert sorted(os.listdir(path)) == kept
    assert [i.version for i in snapshot.versions(path)] == [1, 2, 3]


def test_bad_arguments(path, saved):
    for keep in (0, -1, 1.5, None, True):
        with pytest.raises(
            ValueError, match="`keep` must be an integer of at least 1"
        ):
            snapshot.compact(path, keep)
    with pytest.raises(snapshot.SnapshotError, match="holds no snapshot"):
        snapshot.compact(path + "2")
    assert not os.path.exists(path + "2")
    with SnapshotFolder(path).lock():
        with pytest.raises(snapshot.SnapshotError, match="is held by"):
            snapshot.compact(path)


def _flip(path, version, name="table-00000"):
    with open(os.path.join(path, f"{version:08d}", name), "r+b") as file:
        file.seek(-200, os.SEEK_END)
        byte = file.read(1)
        file.seek(-200, os.SEEK_END)
        file.write(bytes([byte[0] ^ 1]))


def _lose(path, version):
    os.unlink(os.path.join(path, f"{version:08d}", "table-00000"))


@pytest.mark.parametrize("damage", [_flip, _lose])
def test_a_broken_newest_version_replaces_nothing(path, saved, damage):
    state = [st.content(t) for t in saved]
    snapshot.save(list(saved), path)
    st.fill(saved[0], [1], scale=5)
    snapshot.save(list(saved), path)
    damage(path, 5)
    with pytest.raises(
        snapshot.CorruptSnapshotError,
        match="00000005/table-00000.* version before it is version=4",
    ):
        snapshot.compact(path, keep=1)
    assert [i.version for i in snapshot.versions(path)] == [1, 2, 3, 4, 5]
    # If the version in the hint is broken as well, it names another.
    damage(path, 4)
    with pytest.raises(
        snapshot.CorruptSnapshotError, match="before it is version=3"
    ):
        snapshot.restore(list(saved), path, on_extra="ignore")
    damage(path, 1)
    with pytest.raises(
        snapshot.CorruptSnapshotError, match="No version before it is intact"
    ):
        snapshot.restore(list(saved), path, on_extra="ignore")
    assert [st.content(t) for t in saved] != state
    assert len(snapshot.versions(path)) == 5


def test_a_version_without_its_parent_names_a_complete_one(path, saved):
    os.unlink(os.path.join(path, "00000002", "MANIFEST"))
    for use in (
        lambda: snapshot.compact(path),
        lambda: snapshot.restore(list(saved), path, on_extra="ignore"),
    ):
        with pytest.raises(
            snapshot.CorruptSnapshotError,
            match="00000002/MANIFEST is missing. .* is version=1",
        ):
            use()
    assert [i.version for i in snapshot.versions(path)] == [1, 3]


def test_old_versions_stay_until_a_kept_one_is_complete(path, saved):
    folder = SnapshotFolder(path)
    for _ in range(2):
        snapshot.save(list(saved), path)
    _flip(path, 4)
    _flip(path, 5)
    with (
        folder.lock(),
        pytest.raises(
            snapshot.CorruptSnapshotError,
            match="00000005/.*; .*00000004/.*No version was removed",
        ),
    ):
        remove_old(folder, 2)
    assert folder.versions() == [1, 2, 3, 4, 5]
    snapshot.save(list(saved), path)
    with folder.lock():
        assert remove_old(folder, 2) == [4, 3, 2, 1]
    # A broken version causes a warning, and is removed once a complete one
    # replaces it.
    for _ in range(2):
        snapshot.save(list(saved), path)
    _lose(path, 8)
    with (
        folder.lock(),
        pytest.warns(RuntimeWarning, match="00000008/table-00000: is missing"),
    ):
        assert remove_old(folder, 2) == [6, 5]
    assert same(path, saved, version=7)
