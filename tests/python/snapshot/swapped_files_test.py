"""A file is accepted only if it is the one that its version describes."""

import os
import pathlib
import shutil

import numpy as np
import pytest
import snapshot_tables as st
import tensorflow as tf

import lodestar
from lodestar import snapshot
from lodestar.snapshot import __main__ as command
from lodestar.snapshot.folder import SnapshotFolder

_GOLDEN = pathlib.Path(__file__).absolute().parents[2] / "data/golden/snapshots"
_VALUES = {
    "user": {i: [i, i + 0.125] for i in (0, 1, 3, 4)}
    | {2: [-4, -4.25], 9: [-18, -18.25]},
    "item": {-1: [-1, -0.875, -0.75], 7: [7, 7.125, 7.25]},
}


def tables():
    return [
        st.table("a"),
        st.table("b"),
        lodestar.lookup.IdTable(["-"], name="words"),
    ]


@pytest.fixture
def path(tmp_path):
    """Saves three full versions and a delta; files of a kind have equal sizes."""
    path = str(tmp_path / "snapshots")
    a, b, _ = tables()
    for day in (1, 2, 3):
        st.fill(a, range(20), scale=day)
        st.fill(b, range(20), scale=-day)
        words = lodestar.lookup.IdTable(["x", f"{day}"], name="words")
        snapshot.save([a, b, words], path, dense={"w": np.arange(day, day + 4)})
    st.fill(a, [1], scale=9)
    st.fill(b, [1], scale=8)
    snapshot.save([a, b, words], path, delta=True, dense={"w": np.arange(4)})
    return path


def swap(path, first, second):
    first, second = os.path.join(path, first), os.path.join(path, second)
    assert os.path.getsize(first) == os.path.getsize(second)
    os.rename(first, first + ".moved")
    os.rename(second, first)
    os.rename(first + ".moved", second)


def refused(path, message, version=None):
    """Checks that every way of reading raises an error and changes nothing."""
    new = tables()
    st.fill(new[0], [77])
    before = [st.content(t) for t in new[:2]]
    for read in (
        lambda: snapshot.restore(new, path, version=version, on_extra="ignore"),
        lambda: snapshot.verify(path, version),
    ):
        with pytest.raises(snapshot.CorruptSnapshotError, match=message):
            read()
    assert [st.content(t) for t in new[:2]] == before
    assert [int(i) for i in new[2].lookup(tf.constant(["-", "x"]))] == [0, -1]


def test_files_of_two_tables(path, capsys):
    swap(path, "00000003/table-00000", "00000003/table-00001")
    refused(
        path,
        "00000003/table-00000: is another file: 'b' of version 3 of mark "
        "([0-9a-f]{32}) instead of 'a' of version 3 of mark "
        r"\1, which \S+00000003/MANIFEST lists",
    )
    versions = SnapshotFolder(path).versions()
    with pytest.raises(snapshot.CorruptSnapshotError, match="is another file"):
        snapshot.compact(path)
    assert SnapshotFolder(path).versions() == versions
    for arguments in (["verify"], ["inspect", "--id", "1"], ["compact"]):
        assert command.main([arguments[0], path, *arguments[1:]]) == 1
        assert "is another file: 'b' of version 3" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("first", "second", "version", "message"),
    [
        ("4/table-00000", "4/table-00001", None, "'b' of version 4"),
        (
            "1/table-00001",
            "2/table-00001",
            1,
            "'b' of version 2 of mark .* instead of 'b' of version 1 of mark ",
        ),
        ("2/table-00001", "1/table-00001", 2, "'b' of version 1"),
        ("3/blobs", "1/blobs", 3, "'blobs' of version 1 of mark"),
    ],
)
def test_files_of_two_versions(path, first, second, version, message):
    swap(path, f"0000000{first}", f"0000000{second}")
    message = f"0000000{first}: is another file: {message}"
    refused(path, message, version)
    if "blobs" in first:
        with pytest.raises(snapshot.CorruptSnapshotError, match=message):
            st.dense(path, version)
        assert st.dense(path)["w"].tolist() == [0, 1, 2, 3]


def test_files_of_two_folders(path, tmp_path):
    # The same tables, versions and sizes; only the mark differs.
    other = str(tmp_path / "other")
    new = tables()
    st.fill(new[0], range(20), scale=5)
    st.fill(new[1], range(20), scale=5)
    snapshot.save(new, other)
    shutil.copy(f"{other}/00000001/table-00000", f"{path}/00000001")
    refused(path, "'a' of version 1 of mark .* instead of 'a' of version 1", 1)


def test_a_copied_folder_and_a_compacted_one_are_valid(path, tmp_path):
    copy = str(tmp_path / "copy")
    shutil.copytree(path, copy)
    snapshot.compact(copy)
    assert snapshot.verify(copy).versions == (5,)
    states = []
    for folder in (path, copy):
        new = tables()
        snapshot.restore(new, folder)
        states.append([st.content(t) for t in new[:2]])
        assert int(new[2].lookup(tf.constant("3"))) == 1
        assert st.dense(folder)["w"].tolist() == [0, 1, 2, 3]
    assert states[0] == states[1]
    # Compacted files have the new version's number, not the originals'.
    for name in ("table-00000", "blobs"):
        copied = os.path.join(copy, "00000005", name)
        shutil.copy(os.path.join(path, "00000003", name), copied)
        with pytest.raises(snapshot.CorruptSnapshotError, match="00000005"):
            snapshot.verify(copy)
    # Training resumes from the complete version.
    st.fill(new[0], [5], scale=3)
    assert snapshot.save(new, path, delta=True).kind == "full"


def golden(tmp_path):
    path = str(tmp_path / "golden")
    shutil.copytree(_GOLDEN, path)
    return path


def golden_tables():
    return [
        lodestar.EmbeddingVariable(2, name="user", seed=3),
        lodestar.EmbeddingVariable(3, name="item", seed=4, dtype="float16"),
        lodestar.lookup.IdTable(["-"], name="words"),
    ]


def holds(path, new, changes=None):
    report = snapshot.restore(new, path)
    assert (report.step, report.metadata) == (20, {"day": 2})
    for t in new[:2]:
        assert st.rows_of(t) == _VALUES[t.name] | (changes or {}).get(
            t.name, {}
        )
    assert new[2].lookup(tf.constant(["x", "yy"])).numpy().tolist() == [0, 1]
    assert st.dense(path)["w"].tolist() == [1, 2, 3]
    snapshot.verify(path)


def test_a_golden_folder(tmp_path):
    path = golden(tmp_path)
    new = golden_tables()
    holds(path, new)
    # Deltas extend it.
    st.fill(new[0], [3], scale=4)
    info = snapshot.save(
        new,
        path,
        delta=True,
        dense={"w": np.arange(3) + 1},
        metadata={"day": 2},
        step=20,
    )
    assert (info.kind, info.parent) == ("delta", 2)
    changes = {"user": {3: [12, 12.5]}}
    holds(path, golden_tables(), changes)
    assert snapshot.compact(path).version == 4
    holds(path, golden_tables(), changes)
