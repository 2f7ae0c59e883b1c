"""Tests of examples/wide_deep.py and its model."""

import os
import pathlib
import re

import numpy as np
import pytest
from click.testing import CliRunner

import lodestar
from lodestar.data import Column, DataError, Schema

FOLDER = pathlib.Path(os.path.abspath(__file__), "../../../examples").resolve()
SMALL = ["--examples", 1200, "--checkpoint-steps", 5, "--batch-size", 128]
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


@pytest.fixture
def run(monkeypatch, tmp_path):
    """Returns a function that runs the program; it returns the click Result."""
    monkeypatch.syspath_prepend(FOLDER)
    monkeypatch.setenv("LODESTAR_QUIET_START", "1")  # as the program sets it
    monkeypatch.setenv("BUILD_WORKING_DIRECTORY", str(tmp_path))
    import wide_deep

    def run(*arguments):
        return CliRunner().invoke(wide_deep.main, list(map(str, arguments)))

    yield run
    os.chdir(FOLDER)


def table(result):
    """Parses the table that a run prints last."""
    assert result.exit_code == 0, result.output
    return dict(re.findall(r"^ *(\S.*?)  +(\S.*)$", result.output, re.M))


def test_a_generated_log_is_resumed(run, tmp_path):
    first = run(*SMALL, "--output", "out")
    assert table(first)["steps"] == "8"
    resumed = run(*SMALL, "--epochs", 2, "--output", "out")
    assert "Resuming from the checkpoint of step 8.\n" in resumed.output
    found = table(resumed)
    assert found["steps"] == "16"
    assert 0.5 < float(found["AUC, held-out data"]) < 0.8
    assert found["200 served scores"].startswith("differ by at most")
    assert "best possible" in found and "table 'wide', dimension 1" in found
    assert lodestar.snapshot.versions(tmp_path / "out/snapshots")[-1].step == 16
    other = run(*SMALL[:-1], 64, "--output", "out")
    assert other.exit_code == 1
    assert "Choose another --output" in other.output


def multislot(rng, rows):
    lines = []
    for _ in range(rows):
        ids = rng.integers(0, 9, rng.integers(0, 4))
        click = int(rng.random() < (0.9 if min(ids, default=9) < 3 else 0.1))
        parts = [f"1 {click} 2 {rng.normal():.3f} 1e-3 1 {rng.integers(5)}"]
        parts += [f"{len(ids)} {' '.join(map(str, ids))}".strip()]
        parts += [f"1 {2**64 - 1 - int(rng.integers(3))}", "1 6"]
        lines.append(" ".join(parts) + "\n")
    return "".join(lines)


def test_multislot_files_of_every_kind_of_column(run, tmp_path, rng):
    for name in ("a", "b", "eval"):
        (tmp_path / name).write_text(multislot(rng, 400))
    (tmp_path / "schema.yaml").write_text(SLOTS)
    command = ["a", "b", "--schema", "schema.yaml", "--batch-size", 32]
    found = run(*command, "--epochs", 2)
    assert found.exit_code == 1 and "`split` is not an option" in found.output
    found = table(run(*command, "--eval-data", "eval", "--epochs", 3))
    assert float(found["AUC, held-out data"]) > 0.75
    assert found["table 'deep', dimension 32"].startswith("12 ids")
    assert found["table 'wide', dimension 1"].startswith("3 ids")


def test_a_csv_file_with_integer_ids(run, tmp_path, rng):
    users = np.tile(np.arange(150), 6)
    likes = rng.random(150) < 0.5
    lines = [
        f"{user},{i},{i % 9},{'no' if likes[user] else 'yes'}\n"
        for i, user in enumerate(users)
    ]
    text = "user,line,page,bought\n" + "".join(rng.permutation(lines))
    (tmp_path / "in.csv").write_text(text)
    command = ["in.csv", "--label", "bought=yes", "--epochs", 4]
    command += ["--batch-size", 64, "--learning-rate", 0.1, "--numeric", "line"]
    unclear = run(*command)
    assert unclear.exit_code == 1 and "user" in unclear.output
    found = run(*command, "--categorical", "user,page")
    kinds = dict(re.findall(r"^(\w+) +(ids|dense) ", found.output, re.M))
    assert (kinds["user"], kinds["page"]) == ("ids", "ids")
    assert kinds["line"] == "dense"
    # As a number, a user has no meaning.
    assert float(table(found)["AUC, held-out data"]) > 0.9


@pytest.mark.parametrize(
    "arguments, code, message",
    [
        (["missing"], 1, "Error: missing: "),
        (["bad"], 1, "Error: bad"),
        (["--label", "y"], 2, "Options of the data need a FILE."),
        (["--read", "key_type=int64"], 2, "Options of the data need a FILE."),
        (["x", "--read", "key_type"], 2, "Must be NAME=VALUE, got 'key_type'."),
        (["--epochs", "0"], 2, "0 is not in the range x>=1."),
        (["--output", "bad/x"], 1, "Not a directory"),
    ],
)
def test_errors(run, tmp_path, arguments, code, message):
    (tmp_path / "bad").write_bytes(b"1 1 1 two 1 5\n")
    schema = tmp_path / "bad.schema.yaml"
    schema.write_text("label: [y]\ndense: [I]\nsparse: [C]\n")
    found = run("--eval-data=bad" if code == 1 else "--seed=0", *arguments)
    assert (found.exit_code, message in found.output) == (code, True), found


@pytest.mark.parametrize(
    "columns, message",
    [
        ([Column.sparse("a")], "needs one label"),
        ([Column.label("y")], "at least one feature"),
        ([Column.label("y"), Column.label("z")], "needs one label"),
        ([Column.sparse("a", dtype="float")], "'a', which holds any num"),
        ([Column.dense("a", [-1])], r"'a', which has the shape \[-1\]"),
    ],
)
def test_columns_that_the_model_cannot_take(monkeypatch, columns, message):
    monkeypatch.syspath_prepend(FOLDER)
    import click_model

    if "label" not in message and "feature" not in message:
        columns = [Column.label("y"), *columns]
    with pytest.raises(DataError, match=message):
        click_model.make_model(Schema(columns), 4, 0.1, 0)
