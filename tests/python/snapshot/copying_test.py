"""Copies of versions on other file systems; ram:// is TensorFlow's in memory."""

import itertools
import os

import numpy as np
import pytest
import snapshot_tables as st
import tensorflow as tf

from lodestar import snapshot
from lodestar.snapshot import copying
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
        if where.endswith("00000002/MANIFEST"):
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


def test_command(path, remote, table, capsys):
    assert main(["copy", path, remote]) == 0
    assert "version 3 is in ram://" in capsys.readouterr().out
    assert main(["copy", remote, remote]) == 1
    assert main(["copy", f"{path}/none", remote]) == 1
    assert "holds no snapshot" in capsys.readouterr().err
