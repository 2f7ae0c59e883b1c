"""Tests of examples/wide_deep, from its command line to its last table."""

import itertools
import pathlib
import re
import signal
import sys
import time
import types

import numpy as np
import pytest
from processes import Interpreter
from wide_deep_command import entry, start, table

import lodestar

SMALL = ["--examples", "4000", "--checkpoint-steps", "5", "--batch-size", "128"]
SLOTS = """\
label: [click]
dense: {I: [2], n: {shape: [1], dtype: uint64}}
sparse: [a/b, C 2]
wide: [C 2]
one_hot: {day: 7}
"""


@pytest.fixture
def rng():
    """Returns a seeded NumPy generator."""
    return np.random.default_rng(20240917)


@pytest.fixture(scope="module")
def server():
    """Starts one serving process for all tests, because TensorFlow starts slowly."""
    with Interpreter() as process:
        yield process


@pytest.fixture
def main(monkeypatch, server):
    """Returns the example's entry point, which returns the exit code."""
    yield from entry(monkeypatch, server)


@pytest.fixture
def main_alone(monkeypatch):
    """Like `main`, but starts a process to serve, as it does for users."""
    yield from entry(monkeypatch)


def multislot(rng, rows=600):
    lines = []
    for _ in range(rows):
        ids = rng.integers(0, 9, rng.integers(0, 4))
        click = int(rng.random() < (0.9 if min(ids, default=9) < 3 else 0.1))
        parts = [f"1 {click} 2 {rng.normal():.3f} 1e-3 1 {rng.integers(5)}"]
        parts += [f"{len(ids)} {' '.join(map(str, ids))}".strip()]
        parts += [f"1 {2**64 - 1 - int(rng.integers(3))}", "1 6"]
        lines.append(" ".join(parts) + "\n")
    return "".join(lines)


def test_generated_log_interrupted_and_resumed(main_alone, tmp_path, capsys):
    main = main_alone
    out = tmp_path / "out"
    process = start(*SMALL, "--output", out)
    while not list((out / "snapshots").glob("*/MANIFEST")):
        assert process.poll() is None
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate()
    assert process.returncode == 130
    assert errors.strip().startswith("Interrupted.")
    assert errors.strip().count("\n") == 0
    assert main(*SMALL, "--output", out) == 0
    resumed = capsys.readouterr().out
    assert re.search(r"Resuming from the checkpoint of step \d+ of 27", resumed)
    assert main(*SMALL, "--output", tmp_path / "whole") == 0
    whole = capsys.readouterr().out
    assert "Training 27 steps of 128 examples." in whole
    for name in ("AUC, held-out data", "accuracy", "steps"):
        assert table(resumed)[name] == table(whole)[name]
    for name in ("table 'deep', dimension 32", "table 'wide', dimension 1"):
        rows = [
            table(text)[name].partition(",")[0] for text in (resumed, whole)
        ]
        assert rows[0] == rows[1]
    assert "checkpoint" in table(whole)
    for name in ("examples per second", "best possible"):
        assert name in table(whole)
    assert main(*SMALL, "--output", out, "--batch-size", 64) == 2
    assert "Choose another --output" in capsys.readouterr().err
    assert main(*SMALL, "--output", out, "--seed", 1) == 2
    assert "Choose another --output" in capsys.readouterr().err

    newest = lodestar.snapshot.versions(out / "snapshots")[-1]
    assert newest.step == 27
    rows = pathlib.Path(newest.path, "table-00000")
    rows.write_bytes(rows.read_bytes()[:5000])
    assert main(*SMALL, "--output", out) == 2
    error = capsys.readouterr().err
    assert error.startswith(f"wide_deep: {rows}: ")
    assert error.count("\n") == 1


def test_multislot_files_of_every_kind_of_slot(main, tmp_path, rng, capsys):
    files = [tmp_path / "first", tmp_path / "second"]
    for file in files:
        file.write_text(multislot(rng))
    schema = tmp_path / "schema.yaml"
    schema.write_text(SLOTS)
    command = [*files, "--schema", schema, "--batch-size", 32]
    out = tmp_path / "out"
    command += ["--epochs", 3, "--baseline", "--output", out]
    assert main(*command) == 0
    found = table(capsys.readouterr().out)
    assert float(found["AUC, held-out data"]) > 0.75
    assert found["table 'deep', dimension 32"].startswith("12 ids")
    assert found["table 'wide', dimension 1"].startswith("3 ids")
    assert "with dense tables" in found


def test_csv_files(main, tmp_path, rng, monkeypatch, capsys):
    # A clock on which each step takes a second.
    clock = types.SimpleNamespace(perf_counter=itertools.count().__next__)
    monkeypatch.setattr(sys.modules["main"], "time", clock)

    def write(name, rows):
        file = tmp_path / name
        lines = [
            f"{rng.normal():.3f},{'xyz'[k]},{'no' if k else 'yes'}\n"
            for k in rng.integers(0, 3, rows)
        ]
        file.write_text("a,b,bought\n" + "".join(lines))
        return file

    command = [write("train.csv", 400), "--label", "bought=yes"]
    command += ["--eval-data", write("eval.csv", 100), "--epochs", 3]
    command += ["--batch-size", 150]
    assert main(*command, "--output", tmp_path / "out") == 0
    found = table(capsys.readouterr().out)
    assert float(found["AUC, held-out data"]) > 0.95
    assert found["100 served scores"].startswith("differ by at most")
    # Batches of 150, 150 and 100; the first one is not timed.
    assert found["examples per second"] == f"{(3 * 400 - 150) / 8:,.0f}"


