"""Predicts the cost of a table on many servers from measurements of a few.

Simulates workers that each look up a batch of ids of Zipf's law and send
gradients back: how unique ids are partitioned, how many servers a step calls,
how much more than the mean the busiest server does, and how long a step waits
for the slowest. The costs were measured by `server_benchmark.py calibrate`,
which wrote them to figures.jsonl. The simulation is seeded, so `scale.tables`
prints the same again.
"""

import dataclasses
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from lodestar.ops import id_hash

FIGURES = Path(__file__).with_name("figures.jsonl")
SERVERS = (8, 16, 64, 256, 1024)
_HEAD = 1 << 20  # ranks whose frequencies are summed one by one
# The figures are fitted to measured batches of fewer ids; larger batches are
# predicted.
_PREDICTED_IDS = 65_536
_MEASURED_ROWS, _MEASURED_EXPONENT = 10**6, 1.05
# Steps in flight per worker in the measurements.
_MEASURED_AT_ONCE = 8
# Replies that a step waits for one after another: rows, "staged", "committed".
_ROUNDS = 3
# Number of simulated rounds; slow calls are rare.
_LATE_ROUNDS = 5000


@dataclasses.dataclass(frozen=True)
class Figures:
    """Measurements on one machine, for rows of `dim` float32 values.

    CPU time is of one core; `server_call_us` covers one step.

    Attributes:
        dim: Embedding dimension.
        row_bytes: Memory of a row with an optimizer slot, index and metadata.
        lookup_ns: CPU time of a server for looking up one unique id.
        id_ns: CPU time of a server for the lookup, gradient and update of a
            unique id.
        server_call_us: CPU time of a server for the calls of a step, without
            the time per id.
        worker_us: Fixed CPU time of a worker per step.
        worker_call_us: Additional CPU time of the worker per server.
        worker_id_ns: Additional CPU time of the worker per id of the batch,
            duplicates included.
        program_us: CPU time of the scheduling program, per scheduled unit of
            work.
        step_bytes: Fixed bytes per step on the wire, for dense weights.
        call_bytes: Additional bytes per server.
        call_us: Time from a call without ids to its reply.
        slow_share: Fraction of calls that take more than three times as long.
        slow_ms: Mean additional time of these calls.
    """

    dim: int
    row_bytes: float
    lookup_ns: float
    id_ns: float
    server_call_us: float
    worker_us: float
    worker_call_us: float
    worker_id_ns: float
    program_us: float
    step_bytes: float
    call_bytes: float
    call_us: float
    slow_share: float
    slow_ms: float

    @property
    def lookup_bytes(self) -> int:
        """Bytes on the wire for an id and its row."""
        return 8 + 4 * self.dim

    @property
    def id_bytes(self) -> int:
        """Bytes on the wire for an id, its row, the id again and its gradient."""
        return 2 * self.lookup_bytes


def read_lines(path: Path = FIGURES) -> list[dict[str, Any]]:
    """Returns the output of `server_benchmark.py calibrate`."""
    return [json.loads(line) for line in path.read_text().splitlines()]


def fitted(lines: Sequence[Mapping[str, Any]]) -> Figures:
    """Fits figures by least squares to the smaller batches on 1 and 2 servers."""
    of_kind = {line["kind"]: line for line in lines}
    calls, lookup = of_kind["calls"], of_kind["lookup"]
    steps = [
        line
        for line in lines
        if line["kind"] == "step"
        and line["servers"]
        and line["ids"] < _PREDICTED_IDS
    ]

    def column(name: str) -> np.ndarray:
        return np.array([float(step[name]) for step in steps])

    def fit(values: np.ndarray, *columns: np.ndarray) -> list[float]:
        factors, *_ = np.linalg.lstsq(np.stack(columns, 1), values, rcond=None)
        return factors.tolist()

    servers, ids, distinct = map(column, ("servers", "ids", "distinct"))
    ones = np.ones(len(steps))
    dim = of_kind["row"]["dim"]
    id_bytes = 2 * (8 + 4 * dim)
    worker = fit(column("worker_cpu"), ones, servers, ids)
    server = fit(column("ps_cpu"), servers, distinct)
    step_bytes, call_bytes = fit(
        column("bytes") - id_bytes * distinct, ones, servers
    )
    program = column("program_cpu").mean() * _MEASURED_AT_ONCE
    lookup_cpu = lookup["ps_cpu"] - calls["ps_cpu"]
    figures = {
        "row_bytes": of_kind["row"]["row_bytes"],
        "lookup_ns": lookup_cpu * 1e9 / lookup["distinct"],
        "id_ns": server[1] * 1e9,
        "server_call_us": server[0] * 1e6,
        "worker_us": worker[0] * 1e6,
        "worker_call_us": worker[1] * 1e6,
        "worker_id_ns": worker[2] * 1e9,
        "program_us": program * 1e6,
        "step_bytes": step_bytes,
        "call_bytes": call_bytes,
        "call_us": calls["usual_us"],
        "slow_share": calls["slow_share"],
        "slow_ms": calls["slow_ms"],
    }
    return Figures(
        dim=dim, **{k: float(f"{v:.4g}") for k, v in figures.items()}
    )


