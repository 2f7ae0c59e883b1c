"""Tests of examples/new_feature.py."""

import os
import pathlib
import re
import subprocess
import sys

import pytest

FOLDER = pathlib.Path(os.path.abspath(__file__), "../../../examples").resolve()


@pytest.fixture
def main(monkeypatch):
    """Imports the example's entry point."""
    monkeypatch.syspath_prepend(FOLDER)
    import new_feature

    # A seventh of the default, to save time.
    monkeypatch.setattr(new_feature, "CLICKS", 9216)
    monkeypatch.setattr(new_feature, "STEPS", 36)
    return new_feature.main


def test_the_new_feature_helps(main, tmp_path, capsys):
    before, after = main(str(tmp_path))
    assert after < before - 0.02
    said = capsys.readouterr().out
    assert "Monday resumes at step 36\n" in said
    assert "Tuesday starts at step 72: {'user_rows':" in said
    assert "; new: item_rows\n" in said
    assert re.search(r"version \d+: delta, step 72, \d+ rows", said)
    assert re.search(
        "tables alone: {'users': .*new: prices; unused: item", said
    )


def test_nothing_is_logged_at_its_start():
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    for name in ("TF_CPP_MIN_LOG_LEVEL", "LODESTAR_QUIET_START"):
        environment.pop(name, None)
    done = subprocess.run(
        [sys.executable, FOLDER / "new_feature.py", "--help"],
        check=True,
        capture_output=True,
        env=environment,
        text=True,
    )
    assert "--snapshots" in done.stdout
    assert done.stderr == ""
