"""lodestar._files: temporary files of live writers, and of dead ones."""

import errno
import fcntl
import os
import signal
import subprocess
import sys

import pytest
import tensorflow as tf

from lodestar import _files
from lodestar._files import AtomicFile, Temporary, remove_unfinished

# Writes to several paths, reports it, and waits to be killed.
WRITER = """
import sys
from lodestar._files import AtomicFile, Temporary

kept = [AtomicFile("out"), AtomicFile("out"), AtomicFile("x.gz", header_size=8)]
kept.append(Temporary("folder", is_folder=True))
open(f"{kept[-1].path}/part", "w").write("rows")
print("written", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def writer(here):
    """Starts a process that is in the middle of writing."""
    process = subprocess.Popen(
        [sys.executable, "-c", WRITER],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert process.stdout.readline() == b"written\n"
    yield process
    process.kill()
    process.wait()
    process.stdin.close()
    process.stdout.close()


def names():
    return sorted(os.listdir())


def write_all():
    with AtomicFile("out") as file:
        file.write(b"whole")
    compressed = AtomicFile("x.gz", header_size=8)
    compressed.commit(bytes(8))
    folder = Temporary("folder", is_folder=True)
    assert os.listdir(folder.path) == []
    os.rename(folder.path, "folder")
    folder.release()


def test_the_files_of_a_writer_stay_until_it_dies(writer):
    left = names()
    assert len(left) == 5 and all(".tmp-" in name for name in left)
    write_all()
    assert names() == sorted([*left, "folder", "out", "x.gz"])
    os.rmdir("folder")
    writer.send_signal(signal.SIGKILL)
    writer.wait()
    write_all()
    assert names() == ["folder", "out", "x.gz"]
    with open("out") as file:
        assert file.read() == "whole"


def test_the_files_of_other_hosts_stay(here, monkeypatch):
    there = Temporary("folder", is_folder=True)
    there.release()  # as if its process had died
    monkeypatch.setattr(_files, "_HOST", "00000000")
    write_all()
    assert there.path in names() and len(names()) == 4


def test_writers_of_one_path_at_a_time(here):
    with AtomicFile("out") as first:
        first.write(b"first")
        with AtomicFile("out") as second:
            second.write(b"second")
            assert len(names()) == 2
        with AtomicFile("out") as third:  # reuses the second one's name
            third.write(b"third")
            assert len(names()) == 3
    assert names() == ["out"]
    with open("out") as file:
        assert file.read() == "first"


@pytest.mark.parametrize("where, name", [(fcntl, "flock"), (os, "lstat")])
@pytest.mark.parametrize("header_size", [0, 8])
def test_control_c_while_a_file_is_made(
    here, monkeypatch, where, name, header_size
):
    def interrupted(*arguments):
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(where, name, interrupted)
        with pytest.raises(KeyboardInterrupt):
            AtomicFile("out.gz", header_size=header_size)
    remove_unfinished("out.gz")
    assert names() == []


def test_without_locks_names_are_unique(here, monkeypatch):
    def no_locks(descriptor, operation):
        raise OSError(errno.ENOLCK, "No locks available")

    left = Temporary("out")
    with open(left.path, "w"):
        left.release()
    monkeypatch.setattr(fcntl, "flock", no_locks)
    with AtomicFile("out") as first, AtomicFile("out") as second:
        first.write(b"first")
        second.write(b"second")
        assert len(names()) == 3
    assert names() == ["out", left.path]


def test_an_unreadable_leftover_is_ignored(here, monkeypatch):
    left = Temporary("out")
    with open(left.path, "w"):
        left.release()
    real = os.open

    def refuse(path, *arguments):
        if path == left.path:
            raise PermissionError(errno.EACCES, "Permission denied", path)
        return real(path, *arguments)

    monkeypatch.setattr(os, "open", refuse)
    with AtomicFile("out") as file:
        file.write(b"whole")
    assert names() == ["out", left.path]


def test_a_file_that_cannot_be_opened_leaves_nothing(here):
    with pytest.raises(tf.errors.NotFoundError, match="none/out"):
        AtomicFile("none/out")
    os.mkdir("x.gz.body.tmp-" + _files._HOST + "-0")
    assert AtomicFile("x.gz", header_size=8).discard() is None
    assert len(names()) == 1


def test_unfinished_files_of_this_process_are_removed(here):
    kept = [AtomicFile("out"), AtomicFile("x.gz", header_size=8)]
    remove_unfinished("out")
    assert all(name.startswith("x.gz") for name in names())
    remove_unfinished("x.gz")
    assert names() == [] and len(kept) == 2


def test_other_file_systems(here):
    with AtomicFile("ram://files_test/out") as file:
        file.write(b"whole")
    assert tf.io.gfile.listdir("ram://files_test") == ["out"]
    with AtomicFile(f"file://{here}/out") as file:
        file.write(b"whole")
    assert names() == ["out"]
