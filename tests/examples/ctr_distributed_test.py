"""Tests of examples/ctr_distributed.py, in one process and on a cluster."""

import contextlib
import json
import os
import pathlib
import re
import subprocess
import sys
import time

import pytest
import tensorflow as tf

import lodestar
from lodestar._data_tool import click_log
from lodestar.data import Column, Schema

FOLDER = pathlib.Path(os.path.abspath(__file__), "../../../examples").resolve()
CLUSTER = {"ps": ["a:1", "a:2"], "worker": ["a:3", "a:4", "a:5"]}


@pytest.fixture(autouse=True)
def sources(monkeypatch):
    """Makes the example's modules importable."""
    monkeypatch.syspath_prepend(FOLDER)
    monkeypatch.delenv("TF_CONFIG", raising=False)
    monkeypatch.delenv("BUILD_WORKING_DIRECTORY", raising=False)


@pytest.fixture
def main(monkeypatch):
    """Returns the example's entry point, which returns the exit code."""
    monkeypatch.setenv("LODESTAR_QUIET_START", "1")
    import ctr_distributed

    def run(*arguments):
        try:
            return ctr_distributed.main(list(map(str, arguments)))
        except SystemExit as error:
            return error.code

    return run


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


def results(output):
    return json.loads((output / "results.json").read_text())


def models(output):
    return sorted(path.name for path in (output / "models").iterdir())


