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
from lodestar.train.cluster_task import ClusterTask, read_task
from lodestar.version import __version__

_NAME = "lodestar.train"


def main(arguments: list[str] | None = None) -> int:
    """Runs the command and returns its exit code."""
    options = _parser().parse_args(arguments)
    return command_line.run(_NAME, lambda: _serve(options))


def _parser() -> argparse.ArgumentParser:
    parser = command_line.Parser(
        prog="python -m lodestar.train", description="Tasks of a cluster."
    )
    commands = parser.add_subparsers(
        required=True, metavar="COMMAND", dest="command"
    )
    text = "a parameter server or worker, until SIGTERM or Ctrl-C"
    server = commands.add_parser(
        "server",
        help=text,
        description=f"{text[0].upper()}{text[1:]}. Which one it is stands in "
        "TF_CONFIG, or is given here.",
    )
    server.add_argument(
        "--cluster",
        metavar="JSON",
        help='{"ps": ["HOST:PORT", ...], "worker": ["HOST:PORT", ...]}',
    )
    server.add_argument("--job", metavar="JOB", help="ps or worker")
    server.add_argument(
        "--task", type=command_line.at_least(0), metavar="N", help="from 0"
    )
    return parser


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
