"""Runs the examples that need only the installed wheel."""

import os
import pathlib
import re
import subprocess
import sys

FOLDER = pathlib.Path(os.path.abspath(__file__), "../../../examples").resolve()


def run(name):
    """Runs a program as a user does; returns its output."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    for variable in ("TF_CPP_MIN_LOG_LEVEL", "LODESTAR_QUIET_START"):
        environment.pop(variable, None)
    done = subprocess.run(
        [sys.executable, FOLDER / name],
        check=True,
        capture_output=True,
        env=environment,
        text=True,
    )
    assert done.stderr == ""
    assert len((FOLDER / name).read_text().splitlines()) <= 150
    return done.stdout


def figures(printed):
    """Returns the figures of the table at the end, from top to bottom."""
    return [*map(float, re.findall(r"^  \S.*  (0\.\d+)$", printed, re.M))]


def test_ranking():
    printed = run("ranking.py")
    (auc,) = re.findall(r"^AUC of (0\.\d+) ", printed, re.M)
    assert 0.87 < float(auc) < 0.93
    assert "occupation_values" in printed


def test_daily():
    printed = run("daily.py")
    days = re.findall(
        r"^ +\d +(0\.\d+) +([\d,]+) +(\d+)  (full|delta), ", printed, re.M
    )
    aucs, rows, evicted, kinds = zip(*days, strict=True)
    assert [float(auc) > 0.7 for auc in aucs] == [False] + 7 * [True]
    assert rows == ("1,800",) + 7 * ("2,400",)
    assert evicted == ("0", "0") + 6 * ("600",)
    assert kinds == ("full",) + 7 * ("delta",)
    assert "The restored model equals the trained" in printed
    yesterday, truth = figures(printed)
    assert 0.7 < yesterday < truth


def test_serving():
    before, after, truth = figures(run("serving.py"))
    assert 2 * before < after < truth + 0.1
