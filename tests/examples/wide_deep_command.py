"""Runs examples/wide_deep for tests, and parses its output."""

import os
import pathlib
import re
import signal
import subprocess
import sys
import types

FOLDER = pathlib.Path(
    os.path.abspath(__file__), "../../../examples/wide_deep"
).resolve()


_RUN = """
import os, runpy, sys
del sys.argv[0]
sys.path.insert(0, os.path.dirname(sys.argv[0]))
runpy.run_path(sys.argv[0], run_name="__main__")
"""


def entry(monkeypatch, server=None):
    """Yields the example's entry point, which returns the exit code.

    `server`, an Interpreter, runs the programs that the example would start.
    """
    monkeypatch.syspath_prepend(FOLDER)
    monkeypatch.setenv("LODESTAR_QUIET_START", "1")  # as main.py sets it
    handler = signal.getsignal(signal.SIGINT)
    import main

    def serve(command, env, check):
        python, *arguments = command
        assert (python, check) == (sys.executable, True)
        server.run(_RUN, *arguments)

    if server:
        monkeypatch.setattr(
            main, "subprocess", types.SimpleNamespace(run=serve)
        )

    def run(*arguments):
        try:
            return main.main(list(map(str, arguments)))
        except SystemExit as error:
            return error.code

    yield run
    signal.signal(signal.SIGINT, handler)


def start(*arguments):
    """Starts the example in its own process, as a user does."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    environment.pop("TF_CPP_MIN_LOG_LEVEL", None)
    return subprocess.Popen(
        [sys.executable, "-u", FOLDER / "main.py", *map(str, arguments)],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def table(text):
    """Parses the table that a run prints last."""
    return dict(re.findall(r"^ *(\S.*?)  +(\S.*)$", text, re.MULTILINE))
