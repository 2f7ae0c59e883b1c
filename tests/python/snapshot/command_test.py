"""The command line: its output and its one-line errors."""

import os
import subprocess
import sys

import numpy as np
import pytest
import snapshot_tables as st
import tensorflow as tf

import lodestar
from lodestar import snapshot
from lodestar.snapshot import records
from lodestar.snapshot.__main__ import main
from lodestar.snapshot.folder import SnapshotFolder


@pytest.fixture
def path(tmp_path, monkeypatch):
    """Saves a full snapshot and a delta of two tables in the working directory."""
    monkeypatch.chdir(tmp_path)
    t, other = st.table(), st.table("other", dim=2, dtype="bfloat16")
    by = st.optimizer("sgd")
    for t_ in (t, other):
        st.fill(t_, range(-2, 8))
    st.train(t, st.numbers(4, 5, 5), by)
    st.train(t, st.numbers(5), by)
    snapshot.save([t, other], "s", dense={"w": np.zeros((2, 3))})
    st.fill(t, [1, 50], scale=2)
    t.remove([2])
    snapshot.save([t, other], "s", delta=True, metadata={"day": 3}, step=70)
    return "s"


def run(capsys, command, code=0):
    capsys.readouterr()
    assert main(command.split()) == code
    return capsys.readouterr()


def lines(capsys, command):
    said = run(capsys, command)
    assert said.err == ""
    return said.out.splitlines()


def test_list(path, capsys):
    found = [line.split() for line in lines(capsys, "list s")]
    assert found[0] == [
        "version",
        "kind",
        "step",
        "time",
        "rows",
        "removed",
        "size",
    ]
    assert found[1][:3] == ["1", "full", "2"] and found[1][4:6] == ["20", "0"]
    assert found[2][:5] == ["2", "delta", "on", "1", "70"]
    assert found[2][6] == "2"


def test_verify(path, capsys):
    (line,) = lines(capsys, "verify s")
    assert line.startswith("version 2 is intact: 4 files of 2 versions, ")
    (line,) = lines(capsys, "verify s --version 1")
    assert line.startswith("version 1 is intact: 3 files of 1 version, ")


def test_inspect(path, capsys):
    found = lines(capsys, "inspect s")
    assert found[0] == "version 2: delta, needs 1"
    assert found[1].startswith("step 70, 20") and "by Lodestar" in found[1]
    assert found[2] == 'metadata {"day": 3}'
    assert found[3] == "table t: 4 x float32, sgd"
    assert found[4].startswith("  version 2: 2 rows changed, 1 removed, ")
    assert found[5].startswith("  version 1: 10 rows, ")
    assert found[6] == "table other: 2 x bfloat16, no optimizer"
    found = lines(capsys, "inspect s --version 1 --table other")
    assert found[0] == "version 1: full"
    assert found[2].startswith("table other")
    assert found[-2] == "array dense/w: [2, 3] float64"
    assert found[-1].startswith("file blobs: ")


def test_one_id(path, capsys):
    assert lines(capsys, "inspect s --id 1 --table t") == [
        "table t: resident, last written in version 2",
        "  values 2 2.25 2.5 2.75",
        "  frequency 0, last seen 0",
    ]
    assert lines(capsys, "inspect s --id -2") == [
        "table t: resident, last written in version 1",
        "  values -2 -1.875 -1.75 -1.625",
        "  frequency 0, last seen 0",
        "table other: resident, last written in version 1",
        "  values -2 -1.875",
        "  frequency 0, last seen 0",
    ]
    assert lines(capsys, "inspect s --id 2 --table t") == [
        "table t: missing; version 2 removed it"
    ]
    assert lines(capsys, "inspect s --id 0x99 --table t") == [
        "table t: missing"
    ]
    # uint64 by its bits.
    assert lines(capsys, f"inspect s --id {2**64 - 2} --table other")[0] == (
        "table other: resident, last written in version 1"
    )


def test_an_id_with_slots_and_one_that_waits(path, capsys):
    t = st.table("p", dim=1, admission=lodestar.MinCount(2))
    by = st.optimizer("adagrad")
    st.train(t, st.numbers(1, 2), by)
    st.train(t, st.numbers(1), by)
    snapshot.save(t, "p")
    t.remove([1])
    snapshot.save(t, "p", delta=True)
    found = lines(capsys, "inspect p --version 1 --id 1")
    assert found[0] == "table p: resident, last written in version 1"
    assert found[2].startswith("  slot accumulator ")
    assert lines(capsys, "inspect p --id 1") == [
        "table p: missing; version 2 removed it"
    ]
    assert lines(capsys, "inspect p --id 2") == [
        "table p: pending, last written in version 2",
        "  occurrences 1, last seen 0",
    ]


def test_top(path, capsys):
    found = [
        line.split() for line in lines(capsys, "inspect s --top frequency -n 3")
    ]
    assert found == [
        ["table", "t"],
        ["frequency", "id", "last", "seen"],
        ["2", "5", "1"],
        ["1", "4", "0"],
        ["0", "-2", "0"],
        ["table", "other"],
        ["frequency", "id", "last", "seen"],
        ["0", "-2", "0"],
        ["0", "-1", "0"],
        ["0", "0", "0"],
    ]


