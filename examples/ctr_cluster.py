"""The processes of ctr_distributed: who is who, servers, the way to them."""

import json
import multiprocessing
import os
import pathlib
import random
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from typing import NamedTuple

import tensorflow as tf

# Of ports that the kernel gives to nobody by itself.
_PORTS = range(10000, 32000)


class Task(NamedTuple):
    """A place in a cluster.

    Attributes:
        cluster: Job, "ps" and "worker", -> addresses of its tasks. With a
            "chief" that one coordinates; else worker 0 does, too.
        job: Of this process.
        index: Of this process in its job.
    """

    cluster: dict[str, list[str]]
    job: str
    index: int

    @property
    def coordinates(self) -> bool:
        """Whether this process runs the training."""
        first = "chief" if "chief" in self.cluster else "worker"
        return (self.job, self.index) == (first, 0)

    @property
    def host(self) -> str:
        """By which others reach this machine."""
        return self.cluster[self.job][self.index].rpartition(":")[0]


def serve(task: Task, output: pathlib.Path, parent: int | None = None) -> None:
    """Is a parameter server or worker until the training is over, or SIGTERM.

    Args:
        task: Which one.
        output: Folder that all processes share.
        parent: With it the server ends, too.
    """
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: sys.exit(0))
    mark = _mark(output, task.job, task.index)
    mark.parent.mkdir(parents=True, exist_ok=True)
    mark.unlink(missing_ok=True)
    server = tf.distribute.Server(
        tf.train.ClusterSpec(task.cluster),
        job_name=task.job,
        task_index=task.index,
        protocol="grpc",
    )
    while not mark.exists() and parent in (None, os.getppid()):
        time.sleep(0.2)
    del server


class Connection:
    """The coordinator's way to its servers.

    Starts the server of its own worker, waits until all others are there, and
    connects. With the block's end, but not with an error, the servers end.

    Attributes:
        strategy: To make models in.
        host: By which workers reach this machine.
        workers: How many.
    """

    def __init__(self, task: Task, output: pathlib.Path):
        self._task, self._output = task, output
        self.host = task.host
        self.workers = len(task.cluster["worker"])
        self._worker = None
        if task.job == "worker":
            # A fork, before TensorFlow has done anything here.
            self._worker = multiprocessing.get_context("fork").Process(
                target=serve, args=(task, output, os.getpid()), daemon=True
            )

    def __enter__(self) -> "Connection":
        if self._worker is not None:
            self._worker.start()
        for job, index, address in self._servers():
            self._wait(f"{job} {index} at {address}", address)
        cluster = {**self._task.cluster}
        # Where servers reach this process.
        cluster.setdefault("chief", [f"{self.host}:{free_ports(1)[0]}"])
        self.strategy = tf.distribute.ParameterServerStrategy(
            tf.distribute.cluster_resolver.SimpleClusterResolver(
                tf.train.ClusterSpec(cluster), rpc_layer="grpc"
            )
        )
        return self

    def __exit__(self, kind, error, traceback) -> None:
        if error is not None:
            return
        for job, index, _ in self._servers():
            _mark(self._output, job, index).touch()
        if self._worker is not None:
            self._worker.join()

    def _servers(self):
        return [
            (job, index, address)
            for job in ("ps", "worker")
            for index, address in enumerate(self._task.cluster[job])
        ]

    def _wait(self, name: str, address: str) -> None:
        host, _, port = address.rpartition(":")
        waited = 0
        while True:
            if self._worker is not None and not self._worker.is_alive():
                raise ValueError("the worker of this process did not start")
            try:
                socket.create_connection((host, int(port)), 5).close()
                return
            except OSError:
                if waited % 30 == 10:
                    print(f"Waiting for {name} ...", flush=True)
                time.sleep(1)
                waited += 1


def _mark(output: pathlib.Path, job: str, index: int) -> pathlib.Path:
    """The file that tells a server that the training is over."""
    return output / "ended" / f"{job}-{index}"


