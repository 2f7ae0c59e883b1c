"""Starts and connects the processes of ctr_distributed."""

import contextlib
import ctypes
import json
import multiprocessing
import os
import pathlib
import signal
import socket
import subprocess
import sys
import threading
import time
import types
from collections.abc import Iterator, Sequence

import tensorflow as tf

import lodestar.train.__main__
from lodestar.testing.local_cluster import hold_ports
from lodestar.train.cluster_task import ClusterTask

_PATIENCE_S = 300  # seconds to wait for servers that have not started
_PR_SET_PDEATHSIG = 1  # from linux/prctl.h


class Task(ClusterTask):
    """The role of a process in a cluster of trainers and servers.

    A "chief" coordinates the cluster; without one, worker 0 also coordinates.
    """

    __slots__ = ()

    @property
    def coordinates(self) -> bool:
        """Whether this process runs the training."""
        first = "chief" if "chief" in self.cluster else "worker"
        return (self.job, self.index) == (first, 0)

    @property
    def host(self) -> str:
        """The host name under which others reach this machine."""
        return _host_and_port(self.address)[0]


def find_task(options: types.SimpleNamespace) -> Task | None:
    """Returns the task that flags or TF_CONFIG define; None without a cluster.

    Raises:
        ValueError: The definition is invalid.
    """
    if options.role is not None:
        return _from_flags(options)
    if options.endpoints or options.trainers:
        raise ValueError("A task of a cluster needs --role.")
    return _from_environment()


def _from_flags(options: types.SimpleNamespace) -> Task:
    servers, trainers = options.endpoints, options.trainer_endpoints
    if not servers or not options.trainers:
        raise ValueError("--role needs --endpoints and --trainers.")
    hosts, ports = zip(*map(_host_and_port, servers), strict=True)
    if not trainers:
        if len(set(hosts)) > 1:
            raise ValueError(
                "--endpoints are on several hosts. Set --trainer_endpoints."
            )
        first = ports[-1] + 1
        trainers = [f"{hosts[0]}:{first + i}" for i in range(options.trainers)]
    if options.trainers != len(trainers):
        raise ValueError(
            f"--trainers is {options.trainers}, but --trainer_endpoints has "
            f"{len(trainers)}."
        )
    cluster = {"ps": servers, "worker": trainers}
    if options.role == "TRAINER":
        if options.trainer_id is None or options.trainer_id >= len(trainers):
            raise ValueError(
                f"--trainer_id must be in [0, {len(trainers) - 1}], got "
                f"{options.trainer_id}."
            )
        return Task(cluster, "worker", options.trainer_id)
    if options.current_endpoint not in servers:
        raise ValueError(
            "--current_endpoint must be one of --endpoints, got "
            f"{options.current_endpoint}."
        )
    return Task(cluster, "ps", servers.index(options.current_endpoint))


def _from_environment() -> Task | None:
    try:
        config = json.loads(os.environ.get("TF_CONFIG") or "{}")
    except ValueError as error:
        raise ValueError(f"TF_CONFIG is not JSON: {error}") from None
    if not config.get("cluster"):
        return None
    cluster, task = config["cluster"], config.get("task", {})
    for job in ("ps", "worker"):
        if not cluster.get(job):
            raise ValueError(f"TF_CONFIG: the cluster has no {job!r}.")
    job, index = task.get("type"), int(task.get("index", -1))
    if not 0 <= index < len(cluster.get(job, ())):
        raise ValueError(f"TF_CONFIG: the cluster has no task {job} {index}.")
    return Task(cluster, job, index)


def _host_and_port(address: str) -> tuple[str, int]:
    host, _, port = address.rpartition(":")
    if not (host and port.isdecimal()):
        raise ValueError(f"Addresses must be HOST:PORT, got {address!r}.")
    return host, int(port)


def serve(task: Task, output: pathlib.Path) -> int:
    """Runs a parameter server or worker until training ends, or SIGTERM.

    Args:
        task: The task of this process.
        output: Folder that all processes share.

    Returns:
        The exit code.
    """
    mark = _mark(output, task.job, task.index)
    mark.parent.mkdir(parents=True, exist_ok=True)
    mark.unlink(missing_ok=True)

    def end() -> None:
        while not mark.exists():
            time.sleep(0.2)
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=end, daemon=True).start()
    flags = ["--cluster", json.dumps(task.cluster)]
    flags += ["--job", task.job, "--task", str(task.index)]
    # The same as `python -m lodestar.train server`.
    return lodestar.train.__main__.main(["server", *flags])


