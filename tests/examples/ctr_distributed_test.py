"""Tests of examples/ctr_distributed.py, in one process and on a cluster."""

import contextlib
import json
import os
import pathlib
import re
import subprocess
import sys

import pytest
import tensorflow as tf
from click.testing import CliRunner

import lodestar
from lodestar._data_tool import click_log
from lodestar.data import Column, Schema

FOLDER = pathlib.Path(os.path.abspath(__file__), "../../../examples").resolve()


@pytest.fixture
def program(monkeypatch):
    """Imports the example."""
    monkeypatch.syspath_prepend(FOLDER)
    monkeypatch.setenv("LODESTAR_QUIET_START", "1")  # as the program sets it
    monkeypatch.delenv("TF_CONFIG", raising=False)
    monkeypatch.delenv("BUILD_WORKING_DIRECTORY", raising=False)
    import ctr_distributed

    return ctr_distributed


@pytest.fixture
def run(program):
    """Returns a function that runs the program; it returns the click Result."""
    return lambda *arguments: CliRunner().invoke(
        program.main, list(map(str, arguments))
    )


@pytest.fixture(scope="module")
def log(tmp_path_factory):
    """Writes four days of files; returns the arguments that read them."""
    folder = tmp_path_factory.mktemp("log")
    whole = click_log.generate_click_log(folder, 4000, 8)
    for number, file in enumerate(whole.files):
        day = folder / f"2026022{5 + number // 2}"
        day.mkdir(exist_ok=True)
        os.rename(file, day / f"part-{number}")
    return [
        *("--files", folder / "%Y%m%d" / "part-*", "--first-day", "2026-02-25"),
        *("--schema", whole.schema_file, "--batch-size", 64),
    ]


def models(output):
    return sorted(path.name for path in (output / "models").iterdir())


def test_days_are_trained_once_from_the_latest_model_on(run, log, tmp_path):
    out = tmp_path / "out"
    command = [*log, "--output", out, "--embedding-dim", 4, "--save-every", 2]
    command += ["--pipe-command", "sed s/^1/1/", "--padding-id", -1]
    command += ["--print-period", 10]
    first = run(*command, "--last-day", "2026-02-27")
    assert first.exit_code == 0, first.output
    assert models(out) == ["2026-02-26"]
    days = re.findall(
        r"^(\S+): 2 files\n((?:  .*\n)*)\1: AUC", first.output, re.M
    )
    assert [day for day, _ in days] == ["2026-02-25", "2026-02-26"]
    for _, lines in days:
        # 2 files of 500 examples are 16 steps.
        assert re.fullmatch(r" +\d{3} examples: loss [0-9., A-UC]+\n", lines)

    (out / "models" / "2026-02-27").mkdir()  # left by a crash
    second = run(*command, "--last-day", "2026-02-28")
    assert (
        "Resuming from the model of 2026-02-26.\n2026-02-27: 2 fi"
        in second.output
    )
    assert models(out) == ["2026-02-26", "2026-02-27"]
    newest = lodestar.snapshot.versions(out / "models" / "2026-02-27")[-1]
    # 3 days of 2 files of 500 examples: 8 batches per file.
    assert newest.step == 48
    assert newest.tables["deep"].dim == 4
    assert "Exported the model of 2026-02-27 to" in second.output
    assert "2026-02-28, held out: AUC 0." in second.output

    described = json.loads((out / "saved_model" / "features.json").read_text())
    taken = described["signatures"]["from_rows"]["arguments"]
    assert {"deep_C1", "I1"} <= {argument["name"] for argument in taken}
    assert described["tables"][0]["read_by"][0]["padding_id"] is None
    again = run(*command, "--last-day", "2026-02-27")
    assert again.exit_code == 1
    assert (
        "models/2026-02-27 was trained on the held-out day 2026-02-27. "
        "Choose another --output.\n" in again.output
    )


def processes_of(folder):
    """Returns the command lines of processes whose arguments contain the folder."""
    found = []
    for path in pathlib.Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            text = path.read_text().replace("\0", " ")
            found += [text] if str(folder) in text else []
    return found


