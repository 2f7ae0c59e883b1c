"""Copies of versions on other file systems; ram:// is TensorFlow's in memory."""

import gc
import itertools
import os
import shutil
import threading

import copying_process
import numpy as np
import pytest
import snapshot_tables as st
import tensorflow as tf

from lodestar import snapshot
from lodestar.snapshot import copying
from lodestar.snapshot import folder as folder_lib
from lodestar.snapshot.__main__ import main
from lodestar.snapshot.copying import CopyReport
from lodestar.snapshot.folder import SnapshotFolder

_NUMBERS = itertools.count()


@pytest.fixture
def remote():
    """Returns the path of a folder on another file system."""
    return f"ram://copies{next(_NUMBERS)}/models/a"


@pytest.fixture
def table(path):
    """Saves a table: a full snapshot and two deltas."""
    table, by = st.table("a"), st.optimizer()
    st.train([table], tf.range(200, dtype=tf.int64), by)
    snapshot.save(table, path, dense={"w": np.arange(3)})
    for step in range(2):
        st.train([table], st.numbers(step, 1000 + step), by)
        table.remove([50 + step])
        snapshot.save(table, path, delta=True, dense={"w": np.arange(3) + step})
    return table


def names(remote):
    return sorted(
        name
        for folder, _, files in tf.io.gfile.walk(remote)
        for name in (
            os.path.relpath(f"{folder}/{file}", remote) for file in files
        )
    )


def restored(path, **options):
    new = st.table("a")
    dense = snapshot.restore(new, path, **options).dense
    return st.content(new), dense["w"].tolist()


def test_copies_there_and_back(path, remote, table, tmp_path):
    report = snapshot.copy(path, remote)
    files = [
        f"{manifest.version:08d}/{entry.file}"
        for manifest in SnapshotFolder(path).chain(3)
        for entry in manifest.all_files()
    ]
    size = sum(os.path.getsize(f"{path}/{file}") for file in files)
    assert report == CopyReport(3, (1, 2, 3), size)
    manifests = [f"{n:08d}/MANIFEST" for n in (1, 2, 3)]
    assert names(remote) == sorted(files + manifests)
    back = str(tmp_path / "back")
    assert snapshot.copy(remote, back) == report
    assert restored(back) == (st.content(table), [1, 2, 3])
    snapshot.verify(back)
    # Training can go on in the copy.
    new = st.table("a")
    snapshot.restore(new, back)
    assert snapshot.save(new, back, delta=True).version == 4


def test_copies_only_what_is_missing(path, remote, table):
    assert snapshot.copy(path, remote, version=2).copied == (1, 2)
    assert snapshot.copy(path, remote).copied == (3,)
    assert snapshot.copy(path, remote) == CopyReport(3, (), 0)


def test_one_version_of_several(path, remote, table, tmp_path):
    snapshot.copy(path, remote)
    back = str(tmp_path / "back")
    assert snapshot.copy(remote, back, version=2).copied == (1, 2)
    assert restored(back)[1] == [0, 1, 2]
    assert snapshot.copy(remote, back).copied == (3,)


def test_a_copy_that_died_has_no_version(
    path, remote, table, monkeypatch, tmp_path
):
    write, wrote = copying._write, []

    def dies(where, pieces):
        if where.endswith("00000002/MANIFEST.partial"):
            raise KeyboardInterrupt
        wrote.append(where)
        write(where, pieces)

    with monkeypatch.context() as patched:
        patched.setattr(copying, "_write", dies)
        with pytest.raises(KeyboardInterrupt):
            snapshot.copy(path, remote)
    # Each manifest comes after all files of its version.
    assert wrote[-1].startswith(f"{remote}/00000002/")
    assert copying._Remote(remote).versions() == [1]
    assert snapshot.copy(path, remote).copied == (2, 3)
    back = str(tmp_path / "back")
    snapshot.copy(remote, back)
    assert restored(back) == (st.content(table), [1, 2, 3])