def test_diff(path, capsys):
    assert lines(capsys, "inspect s --diff 1") == [
        "table t: 1 added, 1 removed, 1 changed, 8 equal; largest |difference| "
        "1.375, of id 1",
        "table other: 0 added, 0 removed, 0 changed, 10 equal",
    ]
    assert lines(capsys, "inspect s --version 1 --diff 2 --table t") == [
        "table t: 1 added, 1 removed, 1 changed, 8 equal; largest |difference| "
        "1.375, of id 1"
    ]
    t = st.table(dim=2)
    more = st.table("more")
    snapshot.save([t, more], "o")
    assert lines(capsys, "inspect s --diff o") == [
        "table t: 2 x float32 in o, 4 x float32 here",
        "table other: only in version 2",
        "table more: only in o",
    ]


def test_diff_in_parts(path, capsys, monkeypatch):
    whole = lines(capsys, "inspect s --diff 1")
    monkeypatch.setattr(records, "_SHARE_BYTES", 300)
    assert lines(capsys, "inspect s --diff 1") == whole


def test_rows_of_random_chains_are_those_of_a_restore(tmp_path, rng):
    folder = SnapshotFolder(tmp_path / "r")
    t, by = st.table(dim=3), st.optimizer()
    for _ in range(5):
        st.train(t, tf.constant(rng.integers(0, 300, 100)), by)
        t.remove(rng.integers(0, 300, 30))
        snapshot.save(t, folder.path, delta=True)
    files = records.files_of(folder, folder.chain(5), "t")
    assert [len(part) for part in files] == [5]
    found = {}
    for file, rows in records.rows_of(files):
        for id_, values in zip(rows["id"].tolist(), file.values(rows).tolist()):
            assert id_ not in found
            found[id_] = values
    assert found == st.rows_of(t)
    exported = t.export()
    slot = dict(
        zip(
            exported.ids.numpy().tolist(),
            exported.optimizer_slots["accumulator"].numpy(),
        )
    )
    for id_ in (*list(found)[:5], 10_000):
        state = records.find_id(files, id_)
        assert (state.state == "resident") == (id_ in found)
        if id_ in found:
            assert state.values.tolist() == found[id_]
            assert state.slots["accumulator"].tolist() == slot[id_].tolist()


def test_compact(path, capsys):
    assert lines(capsys, "compact s --keep 2") == [
        "version 3 is the newest; removed: none"
    ]
    assert lines(capsys, "compact s") == [
        "version 3 is the newest; removed: 1, 2"
    ]
    found = lines(capsys, "list s")
    assert "full, as 2" in found[1] and len(found) == 2
    assert "same as version 2" in lines(capsys, "inspect s")


@pytest.mark.parametrize(
    "command, message",
    [
        ("list none", "none: holds no snapshot"),
        ("verify none", "none: holds no snapshot"),
        ("inspect none", "none: holds no snapshot"),
        ("compact none", "none: holds no snapshot"),
        ("list gs://b/s", "`path` must be a folder of a local or mounted"),
        ("inspect s --version 7", "s: has no version 7; it has 1, 2"),
        (
            "inspect s --table x",
            "s/00000002: has no table 'x'; it has 't', 'other'",
        ),
        ("inspect s --diff 9", "s: has no version 9; it has 1, 2"),
        ("inspect s --diff x", "x: holds no snapshot"),
    ],
)
def test_errors_are_one_line(path, capsys, command, message):
    said = run(capsys, command, 1)
    assert said.out == "" and said.err.count("\n") == 1
    assert said.err.startswith(f"lodestar.snapshot: {message}")


def test_damage_is_one_line(path, capsys):
    os.truncate("s/00000001/table-00000", 300)
    said = run(capsys, "verify s", 1)
    assert said.err == (
        "lodestar.snapshot: s/00000001/table-00000: is truncated at byte 300: "
        f"must have {_wanted()} bytes, got 300\n"
    )
    said = run(capsys, "inspect s --id 3", 1)
    assert "s/00000001/table-00000: is truncated" in said.err


def _wanted():
    return snapshot.versions("s")[0].tables["t"].bytes


@pytest.mark.parametrize(
    "command",
    [
        "",
        "look s",
        "inspect",
        "inspect s --id x",
        "inspect s --top a",
        "inspect s --id 1 --diff 1",
        "inspect s --top frequency -n 0",
        f"inspect s --id {2**64}",
        "inspect s --version 0",
        "compact s --keep 0",
    ],
)
def test_bad_commands(capsys, command):
    with pytest.raises(SystemExit) as caught:
        main(command.split())
    assert caught.value.code == 2
    said = capsys.readouterr().err
    assert (
        said.startswith("python -m lodestar.snapshot") and said.count("\n") == 1
    )


def test_an_invalid_number_is_named(capsys):
    for option in ("--id", "-n"):
        with pytest.raises(SystemExit):
            main(["inspect", "s", option, "4x"])
        error = capsys.readouterr().err
        assert f"Invalid value for '{option}': '4x' is not a" in error


def test_as_a_process(path):
    environment = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith("TF_CPP")
    }
    environment["PYTHONPATH"] = os.pathsep.join(sys.path)
    command = [sys.executable, "-m", "lodestar.snapshot"]
    bad = subprocess.run(
        [*command, "list", "n"], capture_output=True, text=True, env=environment
    )
    assert (bad.returncode, bad.stdout) == (1, "")
    assert bad.stderr == "lodestar.snapshot: n: holds no snapshot\n"