def test_a_cluster_compared_with_one_process(tmp_path):
    command = [sys.executable, "-u", FOLDER / "ctr_distributed.py"]
    command += ["--loopback", "--days", "3", "--examples", "1000"]
    command += ["--batch-size", "64", "--output", tmp_path]
    done = subprocess.run(
        list(map(str, command)),
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert processes_of(tmp_path) == []
    on_cluster, alone = done.stdout.split("One process\n")
    for day in ("2026-01-01", "2026-01-02"):
        of_day = on_cluster.partition(f"{day}: 8 files\n")[2]
        of_day = of_day.partition(f"{day}: AUC")[0]
        # Each example once.
        assert "  1,000 examples: " in of_day.splitlines()[-1]
    for name in ("cluster", "alone"):
        assert models(tmp_path / name) == ["2026-01-01", "2026-01-02"]
    *aucs, best = map(float, re.findall(r"^  \S.*  (0\.\d+)$", alone, re.M))
    assert len(aucs) == 2 and 0.5 < min(aucs) and max(aucs) < best < 0.9
    newest = tmp_path / "cluster" / "models" / "2026-01-02"
    table = lodestar.snapshot.versions(newest)[-1].tables["deep"]
    assert len(table.files) == 2  # one per server


def test_examples_of_a_worker(program, log, tmp_path):
    options = program.main.make_context(
        "ctr", [*map(str, log), "--last-day", "2026-02-28"]
    ).params
    options |= {"output": tmp_path, "strategy": None}
    del options["loopback"]
    training = program.DailyTraining(**options)
    with lodestar.data.FileListServer(training.days[0][1]) as server:

        def batches():
            return training.shared_batches(server.address)

        ((x, y, weight),) = batches().take(1)
        assert (y.shape, weight.numpy().tolist()) == ((1, 1), [0.0])
        assert x["C7"].to_list() == [[]] and x["I1"].numpy().tolist() == [[0.0]]
        weights = [w.numpy().sum() for _, _, w in batches().take(20)]
    # The rows of the day without a skipped file: 2 files of 500 examples.
    assert weights == [0, *([64] * 7 + [52]) * 2, 0, 0, 0]


def test_tf_config_defines_the_cluster(run, program, log, monkeypatch):
    seen = []
    monkeypatch.setattr(
        tf.distribute,
        "ParameterServerStrategy",
        lambda resolver: seen.append(resolver.cluster_spec().as_dict()),
    )
    monkeypatch.setattr(program.DailyTraining, "run", lambda self: 0.0)
    cluster = {"chief": ["c:1"], "ps": ["a:1"], "worker": ["a:2", "a:3"]}
    config = {"cluster": cluster, "task": {"type": "chief", "index": 0}}
    monkeypatch.setenv("TF_CONFIG", json.dumps(config))
    assert run(*log, "--last-day", "2026-02-28").exit_code == 0
    assert seen == [cluster]


def test_errors(run, log, tmp_path):
    out = ["--output", tmp_path / "out"]
    schema = tmp_path / "schema.yaml"
    Schema([Column.label("click")]).save(schema)
    data = [*log, "--last-day", "2026-02-27"]
    for arguments, code, message in (
        (["--files", "x"], 2, "Give all of --files, --schema, --first-day, "),
        (["--embedding-dim", "0"], 2, "0 is not in the range x>=1."),
        ([*log, "--last-day", "2026-03-01"], 1, "matches, of 2026-03-01"),
        ([*log, "--last-day", "2026-02-25"], 1, "needs another day to train"),
        ([*data, "--schema", schema], 1, "needs one label and at least one"),
        (
            [*data, "--pipe-command", "sed 7s/1/x/"],
            1,
            r"2026022\d/part-\d:7 of the output of ",
        ),
    ):
        found = run(*arguments, *out)
        assert found.exit_code == code
        assert re.search(message, found.output), found.output
    assert not (tmp_path / "out" / "models").exists()
