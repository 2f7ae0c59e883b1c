"""The command line: `python -m lodestar.train server`.

Exit code 0, or 2 with one line on stderr that names what is wrong.
"""

import argparse
import errno
import os
import signal
import socket
import sys

import tensorflow as tf

from lodestar import command_line
from lodestar._commands.train_parser import train_parser
from lodestar.train.cluster_task import ClusterTask, read_task
from lodestar.version import __version__

_NAME = "lodestar.train"


def main(
    arguments: list[str] | None = None, prog: str = f"python -m {_NAME}"
) -> int:
    """Runs the command and returns its exit code."""
    options = train_parser(prog).parse_args(arguments)
    return command_line.run(_NAME, lambda: _serve(options))


def _serve(options: argparse.Namespace) -> int:
    task = read_task(os.environ, options.cluster, options.job, options.task)
    server = _start(task)
    # A handler that sets an Event would wait for a lock that the interrupted
    # wait() may hold: signals are written to a pipe instead.
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    signal.signal(signal.SIGTERM, lambda number, frame: None)
    signal.set_wakeup_fd(writer)
    print(
        f"{task.name} listens on port {task.port}, Lodestar {__version__}, "
        f"TensorFlow {tf.__version__}",
        flush=True,
    )
    while os.read(reader, 1)[0] != signal.SIGTERM:
        pass  # Ctrl-C raises
    del server
    return 0


def _start(task: ClusterTask) -> tf.distribute.Server:
    # TensorFlow would say that a server could not be started, and not why.
    with socket.socket() as found:
        found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            found.bind(("", task.port))
        except OSError as error:
            reason = os.strerror(error.errno or errno.EIO)
            raise ValueError(
                f"{task.name}: port {task.port} of this host: {reason}"
            ) from error
    return tf.distribute.Server(
        tf.train.ClusterSpec(task.cluster),
        job_name=task.job,
        task_index=task.index,
        protocol="grpc",
    )


if __name__ == "__main__":
    sys.exit(main())
