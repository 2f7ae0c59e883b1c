"""Progress bars: only on a terminal, and never in stdout."""

import os
import pty
import sys

import pytest

from lodestar._data_tool.progress import Progress


def show():
    with Progress() as progress:
        progress.update(1)  # nothing yet
        for text in ("reading a/[b].csv", "writing a/c.txt"):
            progress.start(text, 2000)
            progress.update(1500)
            progress._bars.refresh()
            print("printed")


@pytest.mark.parametrize("has_stderr", [True, False])
def test_no_progress_bar_without_a_terminal(capsys, monkeypatch, has_stderr):
    if not has_stderr:
        monkeypatch.setattr(sys, "stderr", None)
    show()
    assert capsys.readouterr() == ("printed\n" * 2, "")


def test_a_terminal_shows_how_far_it_is(capsys, monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "100")
    leader, terminal = pty.openpty()
    with open(terminal, "w") as stderr:
        monkeypatch.setattr(sys, "stderr", stderr)
        show()
        text = os.read(leader, 100_000).decode()
    os.close(leader)
    assert capsys.readouterr().out == "printed\n" * 2
    assert "reading [b].csv" in text and "writing c.txt" in text
    assert "1,500 samples" in text
    assert "printed" not in text