def test_a_damaged_file_is_not_copied(path, remote, table, tmp_path):
    snapshot.copy(path, remote)
    name = f"00000003/{SnapshotFolder(path).manifest(3).tables[0].file}"
    with tf.io.gfile.GFile(f"{remote}/{name}", "rb") as file:
        data = bytearray(file.read())
    data[len(data) // 2] ^= 1
    copying._write(f"{remote}/{name}", [bytes(data)])
    back = str(tmp_path / "back")
    with pytest.raises(
        snapshot.CorruptSnapshotError,
        match=f"^{remote}/{name}: is damaged, or was not copied .* checksum",
    ):
        snapshot.copy(remote, back)
    assert [info.version for info in snapshot.versions(back)] == [1, 2]
    tf.io.gfile.remove(f"{remote}/{name}")
    with pytest.raises(
        snapshot.CorruptSnapshotError, match=f"^{remote}/{name}: is missing"
    ):
        snapshot.copy(remote, back)
    tf.io.gfile.rmtree(f"{remote}/00000002")
    with pytest.raises(
        snapshot.CorruptSnapshotError,
        match=f"^{remote}/00000003/MANIFEST: is a delta on version 2, but "
        f"{remote}/00000002/MANIFEST is missing",
    ):
        snapshot.copy(remote, str(tmp_path / "other"))
    with open(f"{path}/{name}", "r+b") as file:
        file.truncate(10)
    with pytest.raises(snapshot.CorruptSnapshotError, match="is truncated"):
        snapshot.copy(path, f"{remote}/other")
    assert copying._Remote(f"{remote}/other").versions() == [1, 2]


def test_errors(path, remote, table, tmp_path):
    with pytest.raises(snapshot.SnapshotError, match="holds no snapshot"):
        snapshot.copy(remote, str(tmp_path / "back"))
    snapshot.copy(path, remote)
    with pytest.raises(snapshot.SnapshotError, match="no version 7; it has"):
        snapshot.copy(remote, str(tmp_path / "back"), version=7)
    with pytest.raises(snapshot.SnapshotError, match="no version 7"):
        snapshot.copy(path, remote, version=7)
    for pair in ((path, remote), (remote, str(tmp_path / "back"))):
        for version in (0, "1", True):
            with pytest.raises(ValueError, match="`version` must be an intege"):
                snapshot.copy(*pair, version=version)
    with pytest.raises(ValueError, match="local or mounted"):
        snapshot.copy(remote, "ram://other")
    other = str(tmp_path / "other")
    snapshot.save(table, other, dense={"w": np.arange(3)})
    for pair in ((other, remote), (remote, other)):
        with pytest.raises(
            snapshot.SnapshotError, match="already has another version 1"
        ):
            snapshot.copy(*pair)


class Gate:
    """Stops copies before they write a file, until it is opened."""

    def __init__(self, monkeypatch):
        self.reached, self.open = threading.Event(), threading.Event()
        write = copying._write

        def waits(where, pieces):
            self.reached.set()
            assert self.open.wait(60)
            write(where, pieces)

        monkeypatch.setattr(copying, "_write", waits)


@pytest.fixture
def gate(monkeypatch):
    gate = Gate(monkeypatch)
    yield gate
    gate.open.set()


def numbers_of(path):
    return [info.version for info in snapshot.versions(path)]


def test_training_goes_on_while_a_thread_copies(
    path, remote, table, gate, tmp_path
):
    before = st.content(table)
    pending = snapshot.copy(path, remote, blocking=False)
    assert gate.reached.wait(60) and not pending.done()
    with pytest.raises(TimeoutError, match="is not copied after 0.01 sec"):
        pending.wait(0.01)
    table.remove([60])
    snapshot.save(table, path, delta=True, dense={"w": np.arange(3)})
    # Versions that are being copied stay, others do not.
    assert snapshot.compact(path).removed == (4,)
    assert numbers_of(path) == [1, 2, 3, 5]
    gate.open.set()
    assert pending.wait().copied == (1, 2, 3)
    assert pending.done()
    back = str(tmp_path / "back")
    snapshot.copy(remote, back)
    assert restored(back) == (before, [1, 2, 3])
    assert snapshot.compact(path).removed == (1, 2, 3)
    assert numbers_of(path) == [5]


def test_the_callback_keeps_what_is_copied(path, remote, table, gate):
    pending = snapshot.copy(path, remote, version=2, blocking=False)
    folder = SnapshotFolder(path)
    snapshot.save(table, path, dense={"w": np.arange(3)})
    with folder.lock():
        assert folder.remove_unneeded(1) == [3]
    gate.open.set()
    assert pending.wait().version == 2
    with folder.lock():
        assert folder.remove_unneeded(1) == [2, 1]
    snapshot.verify(path)


def test_a_local_source_is_kept_for_a_local_copy(path, table, gate, tmp_path):
    back = str(tmp_path / "back")
    pending = snapshot.copy(path, back, blocking=False)
    assert gate.reached.wait(60)
    snapshot.save(table, path, dense={"w": np.arange(3)})
    assert snapshot.compact(path).removed == ()
    gate.open.set()
    assert pending.wait().copied == (1, 2, 3)
    snapshot.verify(back)


def test_a_version_that_is_removed_before_it_is_kept(path, table, monkeypatch):
    folder, locked, chosen = SnapshotFolder(path), folder_lib._locked, []

    def late(manifest, kind):
        chosen.append(manifest)
        if len(chosen) == 1:
            snapshot.save(table, path, dense={"w": np.arange(3)})
            for number in (3, 2, 1):
                folder.remove(number)
        return locked(manifest, kind)

    monkeypatch.setattr(folder_lib, "_locked", late)
    with folder.kept(None) as kept:
        assert [manifest.version for manifest in kept] == [4]
    with pytest.raises(snapshot.SnapshotError, match="has no version 3"):
        with folder.kept(3):
            pass


def test_a_second_copy_is_refused(path, remote, table, gate, fork, tmp_path):
    pending = snapshot.copy(path, remote, blocking=False)
    message = "is copying versions from this folder. Wait for its end"
    for blocking in (True, False):
        with pytest.raises(snapshot.SnapshotError, match=message):
            snapshot.copy(path, f"{remote}/2", blocking=blocking)
    # Another process sees it as well, and the lock ends with the process.
    other = fork(copying_process.copy, path, "ram://other")
    assert message in other.read()
    gate.open.set()
    pending.wait()
    assert snapshot.copy(path, f"{remote}/2").copied == (1, 2, 3)
    gate.open.clear()
    gate.reached.clear()
    back = str(tmp_path / "back")
    down = snapshot.copy(remote, back, blocking=False)
    with pytest.raises(snapshot.SnapshotError, match="Only one writer"):
        snapshot.copy(remote, back, blocking=False)
    gate.open.set()
    down.wait()


def test_errors_of_a_thread_are_told(path, remote, table, monkeypatch):
    with pytest.raises(snapshot.SnapshotError, match="no version 7"):
        snapshot.copy(path, remote, 7, blocking=False)
    with pytest.raises(
        ValueError, match="`blocking`='no' is not a Python bool"
    ):
        snapshot.copy(path, remote, blocking="no")

    def fails(where, pieces):
        raise tf.errors.UnavailableError(None, None, "no connection")

    monkeypatch.setattr(copying, "_write", fails)
    pending = snapshot.copy(path, remote, blocking=False)
    for _ in range(2):
        with pytest.raises(tf.errors.UnavailableError, match="no connection"):
            pending.wait()
    with pytest.warns(RuntimeWarning, match="not copied, and nobody .*no conn"):
        snapshot.copy(path, remote, blocking=False)._thread.join()
        gc.collect()


def test_a_process_that_is_killed_leaves_whole_versions(
    path, table, tmp_path, fork
):
    remote = f"file://{tmp_path}/remote"
    seen = set()
    # It dies before it writes a file, or halfway.
    for count in itertools.count():
        shutil.rmtree(tmp_path / "remote", ignore_errors=True)
        process = fork(copying_process.die, path, remote, count)
        process.wait()
        there = copying._Remote(remote).versions()
        seen.add(len(there))
        back = tmp_path / "back"
        shutil.rmtree(back, ignore_errors=True)
        for version in there:
            snapshot.copy(remote, back, version)
            snapshot.verify(back)
        if len(there) == 3:
            break
    assert seen == {0, 1, 2, 3}
    # The next copy continues, also in the same source.
    assert snapshot.copy(path, remote) == CopyReport(3, (), 0)


def test_command(path, remote, table, capsys):
    assert main(["copy", path, remote]) == 0
    assert "version 3 is in ram://" in capsys.readouterr().out
    assert main(["copy", remote, remote]) == 1
    assert main(["copy", f"{path}/none", remote]) == 1
    assert "holds no snapshot" in capsys.readouterr().err