def _mark(output: pathlib.Path, job: str, index: int) -> pathlib.Path:
    """Returns the file that marks the end of training for a server."""
    return output / "ended" / f"{job}-{index}"


@contextlib.contextmanager
def connected(
    task: Task, output: pathlib.Path
) -> Iterator[tf.distribute.Strategy]:
    """Connects the coordinator to all servers; its own worker is one of them.

    The servers end when the block ends, unless it raises an error.

    Args:
        task: The task of this process.
        output: Folder that all processes share.

    Yields:
        The strategy to create a model in.
    """
    worker = None
    if task.job == "worker":
        # Forks before TensorFlow does anything in this process.
        worker = multiprocessing.get_context("fork").Process(
            target=_serve_parent, args=(task, output), daemon=True
        )
        worker.start()
    servers = [
        (job, index, address)
        for job in ("ps", "worker")
        for index, address in enumerate(task.cluster[job])
    ]
    for job, index, address in servers:
        _wait(f"{job} {index}", address, worker)
    # The port on which servers reach this process.
    (held,) = hold_ports(1)
    chief = [f"{task.host}:{held.getsockname()[1]}"]
    yield tf.distribute.ParameterServerStrategy(
        tf.distribute.cluster_resolver.SimpleClusterResolver(
            tf.train.ClusterSpec({"chief": chief, **task.cluster}),
            rpc_layer="grpc",
        )
    )
    held.close()
    for job, index, _ in servers:
        _mark(output, job, index).touch()
    if worker is not None:
        worker.join()


def _serve_parent(task: Task, output: pathlib.Path) -> None:
    end_with_parent()
    sys.exit(serve(task, output))


def _wait(
    name: str, address: str, worker: multiprocessing.process.BaseProcess | None
) -> None:
    """Waits until the server responds, while this process's own worker runs."""
    begin = time.monotonic()
    said = 0.0
    while True:
        if worker is not None and not worker.is_alive():
            raise ValueError("The worker of this process did not start.")
        try:
            socket.create_connection(_host_and_port(address), 5).close()
            return
        except OSError as error:
            waited = time.monotonic() - begin
            text = f"{name} at {address}: {error.strerror or error}"
            if waited > _PATIENCE_S:
                raise TimeoutError(f"no {text}") from error
            if waited > said + 10:
                said = waited
                print(f"Waiting for {text}", flush=True)
            time.sleep(0.2)


def run_on_loopback(program: Sequence[str], servers: int, trainers: int) -> int:
    """Runs the program as a cluster on this machine; returns the exit code.

    Args:
        program: The command and its arguments, without a role.
        servers: Number of parameter servers.
        trainers: Number of trainers.
    """
    held = hold_ports(servers + trainers)
    addresses = [f"127.0.0.1:{one.getsockname()[1]}" for one in held]
    endpoints = addresses[:servers]
    flags = ["--endpoints", ",".join(endpoints), "--trainers", str(trainers)]
    flags += ["--trainer_endpoints", ",".join(addresses[servers:])]
    roles = [
        ["--role", "PSERVER", "--current_endpoint", address]
        for address in endpoints
    ]
    roles += [
        ["--role", "TRAINER", "--trainer_id", str(index)]
        for index in reversed(range(trainers))
    ]
    processes = []
    try:
        for role in roles:
            print("Starting", *role, flush=True)
            process = subprocess.Popen(
                [*program, *flags, *role],
                env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
                preexec_fn=end_with_parent,
                # Only this process receives Ctrl-C, and ends the others.
                process_group=0,
            )
            processes.append(process)
        *others, first = processes
        # Trainer 0 notices a process that is killed.
        while first.poll() is None and all(
            (other.poll() or 0) <= 0 for other in others
        ):
            time.sleep(0.2)
        return 1 if first.returncode is None else first.returncode
    finally:
        for process in processes:
            process.terminate()
        for process in processes:
            process.wait()
        for one in held:
            one.close()


def end_with_parent() -> None:
    """Makes Linux send SIGTERM to this process when its parent ends."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
