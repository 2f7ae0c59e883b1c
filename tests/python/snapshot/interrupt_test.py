"""Ctrl-C at any point of a save leaves no version or a complete one."""

import gc
import os
import signal
import subprocess
import sys
import threading
import time

import numpy as np
import pytest
import snapshot_tables as st
import tensorflow as tf

from lodestar import snapshot
from lodestar.snapshot import saving
from lodestar.snapshot.folder import SnapshotFolder


class _Interrupter:
    """Raises KeyboardInterrupt at the n-th line that this thread executes.

    One file is excluded: an interrupt can break the start of a
    threading.Thread, which is a fault of Python.
    """

    def __init__(self, number):
        self._left = number
        self.place = None

    def __enter__(self):
        sys.settrace(self._trace)

    def __exit__(self, *unused):
        sys.settrace(None)

    def _trace(self, frame, event, argument):
        file = frame.f_code.co_filename
        if file == threading.__file__:
            return None
        if event == "line" and self.place is None:
            self._left -= 1
            if self._left == 0:
                self.place = (file, frame.f_lineno)
                raise KeyboardInterrupt
        return self._trace


def _descriptors():
    gc.collect()
    return len(os.listdir("/proc/self/fd"))


def _interrupted(number, call):
    """Returns the place and the error with all frames, or None without an error."""
    interrupter = _Interrupter(number)
    try:
        with interrupter:
            call()
    except KeyboardInterrupt as error:
        return interrupter.place, error
    # Python ignores exceptions in __del__.
    return interrupter.place and (interrupter.place, None)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize(("blocking", "lines"), [(True, 7), (False, 17)])
def test_at_any_line(path, blocking, lines):
    t, words = st.table(), tf.constant([1])
    st.fill(t, range(50))
    snapshot.save(t, path)

    def save():
        pending = snapshot.save(
            t, path, True, dense={"w": words}, blocking=blocking
        )
        if not blocking:
            pending.wait()

    before = _descriptors()
    kept = []  # as IPython keeps the last traceback
    number = 0
    versions = snapshot.versions(path)
    while True:
        number += lines
        st.fill(t, [number % 50], scale=number)
        found = _interrupted(number, save)
        if found is None:
            break
        kept.append(found[1])
        new = snapshot.versions(path)
        # A background write may still complete.
        assert len(new) - len(versions) in (0, 1), found[0]
        for thread in threading.enumerate():
            if thread.name == "lodestar-snapshot":
                thread.join()
        # The next save works at once, and the first leaves nothing behind.
        info = snapshot.save(t, path, delta=True)
        assert info.kind == "delta", found[0]
        folders = SnapshotFolder(path)
        assert folders.numbers() == folders.versions(), found[0]
        versions = snapshot.versions(path)
    assert number > 100
    kept.clear()
    assert _descriptors() <= before
    new = st.table()
    snapshot.restore(new, path)
    assert st.content(new) == st.content(t)
    snapshot.verify(path)


def test_a_lock_is_released_once(path):
    folder = SnapshotFolder(path)
    lock = folder.acquire()
    lock.release()
    reused = os.open(os.devnull, os.O_RDONLY)
    lock.release()
    os.fstat(reused)
    os.close(reused)
    with folder.lock(), pytest.raises(snapshot.SnapshotError, match="held by"):
        folder.acquire()


def test_ctrl_c_ends_the_writing_of_files(path, monkeypatch):
    # The signal arrives while the thread writes; the write is cut short.
    t = st.table()
    st.fill(t, range(10))
    snapshot.save(t, path)
    st.fill(t, [3], scale=2)
    writing, interrupted = threading.Event(), threading.Event()
    write = saving.blobs.write

    def write_late(*arguments):
        writing.set()
        assert interrupted.wait(300)
        return write(*arguments)

    monkeypatch.setattr(saving.blobs, "write", write_late)
    give_up = saving._Saving.cancel

    def cancel(self):
        give_up(self)
        interrupted.set()

    monkeypatch.setattr(saving._Saving, "cancel", cancel)

    def press():
        writing.wait(300)
        os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=press)
    thread.start()
    with pytest.raises(KeyboardInterrupt):
        snapshot.save(t, path, True, dense={"w": np.arange(3)})
    thread.join()
    assert [info.version for info in snapshot.versions(path)] == [1]
    assert SnapshotFolder(path).numbers() == [1]
    monkeypatch.undo()
    assert snapshot.save(t, path, delta=True).rows == 1


_INTERRUPTED = """
import sys
import lodestar
import snapshot_tables as st
t = st.table(dim=16)
st.fill(t, range(300_000))
print("ready", flush=True)
try:
    for _ in range(1000):
        lodestar.snapshot.save(t, sys.argv[1])
except KeyboardInterrupt:
    print("interrupted", flush=True)
st.fill(t, [1], scale=3)
print(lodestar.snapshot.save(t, sys.argv[1], delta=True).version, flush=True)
"""


def test_ctrl_c_in_a_process(path):
    with subprocess.Popen(
        [sys.executable, "-c", _INTERRUPTED, path],
        stdout=subprocess.PIPE,
        text=True,
        env={
            **os.environ,
            "PYTHONPATH": os.pathsep.join(
                [os.path.dirname(__file__), *sys.path]
            ),
        },
    ) as process:
        assert process.stdout.readline() == "ready\n"
        while not SnapshotFolder(path).versions():
            time.sleep(0.01)
        process.send_signal(signal.SIGINT)
        assert process.stdout.readline() == "interrupted\n"
        version = int(process.stdout.readline())
        assert process.wait() == 0
    folder = SnapshotFolder(path)
    assert folder.numbers() == folder.versions()
    assert folder.newest_version() == version
    assert snapshot.verify(path).version == version