def test_days_are_trained_once_from_the_latest_model_on(
    main, log, tmp_path, capsys
):
    out = tmp_path / "out"
    command = [*log, "--output", out, "--embedding-dim", 4, "--save-every", 2]
    command += ["--pipe-command", "sed s/^1/1/", "--padding-id", -1]
    command += ["--print-period", 10]
    assert main(*command, "--last-day", "2026-02-27") == 0
    assert models(out) == ["2026-02-26"]
    days = re.findall(
        r"^(\S+): 2 files\n((?:  .*\n)*)\1: AUC", capsys.readouterr().out, re.M
    )
    assert [day for day, _ in days] == ["2026-02-25", "2026-02-26"]
    for _, lines in days:
        # 2 files of 500 examples are 16 steps.
        assert re.fullmatch(r" +\d{3} examples: loss [0-9., A-UC]+\n", lines)

    (out / "models" / "2026-02-27").mkdir()  # left by a crash
    assert main(*command, "--last-day", "2026-02-28") == 0
    said = capsys.readouterr().out
    assert "Resuming from the model of 2026-02-26.\n2026-02-27: 2 fi" in said
    assert models(out) == ["2026-02-26", "2026-02-27"]
    newest = lodestar.snapshot.versions(out / "models" / "2026-02-27")[-1]
    # 3 days of 2 files of 500 examples: 8 batches per file.
    assert newest.step == 48
    assert newest.tables["ids"].dim == 4
    found = results(out)
    assert found["model"] == "2026-02-27" and found["day"] == "2026-02-28"
    assert f"2026-02-28, held out: AUC {found['auc']:.4f}\n" in said

    described = json.loads((out / "saved_model" / "features.json").read_text())
    taken = described["signatures"]["from_rows"]["arguments"]
    assert {"C1", "I1"} <= {argument["name"] for argument in taken}
    assert described["tables"][0]["read_by"][0]["padding_id"] is None
    assert main(*command, "--last-day", "2026-02-27") == 2
    assert (
        "models/2026-02-27 was trained on the held-out day 2026-02-27. "
        "Choose another --output.\n" in capsys.readouterr().err
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
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    environment.pop("TF_CPP_MIN_LOG_LEVEL", None)
    command = [sys.executable, "-u", FOLDER / "ctr_distributed.py"]
    command += ["--loopback", "--days", "3", "--examples", "1000"]
    command += ["--batch-size", "64", "--output", tmp_path]
    with subprocess.Popen(
        list(map(str, command)),
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            said, errors = process.communicate(timeout=800)
        finally:
            process.terminate()
    assert (process.returncode, errors) == (0, ""), said
    assert processes_of(tmp_path) == []
    on_cluster, alone = said.split("One process\n")
    for day in ("2026-01-01", "2026-01-02"):
        of_day = on_cluster.partition(f"{day}: 8 files\n")[2]
        of_day = of_day.partition(f"{day}: AUC")[0]
        # Each example once.
        assert "  1,000 examples: " in of_day.splitlines()[-1]
    for name in ("cluster", "alone"):
        assert models(tmp_path / name) == ["2026-01-01", "2026-01-02"]
        found = results(tmp_path / name)
        assert 0.5 < found["auc"] < found["best_auc"] < 0.9
        assert f" {found['auc']:.4f}\n" in alone
    assert "the best possible" in alone
    newest = tmp_path / "cluster" / "models" / "2026-01-02"
    table = lodestar.snapshot.versions(newest)[-1].tables["ids"]
    assert len(table.files) == 2  # one per server


def test_no_process_outlives_the_one_that_started_them(tmp_path):
    command = [sys.executable, "-u", FOLDER / "ctr_distributed.py"]
    with subprocess.Popen(
        [*map(str, command), "--loopback", "--output", tmp_path],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        while "TRAINER --trainer_id 0" not in process.stdout.readline():
            pass
        process.kill()
    deadline = time.monotonic() + 300
    while processes_of(tmp_path):
        assert time.monotonic() < deadline, processes_of(tmp_path)
        time.sleep(0.1)


def test_examples_of_a_worker(log):
    import ctr_data
    from ctr_options import parse

    options = parse([*map(str, log), "--last-day", "2026-02-28"])
    schema = ctr_data.read_schema(options)
    files = sorted(tf.io.gfile.glob(str(log[1]).replace("%Y%m%d", "20260225")))
    with lodestar.data.FileListServer(files) as server:

        def batches():
            return ctr_data.shared_batches(server.address, schema, options)

        ((x, y, weight),) = batches().take(1)
        assert (y.shape, weight.numpy().tolist()) == ((1, 1), [0.0])
        assert x["C7"].to_list() == [[]] and x["I1"].numpy().tolist() == [[0.0]]
        weights = [w.numpy().sum() for _, _, w in batches().take(20)]
    # The rows of the day without a skipped file: 2 files of 500 examples.
    assert weights == [0, *([64] * 7 + [52]) * 2, 0, 0, 0]


def find(arguments):
    from ctr_options import parse

    return parse(arguments).task


ROLES = ["--endpoints", "a:1,a:2", "--trainers", "3"]


@pytest.mark.parametrize(
    "arguments, job, index, coordinates",
    [
        (["--role", "PSERVER", "--current_endpoint", "a:2"], "ps", 1, False),
        (["--role", "TRAINER", "--trainer_id", "0"], "worker", 0, True),
        (["--role", "TRAINER", "--trainer_id", "2"], "worker", 2, False),
    ],
)
def test_flags_define_the_task(arguments, job, index, coordinates):
    task = find([*ROLES, *arguments])
    assert task.job == job and task.index == index
    assert task.coordinates == coordinates
    assert task.cluster == CLUSTER


def test_trainers_have_their_own_addresses():
    task = find([*ROLES, "--role", "TRAINER", "--trainer_id", "1",
                 "--trainer_endpoints", "c:1,d:1,e:1"])  # fmt: skip
    assert task.cluster["worker"] == ["c:1", "d:1", "e:1"] and task.host == "d"


@pytest.mark.parametrize(
    "job, index, chief, coordinates",
    [
        ("ps", 1, False, False),
        ("worker", 0, False, True),
        ("worker", 1, False, False),
        ("worker", 0, True, False),
        ("chief", 0, True, True),
    ],
)
def test_tf_config_defines_the_task(
    monkeypatch, job, index, chief, coordinates
):
    cluster = {**CLUSTER, "chief": ["c:1"]} if chief else CLUSTER
    config = {"cluster": cluster, "task": {"type": job, "index": str(index)}}
    monkeypatch.setenv("TF_CONFIG", json.dumps(config))
    task = find([])
    assert task == (cluster, job, index)
    assert task.coordinates == coordinates
    assert find(["--loopback"]) is None


@pytest.mark.parametrize(
    "arguments, message",
    [
        (["--role", "PSERVER"], "--role needs --endpoints and --trainers"),
        (["--role", "TRAINER", "--endpoints", "a:1"], "and --trainers"),
        (ROLES, "A task of a cluster needs --role"),
        (["--loopback", "--role", "PSERVER"], "starts processes of all roles"),
        (
            [*ROLES, "--role", "PSERVER"],
            "--current_endpoint must be one of --endpoints, got None",
        ),
        (
            [*ROLES, "--role", "TRAINER"],
            "--trainer_id must be in [0, 2], got None.",
        ),
        (
            ["--role", "PSERVER", "--endpoints", "a:1,b:1", "--trainers", "1"],
            "--endpoints are on several hosts. Set --trainer_endpoints.",
        ),
        (
            [*ROLES, "--role", "TRAINER", "--trainer_id", "3"],
            "--trainer_id must be in [0, 2], got 3.",
        ),
        (
            [*ROLES, "--role", "TRAINER", "--trainer_endpoints", "c:1"],
            "--trainers is 3, but --trainer_endpoints has 1",
        ),
        (
            ["--role", "TRAINER", "--endpoints", "here", "--trainers", "1"],
            "Addresses must be HOST:PORT, got 'here'.",
        ),
        (
            ["--files", "x"],
            "Give all of --files, --schema, --first-day, --last",
        ),
        (["--embedding-dim", "0"], "0 is not in the range x>=1."),
    ],
)
def test_a_bad_command_line(main, arguments, message, capsys):
    assert main(*arguments) == 2
    error = capsys.readouterr().err
    assert error.startswith("ctr_distributed: ") and error.count("\n") == 1
    assert message in error


@pytest.mark.parametrize(
    "config, message",
    [
        ("{", "TF_CONFIG is not JSON"),
        ('{"cluster": {"ps": ["a:1"]}}', "the cluster has no 'worker'"),
        (json.dumps({"cluster": CLUSTER}), "the cluster has no task None -1"),
        (
            json.dumps(
                {"cluster": CLUSTER, "task": {"type": "ps", "index": 2}}
            ),
            "the cluster has no task ps 2",
        ),
    ],
)
def test_a_bad_tf_config(main, monkeypatch, config, message, capsys):
    monkeypatch.setenv("TF_CONFIG", config)
    assert main() == 2
    error = capsys.readouterr().err
    assert message in error and error.count("\n") == 1


def test_bad_data_is_named(main, log, tmp_path, capsys):
    out = ["--output", tmp_path / "out"]
    assert main(*log, "--last-day", "2026-03-01", *out) == 2
    assert "no file matches, of 2026-03-01" in capsys.readouterr().err
    assert main(*log, "--last-day", "2026-02-25", *out) == 2
    assert "needs another day to train on" in capsys.readouterr().err
    command = [*log, "--last-day", "2026-02-27", *out]
    schema = tmp_path / "schema.yaml"
    Schema([Column.label("click"), Column.dense("x")]).save(schema)
    assert main(*command, "--schema", schema) == 2
    assert "must use one label and a sparse slot" in capsys.readouterr().err
    assert main(*command, "--pipe-command", "sed 7s/1/x/") == 2
    assert re.search(
        r"2026022\d/part-\d:7 of the output of ", capsys.readouterr().err
    )
    assert not (tmp_path / "out" / "models").exists()
