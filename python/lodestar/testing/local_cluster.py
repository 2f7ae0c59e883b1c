"""A cluster of processes on this machine."""

import json
import os
import random
import signal
import socket
import subprocess
import sys
from typing import Any

import tensorflow as tf

from lodestar._checks import check_count

# Imports once, and forks for each task: TensorFlow takes seconds to import. A
# task ends when the process that made the cluster has gone, whatever ended it:
# nobody holds the other end of its standard input then. Ends when all have.
_FORKS = """
import contextlib, json, os, select, sys, threading
from lodestar.train.__main__ import main

def end_with_parent():
    poll = select.poll()
    poll.register(0, 0)
    poll.poll()
    os._exit(1)

def serve(arguments, stdout):
    os.dup2(stdout, 1)
    threading.Thread(target=end_with_parent, daemon=True).start()
    os._exit(main(arguments))

for line in sys.stdin:
    request = json.loads(line)
    if isinstance(request, int):
        answer = os.waitpid(request, 0)[1]
    else:
        reader, writer = os.pipe()
        process = os.fork()
        if not process:
            serve(request, writer)
        os.close(writer)
        with open(reader) as stdout:
            answer = process if stdout.readline() else 0
    print(answer, flush=True)
with contextlib.suppress(ChildProcessError):
    while True:
        os.wait()
"""
# Of ports that the kernel gives to nobody by itself.
_PORTS = range(10000, 32000)


class LocalCluster:
    """Parameter servers and workers on this machine, each a process.

    To try a training, and to test it: tasks may be killed and started again.
    All end when the cluster is closed, and when this process ends, however it
    does.

    >>> with LocalCluster(ps=2, workers=2) as cluster:
    ...     strategy = tf.distribute.ParameterServerStrategy(cluster.resolver)

    Args:
        ps: How many parameter servers.
        workers: How many workers.

    Attributes:
        spec: Job -> addresses of its tasks.
        processes: (job, index) of a task -> the number of its process.

    Raises:
        ValueError: There is no worker, or no parameter server.
        RuntimeError: A task did not start; its stderr has said why.
    """

    def __init__(self, ps: int = 1, workers: int = 1):
        check_count("ps", ps, 1)
        check_count("workers", workers, 1)
        # Until the end: a task may be started again.
        self._held = hold_ports(ps + workers)
        ports = [held.getsockname()[1] for held in self._held]
        addresses = [f"127.0.0.1:{port}" for port in ports]
        self.spec = {"ps": addresses[:ps], "worker": addresses[ps:]}
        self.processes: dict[tuple[str, int], int] = {}
        environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join(sys.path),
            "LODESTAR_QUIET_START": "1",
            "CUDA_VISIBLE_DEVICES": "",
        }
        environment.pop("TF_CONFIG", None)
        self._forks = subprocess.Popen(
            [sys.executable, "-c", _FORKS],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=environment,
        )
        try:
            for job, tasks in self.spec.items():
                for index in range(len(tasks)):
                    self.start(job, index)
        except BaseException:
            self.close()
            raise

    @property
    def resolver(self) -> tf.distribute.cluster_resolver.ClusterResolver:
        """Of the program that trains, for `tf.distribute`."""
        return tf.distribute.cluster_resolver.SimpleClusterResolver(
            tf.train.ClusterSpec(self.spec), rpc_layer="grpc"
        )

    def start(self, job: str, index: int) -> None:
        """Starts a task, or one again that was killed, with nothing in it.

        Args:
            job: "ps" or "worker".
            index: From 0.
        """
        flags = ["--cluster", json.dumps(self.spec)]
        flags += ["--job", job, "--task", str(index)]
        process = self._ask(["server", *flags])
        if not process:
            raise RuntimeError(f"{job} {index} did not start.")
        self.processes[job, index] = process

    def kill(self, job: str, index: int) -> None:
        """Ends a task at once, as a machine that fails; returns when it has."""
        process = self.processes.pop((job, index))
        os.kill(process, signal.SIGKILL)
        self._ask(process)

    def close(self) -> None:
        """Ends all tasks; returns when they have ended."""
        for process in self.processes.values():
            os.kill(process, signal.SIGKILL)
        self.processes.clear()
        self._forks.communicate()
        for held in self._held:
            held.close()

    def __enter__(self) -> "LocalCluster":
        return self

    def __exit__(self, *exception: Any) -> None:
        self.close()

    def _ask(self, request: Any) -> int:
        print(json.dumps(request), file=self._forks.stdin, flush=True)
        assert self._forks.stdout is not None
        answer = self._forks.stdout.readline()
        if not answer:
            raise RuntimeError("The process that starts tasks has ended.")
        return int(answer)


def hold_ports(count: int) -> list[socket.socket]:
    """Sockets of free ports, which nobody else finds free until they are closed.

    They do not listen. A server may, that sets SO_REUSEADDR, as TensorFlow's do.
    """
    held: list[socket.socket] = []
    for port in random.SystemRandom().sample(_PORTS, len(_PORTS)):
        if len(held) == count:
            break
        held.append(socket.socket())
        try:
            held[-1].bind(("", port))
        except OSError:
            held.pop().close()
        else:
            # Not before: two that have it may be bound to one port.
            held[-1].setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    return held
