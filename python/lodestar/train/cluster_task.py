"""Reads the cluster and task of a process from TF_CONFIG or flags."""

import json
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

# Jobs that run a server. The chief is the program that trains.
_JOBS = ("ps", "worker")


class ClusterTask(NamedTuple):
    """A server's task in a cluster, whose jobs map to addresses `host:port`."""

    cluster: dict[str, list[str]]
    job: str
    index: int  # type: ignore[assignment]

    @property
    def name(self) -> str:
        """Job and index for messages."""
        return f"{self.job} {self.index}"

    @property
    def address(self) -> str:
        """The address for other tasks."""
        return self.cluster[self.job][self.index]

    @property
    def port(self) -> int:
        """The port to listen on, on all addresses of the host."""
        return int(self.address.rpartition(":")[2])


def read_task(
    environment: Mapping[str, str],
    cluster: str | None = None,
    job: str | None = None,
    index: int | None = None,
) -> ClusterTask:
    """Reads TF_CONFIG; the arguments override its parts.

    `cluster` is JSON, as `cluster` of TF_CONFIG: a list of addresses per job.
    """
    config: Mapping[str, Any] = {}
    if environment.get("TF_CONFIG"):
        config = _object("TF_CONFIG", environment["TF_CONFIG"])
    elif cluster is None:
        raise ValueError(
            "The cluster is unknown. Set TF_CONFIG, or pass --cluster, --job and "
            "--task."
        )
    where = "TF_CONFIG"
    jobs = config.get("cluster")
    if cluster is not None:
        where, jobs = "--cluster", _object("--cluster", cluster)
    read = _cluster(where, jobs)
    task = config.get("task", {})
    if not isinstance(task, dict):
        raise ValueError(
            "TF_CONFIG: `task` must be an object with `type` and `index`, got "
            f"{json.dumps(task)}."
        )
    job = task.get("type") if job is None else job
    index = task.get("index") if index is None else index
    if job is None or index is None:
        raise ValueError(
            "The task is unknown: TF_CONFIG has no `task` with `type` and `index`. "
            "Pass --job and --task."
        )
    if job not in _JOBS:
        raise ValueError(
            f"The job must be one of {_JOBS}, which have servers, got {job!r}. The "
            "chief is the program that trains."
        )
    if job not in read:
        raise ValueError(
            f"{where}: the cluster has no job {job!r}, only "
            f"{', '.join(sorted(read))}."
        )
    # Some schedulers write the index as a string.
    number = int(index) if str(index).isdecimal() else -1
    if not 0 <= number < len(read[job]):
        raise ValueError(
            f"The index of a {job} must be less than {len(read[job])}, the number "
            f"of these tasks, got {index}."
        )
    return ClusterTask(read, job, number)


def _object(name: str, text: str) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except ValueError as error:
        raise ValueError(f"{name} is not JSON: {error}") from None
    if not isinstance(value, dict):
        raise ValueError(f"{name} must be a JSON object, got {text}.")
    return value


def _cluster(where: str, jobs: Any) -> dict[str, list[str]]:
    if not isinstance(jobs, dict) or not jobs:
        raise ValueError(
            f'{where}: the cluster must be {{"ps": ["HOST:PORT", ...], "worker": '
            f'["HOST:PORT", ...]}}, got {json.dumps(jobs)}.'
        )
    for job, tasks in jobs.items():
        if not isinstance(tasks, Sequence) or isinstance(tasks, str):
            raise ValueError(
                f"{where}: {job} must be a list of HOST:PORT, got "
                f"{json.dumps(tasks)}."
            )
        for address in tasks:
            host, _, port = str(address).rpartition(":")
            if not (host and port.isdecimal() and 0 < int(port) < 65536):
                raise ValueError(
                    f"{where}: addresses of {job} must be HOST:PORT, got "
                    f"{json.dumps(address)}."
                )
    return {job: list(tasks) for job, tasks in jobs.items()}
