"""Verifying checks every byte of every file that a version needs."""

import os

import numpy as np
import pytest
import snapshot_tables as st
import tensorflow as tf

from lodestar import snapshot
from lodestar.ops import snapshot_ops
from lodestar.snapshot import verifying
from lodestar.snapshot.folder import SnapshotFolder


@pytest.fixture
def path(tmp_path):
    """Saves a full snapshot, one that is not needed, and a delta."""
    path = str(tmp_path / "snapshots")
    t, other = st.table(), st.table("other")
    st.fill(t, range(40))
    st.fill(other, range(3))
    snapshot.save([t, other], path, dense={"w": np.arange(5)})
    st.fill(t, [1, 50], scale=2)
    t.remove([2])
    snapshot.save([t, other], path, delta=True, dense={"w": np.arange(6)})
    return path


def files(path):
    return sorted(
        os.path.join(folder, name)
        for folder, _, names in os.walk(path)
        for name in names
        if name != "LOCK"
    )


def test_a_valid_snapshot(path):
    report = snapshot.verify(path)
    assert (report.version, report.versions, report.files) == (2, (1, 2), 5)
    needed = [
        file
        for file in files(path)
        if not file.endswith(("MANIFEST", "00000001/blobs"))
    ]
    assert report.bytes == sum(map(os.path.getsize, needed))
    assert snapshot.verify(path, version=1).versions == (1,)


def test_every_byte_of_every_file(path):
    unneeded = os.path.join(path, "00000001", "blobs")
    for file in files(path):
        with open(file, "rb") as opened:
            data = opened.read()
        step = max(1, len(data) // 40)
        for place in [*range(0, len(data), step), len(data) - 1]:
            bad = bytearray(data)
            bad[place] ^= 1 << place % 8
            with open(file, "wb") as opened:
                opened.write(bad)
            if file == unneeded:
                snapshot.verify(path)
            else:
                with pytest.raises(snapshot.CorruptSnapshotError, match=file):
                    snapshot.verify(path)
        with open(file, "wb") as opened:
            opened.write(data)
    snapshot.verify(path)


@pytest.mark.parametrize("name", ["table-00000", "table-00001", "blobs"])
def test_files_of_other_lengths(path, name):
    file = os.path.join(path, "00000002", name)
    with open(file, "rb") as opened:
        data = opened.read()
    for other, message in (
        (data[:-1], rf"at byte {len(data) - 1}: must have {len(data)} bytes"),
        (b"", rf"at byte 0: must have {len(data)} bytes, got 0"),
        (data + b"x", rf"continues at byte {len(data)}"),
    ):
        with open(file, "wb") as opened:
            opened.write(other)
        with pytest.raises(
            snapshot.CorruptSnapshotError, match=f"{file}: .*{message}"
        ):
            snapshot.verify(path)
    os.unlink(file)
    with pytest.raises(
        snapshot.CorruptSnapshotError, match=f"{file}: is missing"
    ):
        snapshot.verify(path)


def test_all_that_is_wrong_is_named(path):
    for name in ("table-00000", "blobs"):
        os.truncate(os.path.join(path, "00000002", name), 20)
    with pytest.raises(
        snapshot.CorruptSnapshotError,
        match="table-00000: is truncated.*; .*blobs: is truncated",
    ):
        snapshot.verify(path)


def test_no_such_version(path):
    with pytest.raises(
        snapshot.SnapshotError, match="no version 7; it has 1, 2"
    ):
        snapshot.verify(path, version=7)
    with pytest.raises(ValueError, match="`version` must be .* got -1"):
        snapshot.verify(path, version=-1)


def test_nothing_is_removed_while_it_is_read(path, monkeypatch):
    damage, compacted = verifying.damage, []

    def damage_late(folder, chain):
        compacted.append(snapshot.compact(path))
        return damage(folder, chain)

    with monkeypatch.context() as patched:
        patched.setattr(verifying, "damage", damage_late)
        assert snapshot.verify(path).version == 2
    assert [(c.version, c.removed) for c in compacted] == [(3, ())]
    assert snapshot.compact(path).removed == (1, 2)


def test_a_list_omits_versions_removed_concurrently(path, monkeypatch):
    manifest = SnapshotFolder.manifest

    def manifest_late(folder, version):
        if version == 1:
            folder.remove(version)
        return manifest(folder, version)

    monkeypatch.setattr(SnapshotFolder, "manifest", manifest_late)
    assert [info.version for info in snapshot.versions(path)] == [2]


def test_a_file_that_cannot_be_read_is_not_damaged(path, monkeypatch):
    def fail(path):
        raise tf.errors.InternalError(None, None, f"cannot read '{path}'")

    monkeypatch.setattr(snapshot_ops, "verify_file", fail)
    for call in (snapshot.verify, snapshot.compact):
        with pytest.raises(tf.errors.InternalError, match="table-00000"):
            call(path)
    # The merged version is written, and nothing is removed.
    assert [i.version for i in snapshot.versions(path)] == [1, 2, 3]
    monkeypatch.undo()
    assert snapshot.verify(path).version == 3
