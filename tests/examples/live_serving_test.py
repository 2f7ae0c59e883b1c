"""Tests of examples/live_serving: training and serving in two processes."""

import os
import pathlib
import re
import subprocess
import sys

import pytest

import lodestar

FOLDER = pathlib.Path(
    os.path.abspath(__file__), "../../../examples/live_serving"
).resolve()
LINE = re.compile(
    r" +(?P<version>\d+) +(?P<step>\d+) +(?P<delay>[0-9.]+)s +(?P<rows>\d+)"
    r" +(?P<article>\d+)  (?:(?P<unseen>[0-9.]+) -> )?(?P<fresh>[0-9.]+)"
)


def run(*arguments):
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    environment.pop("TF_CPP_MIN_LOG_LEVEL", None)
    return subprocess.run(
        [sys.executable, FOLDER / "main.py", *map(str, arguments)],
        env=environment,
        capture_output=True,
        text=True,
        timeout=400,
    )


def test_scores_are_fresh_in_the_other_process(tmp_path):
    output = tmp_path / "output"
    done = run(
        "--seconds", 1, "--versions", 5, "--steps", 40, "--output", output
    )
    assert (done.returncode, done.stderr) == (0, "")
    head, *lines, end = done.stdout.splitlines()
    assert head.split() == (
        "version step delay rows article click, unseen -> fresh".split()
    )
    found = [LINE.fullmatch(line) for line in lines]
    assert len(found) >= 5 and all(found), done.stdout
    versions = [int(match["version"]) for match in found]
    assert versions == sorted(set(versions))
    newest = lodestar.snapshot.versions(output / "snapshots")[-1]
    assert (versions[-1], int(found[-1]["step"])) == (
        newest.version,
        newest.step,
    )
    assert all(float(match["delay"]) < 400 for match in found)
    # Everyone likes new articles; before its clicks nothing is known of one.
    learned = [match for match in found if match["unseen"]][-1]
    assert float(learned["fresh"]) > float(learned["unseen"]), done.stdout
    assert re.fullmatch(
        r"\d+ calls of 200 examples: median [0-9.]+ ms, slowest [0-9.]+ ms; "
        r"\d+ versions taken in, 1 of them whole",
        end,
    )


@pytest.mark.parametrize(
    "arguments, message",
    [
        (["--seconds", "0"], "--seconds must be positive"),
        (["--versions", "0"], "--versions must be positive"),
        (["--poll-seconds", "-1"], "--poll-seconds must be positive"),
        (["--output", __file__], "is there, and no empty folder"),
    ],
)
def test_wrong_options(arguments, message):
    done = run(*arguments)
    assert done.returncode == 2 and done.stdout == ""
    assert message in done.stderr
