"""The command line: `python -m lodestar.train server`.

The exit code is 0, or 2 with an error in one line on stderr.
"""

import errno
import os
import signal
import socket
import sys

import click
import tensorflow as tf

from lodestar import _command_line
from lodestar._commands.train import TRAIN
from lodestar.train.cluster_task import ClusterTask, read_task
from lodestar.version import __version__

_NAME = "lodestar.train"


def main(
    arguments: list[str] | None = None, prog: str = f"python -m {_NAME}"
) -> int:
    """Runs the command and returns its exit code."""
    return run(_command_line.parse(TRAIN, arguments, prog))


def run(context: click.Context) -> int:
    """Runs a parsed command and returns its exit code."""
    return _command_line.run(_NAME, lambda: _serve(**context.params))


def _serve(cluster: str | None, job: str | None, task: int | None) -> int:
    own = read_task(os.environ, cluster, job, task)
    server = _start(own)
    # The handler writes to a pipe, because setting an Event could deadlock on a
    # lock that the interrupted wait() holds.
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    signal.signal(signal.SIGTERM, lambda number, frame: None)
    signal.set_wakeup_fd(writer)
    print(
        f"{own.name} listens on port {own.port}, Lodestar {__version__}, "
        f"TensorFlow {tf.__version__}",
        flush=True,
    )
    while os.read(reader, 1)[0] != signal.SIGTERM:
        pass  # Ctrl-C raises KeyboardInterrupt.
    del server
    return 0


def _start(task: ClusterTask) -> tf.distribute.Server:
    # TensorFlow would not tell why a server could not be started.
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