@dataclasses.dataclass(frozen=True)
class Load:
    """The workload, and the machines.

    Attributes:
        rows: Number of rows in the table.
        exponent: Exponent of Zipf's law: rank k has frequency k ** -exponent.
        ids: Number of ids in a batch, duplicates included.
        workers: Number of workers; each trains one batch at a time on one core.
        at_once: Number of steps that a worker is given at a time.
        server_cores: Number of cores of a server.
        server_bytes: Memory of a server that rows may use.
        link_bytes: Bytes per second of a machine's network in each direction.
        round_trip_us: Round-trip time of the network, without CPU time.
        shared_cores: Number of cores of one machine that runs all servers; 0
            if each server has its own machine.
    """

    rows: int = 10**10
    exponent: float = _MEASURED_EXPONENT
    ids: int = _PREDICTED_IDS
    workers: int = 64
    at_once: int = 64
    server_cores: int = 16
    server_bytes: float = 256e9
    link_bytes: float = 1.25e9
    round_trip_us: float = 100.0
    shared_cores: int = 0


@dataclasses.dataclass(frozen=True)
class Prediction:
    """The cost of one worker's step, as means over the simulated steps.

    Attributes:
        servers: Number of servers that hold the table.
        distinct: Number of unique ids of a batch, which are sent.
        bytes: Bytes on the wire, in both directions.
        fan_out: Number of servers that have an id of the batch.
        skew: Unique ids of the busiest server over the mean, per step.
        skew_of_all: The same without deduplication.
        skew_of_load: The same as `skew` over all steps: a permanent imbalance.
        late_ms: Delay of the last reply of all servers, relative to a usual
            one.
        late_p99_ms: The 99th percentile of that delay.
        worker_cpu_ms: CPU time of the worker.
        servers_cpu_ms: CPU time of all servers together.
        step_ms: Time until the worker's next step begins.
        busy: Utilization of each resource by name; above 1 it limits the
            steps.
        first: Name of the resource with the highest utilization.
        lookups_per_second: Maximum number of unique ids that all servers look
            up per second, as the busiest one allows.
    """

    servers: int
    distinct: float
    bytes: float
    fan_out: float
    skew: float
    skew_of_all: float
    skew_of_load: float
    late_ms: float
    late_p99_ms: float
    worker_cpu_ms: float
    servers_cpu_ms: float
    step_ms: float
    busy: dict[str, float]
    first: str
    lookups_per_second: float


class Zipf:
    """Zipf's law: rank k of 1 to `rows` has frequency k ** -exponent.

    The first million ranks are drawn exactly. The others differ little from
    their neighbors, and are drawn from the continuous density of the law.

    Raises:
        ValueError: `rows` or `exponent` is not above 0.
    """

    def __init__(self, rows: int, exponent: float):
        if rows < 1 or exponent <= 0:
            raise ValueError(
                "`rows` and `exponent` must be above 0, got "
                f"{rows} and {exponent}."
            )
        head = min(rows, _HEAD)
        self._cumulated = np.cumsum(np.arange(1.0, head + 1) ** -exponent)
        self._exponent = exponent
        # The interval of rank k is from k - 0.5 to k + 0.5.
        self._first, self._last = head + 0.5, rows + 0.5
        self._tail = self._integral(self._last) - self._integral(self._first)

    def draw(self, rng: np.random.Generator, size: int) -> np.ndarray:
        """Returns int64 ranks `[size]`."""
        head = self._cumulated[-1]
        u = rng.random(size) * (head + self._tail)
        places = np.searchsorted(self._cumulated, u, side="right") + 1
        behind = u >= head
        x = self._inverse(self._integral(self._first) + (u[behind] - head))
        places[behind] = np.clip(
            np.rint(x), np.ceil(self._first), np.floor(self._last)
        )
        return places.astype(np.int64)

    def _integral(self, x: float) -> float:
        power = 1.0 - self._exponent
        return np.log(x) if power == 0 else x**power / power

    def _inverse(self, y: np.ndarray) -> np.ndarray:
        power = 1.0 - self._exponent
        return np.exp(y) if power == 0 else (y * power) ** (1.0 / power)


