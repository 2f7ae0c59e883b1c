"""Processes that copy snapshots or hold a folder."""

import os
import signal

from lodestar import snapshot
from lodestar.snapshot import copying
from lodestar.snapshot.folder import SnapshotFolder


def copy(path, remote):
    """Prints the error of a copy."""
    try:
        snapshot.copy(path, remote)
    except snapshot.SnapshotError as error:
        print(error, flush=True)


def hold(path):
    """Prints its number once it holds the lock of a folder."""
    SnapshotFolder(path).acquire()
    print(os.getpid(), flush=True)
    signal.pause()


def die(path, remote, count):
    """Dies when it has written `count / 2` files; the half is a part of one."""
    write, calls = copying._write, []

    def dies(where, pieces):
        calls.append(where)
        if len(calls) <= count // 2:
            write(where, pieces)
            return
        if count % 2:
            data = b"".join(pieces)
            write(where, [data[: len(data) // 2]])
        os.kill(os.getpid(), signal.SIGKILL)

    copying._write = dies
    snapshot.copy(path, remote, blocking=False).wait()
