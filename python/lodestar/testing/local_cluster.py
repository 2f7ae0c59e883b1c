"""A cluster of local processes."""

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

# This process imports TensorFlow, which takes seconds, once and forks every task.
# A task ends when the process that created the cluster ends in any way, because
# that closes its standard input. The fork server ends after all tasks.
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
# Ports that the kernel does not assign by itself.
_PORTS = range(10000, 32000)


class LocalCluster:
    """Parameter servers and workers on this machine, one process each.

    Use it to try or test distributed training: tasks may be killed and restarted.
    All tasks end when the cluster is closed or this process ends in any way.

    >>> with LocalCluster(ps=2, workers=2) as cluster:
    ...     strategy = tf.distribute.ParameterServerStrategy(cluster.resolver)

    Args:
        ps: Number of parameter servers.
        workers: Number of workers.

    Attributes:
        spec: Job -> addresses of its tasks.
        processes: (job, index) of a task -> its process id.

    Raises:
        ValueError: If there is no worker or no parameter server.
        RuntimeError: If a task does not start; its stderr has the reason.
    """

    def __init__(self, ps: int = 1, workers: int = 1):
        check_count("ps", ps, 1)
        check_count("workers", workers, 1)
        # Held until `close`, because tasks may be restarted.
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
        """The resolver for `tf.distribute` in the training program."""
        return tf.distribute.cluster_resolver.SimpleClusterResolver(
            tf.train.ClusterSpec(self.spec), rpc_layer="grpc"
        )

    def start(self, job: str, index: int) -> None:
        """Starts or restarts a task with empty state.

        Args:
            job: "ps" or "worker".
            index: Index of the task in its job.
        """
        flags = ["--cluster", json.dumps(self.spec)]
        flags += ["--job", job, "--task", str(index)]
        process = self._ask(["server", *flags])
        if not process:
            raise RuntimeError(f"{job} {index} did not start.")
        self.processes[job, index] = process

    def kill(self, job: str, index: int) -> None:
        """Kills a task, as if its machine had failed, and waits for its end."""
        process = self.processes.pop((job, index))
        os.kill(process, signal.SIGKILL)
        self._ask(process)

    def close(self) -> None:
        """Kills all tasks and waits for their end."""
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
    """Binds sockets to free ports, which stay reserved until they are closed.

    They do not listen. A server that sets SO_REUSEADDR, as TensorFlow's does, can.
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
            # Set after bind: two sockets that have it may share a port.
            held[-1].setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    return held