def run_on_loopback(program: Sequence[str], servers: int, trainers: int) -> int:
    """Runs the program as a cluster on this machine; returns the exit code.

    Args:
        program: The command and its arguments, without a role.
        servers: How many parameter servers.
        trainers: How many.
    """
    addresses = [f"127.0.0.1:{port}" for port in free_ports(servers + trainers)]
    endpoints = addresses[:servers]
    program = [
        *program,
        *("--endpoints", ",".join(endpoints)),
        *("--trainers", str(trainers)),
        *("--trainer_endpoints", ",".join(addresses[servers:])),
    ]
    roles = [
        ["--role", "PSERVER", "--current_endpoint", address]
        for address in endpoints
    ]
    roles += [
        ["--role", "TRAINER", "--trainer_id", str(index)]
        for index in reversed(range(trainers))
    ]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    environment.pop("TF_CONFIG", None)
    processes = []
    try:
        for role in roles:
            print("Starting", *role, flush=True)
            processes.append(
                subprocess.Popen([*program, *role], env=environment)
            )
        *others, first = processes
        while first.poll() is None:
            if any(other.poll() for other in others):
                return 1  # it has said why
            time.sleep(0.2)
        return first.returncode
    finally:
        for process in processes:
            process.terminate()
        for process in processes:
            process.wait()


def find_task(
    role: str | None,
    endpoints: Sequence[str] | None,
    current_endpoint: str | None,
    trainers: int | None,
    trainer_id: int | None,
    trainer_endpoints: Sequence[str] | None,
) -> Task | None:
    """The place that flags or TF_CONFIG give this process; None: it is alone.

    Raises:
        ValueError: They give none.
    """
    if role is None:
        return _from_environment()
    if not endpoints:
        raise ValueError("--role needs --endpoints, of the parameter servers")
    if not trainers and not trainer_endpoints:
        raise ValueError("--role needs --trainers, how many they are")
    for address in (*endpoints, *(trainer_endpoints or ())):
        host, _, port = address.rpartition(":")
        if not (host and port.isdecimal()):
            raise ValueError(f"{address!r} is no HOST:PORT")
    if trainer_endpoints is None:
        host = endpoints[0].rpartition(":")[0]
        port = int(endpoints[-1].rpartition(":")[2]) + 1
        trainer_endpoints = [f"{host}:{port + i}" for i in range(trainers)]
    if trainers not in (None, len(trainer_endpoints)):
        raise ValueError(
            f"--trainers is {trainers}, but --trainer_endpoints has "
            f"{len(trainer_endpoints)}"
        )
    cluster = {"ps": list(endpoints), "worker": list(trainer_endpoints)}
    if role == "PSERVER":
        if current_endpoint not in endpoints:
            raise ValueError(
                f"--current_endpoint is {current_endpoint}, wanted one of "
                "--endpoints"
            )
        return Task(cluster, "ps", endpoints.index(current_endpoint))
    if trainer_id is None or trainer_id >= len(trainer_endpoints):
        raise ValueError(
            f"--trainer_id is {trainer_id}, wanted 0 to "
            f"{len(trainer_endpoints) - 1}"
        )
    return Task(cluster, "worker", trainer_id)


def _from_environment() -> Task | None:
    try:
        config = json.loads(os.environ.get("TF_CONFIG") or "{}")
    except ValueError as error:
        raise ValueError(f"TF_CONFIG is no JSON: {error}") from None
    if not config.get("cluster"):
        return None
    cluster, task = config["cluster"], config.get("task", {})
    for job in ("ps", "worker"):
        if not cluster.get(job):
            raise ValueError(f"TF_CONFIG: the cluster has no {job!r}")
    job, index = task.get("type"), int(task.get("index", -1))
    if not 0 <= index < len(cluster.get(job, ())):
        raise ValueError(f"TF_CONFIG: the cluster has no task {job} {index}")
    return Task(cluster, job, index)


def free_ports(count: int) -> list[int]:
    """Ports of this machine that nobody listens on."""
    ports: list[int] = []
    for port in random.SystemRandom().sample(_PORTS, len(_PORTS)):
        with socket.socket() as found:
            try:
                found.bind(("", port))
            except OSError:
                continue
        ports.append(port)
        if len(ports) == count:
            break
    return ports
