"""Progress bars: only on a terminal, and never in stdout."""

import os
import pty
import subprocess
import sys

CODE = """
from lodestar._data_tool.progress import Progress
with Progress() as progress:
    progress.update(1)  # nothing yet
    for text in ("reading a/[b].csv", "writing a/c.txt"):
        progress.start(text, 2000)
        progress.update(1500)
        progress._bars.refresh()
        print("printed")
"""
ENVIRONMENT = {
    **os.environ,
    "PYTHONPATH": os.pathsep.join(sys.path),
    "LODESTAR_QUIET_START": "1",
    "TERM": "xterm",
    "COLUMNS": "100",
}


def test_no_progress_bar_in_a_pipe():
    done = subprocess.run(
        [sys.executable, "-c", CODE],
        capture_output=True,
        text=True,
        env=ENVIRONMENT,
        check=True,
    )
    assert (done.stdout, done.stderr) == ("printed\n" * 2, "")


def test_a_terminal_shows_how_far_it_is():
    leader, terminal = pty.openpty()
    with subprocess.Popen(
        [sys.executable, "-c", CODE],
        stdout=subprocess.PIPE,
        stderr=terminal,
        text=True,
        env=ENVIRONMENT,
    ) as process:
        os.close(terminal)
        shown = b""
        try:
            while piece := os.read(leader, 10_000):
                shown += piece
        except OSError:  # how Linux reports that the other end is closed
            pass
        os.close(leader)
        assert process.stdout.read() == "printed\n" * 2
    text = shown.decode()
    assert "reading [b].csv" in text and "writing c.txt" in text
    assert "1,500 samples" in text
    assert "printed" not in text


def test_a_missing_stderr_is_not_an_error():
    done = subprocess.run(
        f"{sys.executable} -c '{CODE}' 2>&-", shell=True, env=ENVIRONMENT
    )
    assert done.returncode == 0
