"""Crashes: restores give a complete state, or an error names the file.

LODESTAR_CRASH_KILLS sets how many writers are killed; 200 take some minutes.
"""

import contextlib
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
import snapshot_tables as st
import tensorflow as tf
from crash_writer import Trainer, checksum, make_tables

from lodestar import snapshot
from lodestar.snapshot.folder import SnapshotFolder

KILLS = int(os.environ.get("LODESTAR_CRASH_KILLS", "5"))


@contextlib.contextmanager
def writers(path, log):
    """Yields a function that starts a writer and returns its process id."""
    script = os.path.join(os.path.dirname(__file__), "crash_writer.py")
    with subprocess.Popen(
        [sys.executable, script, path, log],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    ) as process:

        def begin(seed):
            process.stdin.write(f"{seed}\n")
            process.stdin.flush()
            return int(process.stdout.readline())

        try:
            yield begin
        finally:
            process.stdin.close()


def said(log):
    """Returns the log's lines as pairs."""
    if not os.path.exists(log):
        return []
    with open(log) as file:
        return [line.strip().split(" ", 1) for line in file]


def test_a_writer_killed_at_any_moment(path, tmp_path):
    log = str(tmp_path / "log")
    chance = random.Random(7)
    unfinished = 0
    state = None
    with writers(path, log) as begin:
        # Some kills must happen between the writing of two versions.
        kill = 0
        while kill < KILLS or unfinished <= KILLS // 20:
            before = len(said(log))
            writer = begin(kill)
            # It first restores, then saves.
            while len(said(log)) == before:
                time.sleep(0.002)
            time.sleep(chance.uniform(0, 0.2))
            os.kill(writer, signal.SIGKILL)
            state = _check(path, said(log)[before:], state)
            numbers = SnapshotFolder(path).numbers()
            unfinished += numbers != SnapshotFolder(path).versions()
            kill += 1


def _check(path, lines, before):
    """Returns the checksum of the restored state.

    It is the last state that the writer committed, or the one it was writing;
    `before` if it wrote none.
    """
    assert not [line for line in lines if line[0] == "failed"]
    texts = [text for kind, text in lines if kind == "committed"]
    committed = texts[-1] if texts else before
    begun = [text for kind, text in lines if kind == "begun"][-1]
    found = None
    if snapshot.versions(path):
        tables = make_tables()
        snapshot.restore(tables, path)
        snapshot.verify(path)
        found = checksum(tables)
    assert found in (begun, committed)
    return found


class Saved:
    """Tables, the states of their versions, and the folder's files."""

    def __init__(self, path, versions=3):
        self.path = path
        self.tables = make_tables()
        self.trainer = Trainer(self.tables, 1)
        self.states = {}
        for version in range(1, versions + 1):
            self.trainer.step()
            self.save(delta=version > 1)
            assert version in self.states

    def save(self, delta):
        state = checksum(self.tables)
        info = snapshot.save(
            self.tables, self.path, delta, dense={"w": np.arange(9)}
        )
        self.states[info.version] = state

    def files(self):
        return sorted(
            os.path.join(folder, name)
            for folder, _, names in os.walk(self.path)
            for name in names
            if name != "LOCK"
        )


def _damaged(chance, file, data):
    """Damages a file in some way; returns the way."""
    kind = chance.choice(["flip", "flip", "zero", "cut", "grow", "remove"])
    bad = bytearray(data)
    place = chance.randrange(len(data))
    if kind == "flip":
        bad[place] ^= 1 << chance.randrange(8)
    elif kind == "zero":
        size = min(512, len(data) - place)
        bad[place : place + size] = bytes(size)
    elif kind == "cut":
        del bad[place:]
    elif kind == "grow":
        bad += bytes(chance.randrange(1, 100))
    if kind == "remove":
        os.unlink(file)
    else:
        with open(file, "wb") as opened:
            opened.write(bad)
    return kind if bytes(bad) != data or kind == "remove" else "nothing"


def test_damaged_files(path):
    saved = Saved(path)
    chance = random.Random(1)
    tables = make_tables()
    for t in tables:
        st.fill(t, range(7))
    before = checksum(tables)
    outcomes = set()
    for _ in range(60):
        file = chance.choice(saved.files())
        with open(file, "rb") as opened:
            data = opened.read()
        kind = _damaged(chance, file, data)
        case = f"{kind} of {file}"
        try:
            report = snapshot.restore(tables, path)
        except snapshot.SnapshotError as error:
            assert file in str(error), case
            assert checksum(tables) == before, case
            outcomes.add("error")
        else:
            # The file is not needed, or its version is invalid without it.
            assert checksum(tables) == saved.states[report.version], case
            last = report.version == 3
            assert last or (kind == "remove" and file.endswith("3/MANIFEST"))
            outcomes.add("last" if last else "before")
            for t in tables:
                t.clear()
                st.fill(t, range(7))
            before = checksum(tables)
        with open(file, "wb") as opened:
            opened.write(data)
    assert outcomes >= {"error", "last"}
    snapshot.restore(tables, path)
    assert checksum(tables) == saved.states[3]


