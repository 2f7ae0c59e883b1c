"""lodestar._startup quiets tools, and changes no other process."""

import os
import subprocess
import sys

import pytest

from lodestar import _startup

MINE = ["-m", "-m", "lodestar.data"]
NOTES = "I0000 00:00:1.5 1 port.cc:153] note\nF0000 00:00:1.5 1 x.cc:1] kept\n"


@pytest.mark.parametrize(
    "original, arguments, wanted",
    [
        (["python", "-m", "lodestar.data", "x"], ["-m", "x"], True),
        (["python", "-B", "-mlodestar.data"], ["-m"], True),
        (["python", "-m", "lodestarlike"], ["-m"], False),
        (["python", "-m", "mine", "-m", "lodestar.data"], MINE, False),
        (["python", "main.py", "lodestar.data"], ["main.py", "x"], False),
        (["python"], [""], False),
        (["python"], [], False),
        (["python", "/venv/bin/lodestar"], ["/venv/bin/lodestar", "x"], True),
    ],
)
def test_is_tool(monkeypatch, original, arguments, wanted):
    monkeypatch.delenv("LODESTAR_QUIET_START", raising=False)
    monkeypatch.setattr(sys, "orig_argv", original)
    monkeypatch.setattr(sys, "argv", arguments)
    assert _startup.is_tool() is wanted
    monkeypatch.setenv("LODESTAR_QUIET_START", "1")
    assert _startup.is_tool()


@pytest.mark.parametrize(
    "level, notes", [(None, False), ("1", False), ("0", True)]
)
def test_only_log_lines_are_omitted(monkeypatch, capfd, level, notes):
    monkeypatch.setenv("LODESTAR_QUIET_START", "1")
    monkeypatch.delenv("TF_CPP_MIN_LOG_LEVEL", raising=False)
    if level is not None:
        monkeypatch.setenv("TF_CPP_MIN_LOG_LEVEL", level)
    with _startup.quiet_tools():
        os.write(2, NOTES.encode())
    assert os.environ["TF_CPP_MIN_LOG_LEVEL"] == (level or "3")
    assert capfd.readouterr().err == (
        NOTES if notes else NOTES.splitlines(keepends=True)[1]
    )


def test_output_before_an_error_is_shown(monkeypatch, capfd):
    monkeypatch.setenv("LODESTAR_QUIET_START", "1")
    monkeypatch.setenv("TF_CPP_MIN_LOG_LEVEL", "3")
    with pytest.raises(ImportError):
        with _startup.quiet_tools():
            os.write(2, b"reason\n")
            raise ImportError
    os.write(2, b"after\n")
    assert capfd.readouterr().err == "reason\nafter\n"


def test_a_library_changes_nothing(monkeypatch, capfd):
    monkeypatch.delenv("LODESTAR_QUIET_START", raising=False)
    monkeypatch.delenv("TF_CPP_MIN_LOG_LEVEL", raising=False)
    with _startup.quiet_tools():
        os.write(2, NOTES.encode())
    assert "TF_CPP_MIN_LOG_LEVEL" not in os.environ
    assert capfd.readouterr().err == NOTES


def test_a_tool_without_stderr_starts():
    done = subprocess.run(
        f"{sys.executable} -m lodestar.data inspect missing 2>&-",
        shell=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert done.returncode == 2
