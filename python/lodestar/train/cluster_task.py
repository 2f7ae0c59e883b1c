"""Which task of which cluster a process is: TF_CONFIG, or flags."""

import json
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

# What has a server. The chief is the program that trains.
_JOBS = ("ps", "worker")


class ClusterTask(NamedTuple):
    """A server's place in a cluster.

    Attributes:
        cluster: Job -> addresses of its tasks, `host:port`.
        job: "ps" or "worker".
        index: Of the task in its job.
    """

    cluster: dict[str, list[str]]
    job: str
    index: int  # type: ignore[assignment]

    @property
    def name(self) -> str:
        """Job and index, as messages have them."""
        return f"{self.job} {self.index}"

    @property
    def address(self) -> str:
        """Where others find it."""
        return self.cluster[self.job][self.index]

    @property
    def port(self) -> int:
        """Where it listens, on all addresses of its host."""
        return int(self.address.rpartition(":")[2])


def read_task(
    environment: Mapping[str, str],
    cluster: str | None = None,
    job: str | None = None,
    index: int | None = None,
) -> ClusterTask:
    """Reads TF_CONFIG, and what is given instead of its parts.

    Args:
        environment: Where TF_CONFIG is, if there is one.
        cluster: JSON, as `cluster` of TF_CONFIG: a list of addresses a job.
        job: In place of the task's type.
        index: In place of the task's index.

    Raises:
        ValueError: Something is missing or malformed, or no task of the
            cluster.
    """
    config: Mapping[str, Any] = {}
    if environment.get("TF_CONFIG"):
        config = _object("TF_CONFIG", environment["TF_CONFIG"])
    elif cluster is None:
        raise ValueError(
            "which cluster? Set TF_CONFIG, or give --cluster, --job and --task"
        )
    where = "TF_CONFIG"
    jobs = config.get("cluster")
    if cluster is not None:
        where, jobs = "--cluster", _object("--cluster", cluster)
    read = _cluster(where, jobs)
    task = config.get("task", {})
    if not isinstance(task, dict):
        raise ValueError(
            f"TF_CONFIG: `task` is {json.dumps(task)}, wanted an object of "
            "`type` and `index`"
        )
    job = task.get("type") if job is None else job
    index = task.get("index") if index is None else index
    if job is None or index is None:
        raise ValueError(
            "which task? TF_CONFIG has no `task` of `type` and `index`; give "
            "--job and --task"
        )
    if job not in _JOBS:
        raise ValueError(
            f"the job {job!r} has no server: those of {' and '.join(_JOBS)} "
            "have, the chief is the program that trains"
        )
    if job not in read:
        raise ValueError(
            f"{where}: the cluster has no job {job!r}, it has "
            f"{', '.join(sorted(read))}"
        )
    # Some schedulers write it as text.
    number = int(index) if str(index).isdecimal() else -1
    if not 0 <= number < len(read[job]):
        raise ValueError(
            f"there is no {job} {index}: the cluster has {len(read[job])} of "
            "them, from 0"
        )
    return ClusterTask(read, job, number)


def _object(name: str, text: str) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except ValueError as error:
        raise ValueError(f"{name} is no JSON: {error}") from None
    if not isinstance(value, dict):
        raise ValueError(f"{name} is {text}, wanted a JSON object")
    return value


def _cluster(where: str, jobs: Any) -> dict[str, list[str]]:
    if not isinstance(jobs, dict) or not jobs:
        raise ValueError(
            f"{where}: the cluster is {json.dumps(jobs)}, wanted "
            '{"ps": ["HOST:PORT", ...], "worker": ["HOST:PORT", ...]}'
        )
    for job, tasks in jobs.items():
        if not isinstance(tasks, Sequence) or isinstance(tasks, str):
            raise ValueError(
                f"{where}: {job} is {json.dumps(tasks)}, wanted a list of "
                "HOST:PORT"
            )
        for address in tasks:
            host, _, port = str(address).rpartition(":")
            if not (host and port.isdecimal() and 0 < int(port) < 65536):
                raise ValueError(
                    f"{where}: {job} has the address {json.dumps(address)}, "
                    "wanted HOST:PORT"
                )
    return {job: list(tasks) for job, tasks in jobs.items()}