def predict(
    servers: int,
    figures: Figures,
    load: Load | None = None,
    *,
    steps: int = 100,
    seed: int = 0,
) -> Prediction:
    """Simulates `steps` steps of a worker over a table on `servers` servers.

    Args:
        servers: Number of servers, at least 1.
        figures: The measured figures.
        load: The workload; defaults to `Load()`.
        steps: Number of simulated steps.
        seed: Seed of the batches and of slow calls.

    Raises:
        ValueError: `servers` or `steps` is below 1.
    """
    if servers < 1 or steps < 1:
        raise ValueError(
            f"`servers` and `steps` must be at least 1, got {servers} and {steps}."
        )
    load = load or Load()
    rng = np.random.default_rng(seed)
    zipf = Zipf(load.rows, load.exponent)
    counts = np.zeros((steps, servers))  # of unique ids
    all_counts = np.zeros((steps, servers))
    for step in range(steps):
        ids, occurrences = np.unique(
            zipf.draw(rng, load.ids), return_counts=True
        )
        part = id_hash.part_of_id(ids, servers)
        counts[step] = np.bincount(part, minlength=servers)
        all_counts[step] = np.bincount(part, occurrences, servers)
    distinct = counts.sum(axis=1).mean()
    step_bytes = (
        figures.step_bytes
        + servers * figures.call_bytes
        + distinct * figures.id_bytes
    )
    worker = (
        figures.worker_us / 1e6
        + servers * figures.worker_call_us / 1e6
        + load.ids * figures.worker_id_ns / 1e9
    )
    # Each server's time in a step, on one of its cores.
    served = figures.server_call_us / 1e6 + counts * figures.id_ns / 1e9
    longest = served.max(axis=1).mean()
    if load.shared_cores:
        longest = max(longest, served.sum(axis=1).mean() / load.shared_cores)
    # Every server is called, even if it has no id of the batch.
    late = _latest(rng, figures, (_LATE_ROUNDS, servers))
    waiting = _ROUNDS * (load.round_trip_us / 1e6 + late.mean())
    # Ids and gradients are sent, and as many rows are received: half each way.
    wire = step_bytes / 2 / load.link_bytes
    seconds = worker + longest + waiting + wire
    means = counts.mean(axis=0)
    skew_of_load = means.max() / means.mean()
    # The rates of the busiest server and of the scheduling program.
    steps_a_second = load.workers / seconds
    busiest = figures.server_call_us / 1e6 + means.max() * figures.id_ns / 1e9
    busy = {
        "memory": load.rows * figures.row_bytes / servers / load.server_bytes,
        "server processors": steps_a_second * busiest / load.server_cores,
        "server network": steps_a_second
        * step_bytes
        / 2
        / servers
        * skew_of_load
        / load.link_bytes,
        "worker network": wire / seconds,
        "worker calls": servers * figures.worker_call_us / 1e6 / seconds,
        "program": steps_a_second * figures.program_us / 1e6 / load.at_once,
    }
    lookups = servers * load.server_cores / skew_of_load
    return Prediction(
        servers=servers,
        distinct=float(distinct),
        bytes=float(step_bytes),
        fan_out=float((counts > 0).sum(axis=1).mean()),
        skew=_skew(counts),
        skew_of_all=_skew(all_counts),
        skew_of_load=float(skew_of_load),
        late_ms=float(late.mean() * 1e3),
        late_p99_ms=float(np.percentile(late, 99) * 1e3),
        worker_cpu_ms=float(worker * 1e3),
        servers_cpu_ms=float(served.sum(axis=1).mean() * 1e3),
        step_ms=float(seconds * 1e3),
        busy={name: float(share) for name, share in busy.items()},
        first=max(busy, key=busy.__getitem__),
        lookups_per_second=float(lookups * 1e9 / figures.lookup_ns),
    )


def _skew(counts: np.ndarray) -> float:
    """Returns the busiest server over the mean, averaged over `[steps, servers]`."""
    return float((counts.max(axis=1) / counts.mean(axis=1)).mean())


def _latest(
    rng: np.random.Generator, figures: Figures, shape: tuple[int, int]
) -> np.ndarray:
    """Returns the delay in seconds of the last of all calls `[steps, servers]`."""
    slow = rng.random(shape) < figures.slow_share
    late = rng.exponential(figures.slow_ms / 1e3, shape)
    return (slow * late).max(axis=1)


def held_against(
    lines: Sequence[Mapping[str, Any]], figures: Figures
) -> list[dict[str, Any]]:
    """Predicts the measured steps to which no figure is fitted."""
    machine = next(line for line in lines if line["kind"] == "machine")
    found = []
    for line in lines:
        if line["kind"] != "step" or not line["servers"]:
            continue
        if line["ids"] < _PREDICTED_IDS:
            continue
        load = Load(
            rows=_MEASURED_ROWS,
            ids=line["ids"],
            workers=1,
            # On loopback, copying and waiting are CPU time.
            link_bytes=float("inf"),
            round_trip_us=0.0,
            shared_cores=machine["cores"],
        )
        p = predict(line["servers"], figures, load)
        pairs = {
            "distinct": (p.distinct, line["distinct"]),
            "megabytes": (p.bytes / 1e6, line["bytes"] / 1e6),
            "worker_ms": (p.worker_cpu_ms, line["worker_cpu"] * 1e3),
            "servers_ms": (p.servers_cpu_ms, line["ps_cpu"] * 1e3),
            "step_ms": (p.step_ms, line["seconds"] * 1e3),
        }
        found.append(
            {
                "servers": line["servers"],
                **{
                    name: {
                        "predicted": float(f"{predicted:.4g}"),
                        "measured": float(f"{measured:.4g}"),
                    }
                    for name, (predicted, measured) in pairs.items()
                },
            }
        )
    return found
