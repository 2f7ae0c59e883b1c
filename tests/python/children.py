"""Runs commands in tests, and checks that they leave nothing behind."""

import contextlib
import gc
import os
import pathlib
import sys
import time


def python(code):
    """Returns the command that runs a program with the fastest Python startup."""
    return [sys.executable, "-ISc", code]


def shell(code):
    return ["sh", "-c", code]


def children():
    """Returns the child processes that have not been waited for."""
    found = []
    for stat in pathlib.Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            parent = stat.read_text().rpartition(")")[2].split()[1]
            if int(parent) == os.getpid():
                found.append(int(stat.parent.name))
    return found


def open_files():
    return len(os.listdir("/proc/self/fd"))


@contextlib.contextmanager
def nothing_left():
    """Checks that the block leaves no process and no open file behind."""
    gc.collect()
    files, processes = open_files(), set(children())
    yield
    gc.collect()
    deadline = time.monotonic() + 60
    while open_files() > files or not processes.issuperset(children()):
        assert time.monotonic() < deadline, (files, open_files(), children())
        time.sleep(0.01)