def test_integer_ids(main, tmp_path, rng, capsys):
    users = np.tile(np.arange(150), 6)
    likes = rng.random(150) < 0.5
    lines = [
        f"{user},{i},{i % 9},{likes[user]:d}\n" for i, user in enumerate(users)
    ]
    file = tmp_path / "in.csv"
    file.write_text("user,line,page,label\n" + "".join(rng.permutation(lines)))
    arguments = [file, "--epochs", 4, "--batch-size", 64]
    arguments += ["--learning-rate", 0.1, "--output", tmp_path / "out"]
    arguments += ["--numeric", "line"]
    assert main(*arguments) == 2
    assert capsys.readouterr().err.endswith(
        "\n  --categorical=user --numeric=line,page\n"
    )
    arguments += ["--categorical", "user,page"]
    assert main(*arguments) == 0
    text = capsys.readouterr().out
    kinds = {row[0]: row[1] for row in re.findall(r"(\w+) +(\w+)", text)}
    assert (kinds["user"], kinds["page"]) == ("ids", "ids")
    assert kinds["line"] == "dense"
    # As a number, a user has no meaning.
    assert float(table(text)["AUC, held-out data"]) > 0.9
    assert main(*arguments[:-1], "page,user") == 2
    assert "Choose another --output" in capsys.readouterr().err


BAD_FILES = {
    "missing": None,
    "empty": b"",
    "binary": bytes(np.random.default_rng(0).integers(0, 256, 999, np.uint8)),
    "truncated": b"1 1 1 2 1 5\n1 0 1 2",
    "few": b"1 1 1 2 1 5\n1 0 1 2 2 5\n",
    "words": b"1 1 1 two 1 5\n",
    "label": b"1 2 1 2 1 5\n",
    "nan": b"1 1 1 nan 1 5\n",
    "one_class": b"1 1 1 2 1 5\n" * 50,
    "one_line": b"1 1 1 2 1 5\n",
}


@pytest.mark.parametrize("name", BAD_FILES)
def test_a_bad_file_is_named_and_leaves_nothing(main, tmp_path, name, capsys):
    bad = tmp_path / name
    if BAD_FILES[name] is not None:
        bad.write_bytes(BAD_FILES[name])
    schema = tmp_path / "schema.yaml"
    schema.write_text("label: [y]\ndense: [I]\nsparse: [C]\n")
    before = sorted(tmp_path.iterdir())
    out = tmp_path / "above" / "out"
    assert main(bad, "--schema", schema, "--output", out) == 2
    error = capsys.readouterr().err
    assert error.startswith(f"wide_deep: {bad}:") and error.count("\n") == 1
    assert sorted(tmp_path.iterdir()) == before


@pytest.mark.parametrize(
    "text, label, message",
    [
        ("y,a\n1,2\n", "z", "in.csv: has no column 'z'; its columns are y, a"),
        (
            "y,a\nx,2\n",
            "y",
            "in.csv: column 'y': found text ('x'), expected num",
        ),
        ("y,a\n" + "0,.1\n1,2\n3,2\n" * 20, "y", "0 or 1"),
        ("y,a\n1,.5\n1\n", "y", "in.csv: line 3: found 1 fields, exp"),
        ("y,a\n1,2\n", "y=2", "in.csv: column 'y': no label is '2'; found '1'"),
        ("y,a\n1,.5\n", "y", "in.csv: 1 examples are too few to hold some"),
    ],
)
def test_a_bad_csv_file_is_named(main, tmp_path, text, label, message, capsys):
    source = tmp_path / "in.csv"
    source.write_text(text)
    out = tmp_path / "out"
    assert main(source, "--label", label, "--output", out) == 2
    error = capsys.readouterr().err
    assert message in error and error.count("\n") == 1
    assert [path.name for path in tmp_path.iterdir()] == ["in.csv"]


def test_an_output_that_cannot_be_written(main, tmp_path, capsys):
    file = tmp_path / "file"
    file.write_text("")
    for out in (file, file / "below"):
        assert main(*SMALL, "--output", out) == 2
        assert capsys.readouterr().err == (
            f"wide_deep: {out}: cannot be written: Not a directory\n"
        )
    (tmp_path / "data").mkdir()
    assert main(*SMALL, "--output", tmp_path) == 2
    assert "has no data of this program" in capsys.readouterr().err
    assert sorted(p.name for p in tmp_path.iterdir()) == ["data", "file"]


@pytest.mark.parametrize(
    "arguments, message",
    [
        (["--label", "y"], "--label needs a FILE."),
        (["--read", "key_type=int64"], "--read needs a FILE."),
        (["x", "--read", "key_type"], "Must be NAME=VALUE, got"),
        (["--numeric", "a"], "--numeric needs a FILE."),
        (["--categorical", "a,b"], "--categorical needs a FILE."),
        (["--epochs", "0"], "0 is not in the range x>=1."),
        (["--seed", str(2**32)], "is not in the range 0<=x<=4294967295."),
        (["--learning-rate", "nan"], "nan is not a positive number."),
        (["--eval-fraction", "1"], "1.0 is not in the range 0<x<1."),
        (["--output", ""], "The path is empty."),
        (["--colour", "red"], "No such option"),
    ],
)
def test_a_bad_command_line(main, arguments, message, capsys):
    assert main(*arguments) == 2
    error = capsys.readouterr().err
    assert error.startswith("wide_deep: ") and error.count("\n") == 1
    assert message in error