def _fails_and_goes_on(saved, delta):
    """A save fails; existing versions stay, and the next save loses nothing."""
    versions = SnapshotFolder(saved.path).versions()
    with pytest.raises((OSError, tf.errors.OpError)) as caught:
        saved.save(delta)
    assert SnapshotFolder(saved.path).versions() == versions
    new = make_tables()
    report = snapshot.restore(new, saved.path)
    assert checksum(new) == saved.states[report.version]
    return str(caught.value)


def _saves_again(saved):
    saved.save(delta=True)
    new = make_tables()
    report = snapshot.restore(new, saved.path)
    assert report.version == max(saved.states)
    assert checksum(new) == checksum(saved.tables)
    assert snapshot.versions(saved.path)[-1].kind == "delta"


@contextlib.contextmanager
def file_size_limit(size):
    """Makes writes beyond `size` bytes of a file fail, as errors in Python."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.mark.parametrize("delta", [False, True])
def test_files_that_may_not_grow(path, delta):
    saved = Saved(path)
    saved.trainer.step()
    for size in (0, 100, 5000, 100_000):
        with file_size_limit(size):
            if delta and size > 5000:
                continue
            text = _fails_and_goes_on(saved, delta)
        assert "File too large" in text and "0000000" in text
    _saves_again(saved)


@pytest.fixture
def small_disk(tmp_path):
    """Returns a folder on a disk of one megabyte."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", folder],
        capture_output=True,
        text=True,
    )
    if mounted.returncode:
        pytest.skip(f"cannot mount a disk: {mounted.stderr.strip()}")
    try:
        yield str(folder)
    finally:
        subprocess.run(["umount", "-l", folder], check=True)


def test_a_full_disk(small_disk):
    path = os.path.join(small_disk, "s")
    saved = Saved(path, versions=1)
    t = saved.tables[0]
    st.fill(t, range(100_000, 140_000))
    for delta in (False, True):
        text = _fails_and_goes_on(saved, delta)
        assert "No space left on device" in text and path in text
    # The failed save has left nothing on the disk.
    t.remove(tf.range(100_000, 140_000, dtype=tf.int64))
    _saves_again(saved)
    filler = os.path.join(small_disk, "filler")
    with contextlib.suppress(OSError), open(filler, "wb", buffering=0) as file:
        while True:
            file.write(bytes(4096))
    saved.trainer.step()
    _fails_and_goes_on(saved, True)
    os.unlink(filler)
    _saves_again(saved)


def test_a_disk_that_becomes_read_only(small_disk):
    path = os.path.join(small_disk, "s")
    saved = Saved(path, versions=1)
    saved.trainer.step()
    remount = ["mount", "-o", "remount,ro", small_disk]
    if subprocess.run(remount).returncode:
        pytest.skip("cannot remount a disk")
    text = _fails_and_goes_on(saved, True)
    assert "Read-only file system" in text and path in text
    remount[2] = "remount,rw"
    subprocess.run(remount, check=True)
    _saves_again(saved)


@pytest.mark.skipif(os.geteuid() == 0, reason="root ignores permissions")
def test_a_folder_that_may_not_be_written(path):
    saved = Saved(path)
    saved.trainer.step()
    os.chmod(path, 0o500)
    try:
        text = _fails_and_goes_on(saved, True)
    finally:
        os.chmod(path, 0o700)
    assert "Permission denied" in text
    _saves_again(saved)


def test_a_folder_that_goes_away(path):
    saved = Saved(path)
    os.rename(path, path + "-elsewhere")
    saved.trainer.step()
    with open(path, "w"):
        pass
    with pytest.raises(OSError, match="snapshots"):
        saved.save(True)
    os.unlink(path)
    os.rename(path + "-elsewhere", path)
    _saves_again(saved)
    shutil.rmtree(path)
    state = checksum(saved.tables)
    assert snapshot.save(saved.tables, path, True).kind == "full"
    new = make_tables()
    snapshot.restore(new, path)
    assert checksum(new) == state
