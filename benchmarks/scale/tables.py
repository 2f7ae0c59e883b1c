"""Prints the tables of docs/internals/scale.md."""

import math
from collections.abc import Iterable, Sequence
from typing import Any

from benchmarks.scale import simulation as scale

_BUDGET_SERVERS = 16
_HELD = {
    "distinct": "unique ids",
    "megabytes": "MB on the wire",
    "worker_ms": "ms of the worker's CPU",
    "servers_ms": "ms of all servers' CPUs",
    "step_ms": "ms until the next step",
}


def _table(head: Sequence[str], rows: Iterable[Sequence[Any]]) -> list[str]:
    lines = [head, ["---"] * len(head), *rows]
    return ["| " + " | ".join(map(str, line)) + " |" for line in lines]


def _digits(value: float, digits: int = 2) -> str:
    """Formats a number with so many significant digits, commas and zeros."""
    rounded = float(f"{value:.{digits - 1}e}")
    return f"{rounded:,.0f}" if abs(rounded) >= 100 else f"{rounded:g}"


def figures_table(figures: scale.Figures) -> list[str]:
    """Lists the measured figures."""
    return _table(
        ("what", "measured", "name"),
        [
            (what, f"{_digits(getattr(figures, name), 3)} {unit}", f"`{name}`")
            for what, unit, name in (
                ("memory of a row of 32 with a slot", "bytes", "row_bytes"),
                ("server: lookup of an id", "ns", "lookup_ns"),
                (
                    "server: lookup, gradient and update of an id, with their bytes",
                    "ns",
                    "id_ns",
                ),
                ("server: calls of a step", "µs", "server_call_us"),
                ("worker: fixed part of a step", "µs", "worker_us"),
                ("worker: each id of its batch", "ns", "worker_id_ns"),
                ("worker: each server that it calls", "µs", "worker_call_us"),
                ("program: scheduling once", "µs", "program_us"),
                (
                    "fixed bytes of a step",
                    "bytes",
                    "step_bytes",
                ),
                ("additional bytes per server", "bytes", "call_bytes"),
                ("round trip of a call without ids", "µs", "call_us"),
                ("calls slower than 3 x that", "", "slow_share"),
                ("their mean delay", "ms", "slow_ms"),
            )
        ],
    )


def budget_table(figures: scale.Figures) -> list[str]:
    """Lists the requirements of 10^10 rows, and their computation."""
    load = scale.Load()
    p = scale.predict(_BUDGET_SERVERS, figures, load)
    rows = load.rows * figures.row_bytes
    ids = p.distinct * figures.id_bytes
    calls = p.servers * figures.call_bytes
    return _table(
        (f"10^10 rows, {_BUDGET_SERVERS} servers", "", "how"),
        [
            (
                "memory",
                f"{_digits(rows / 1e12, 3)} TB",
                f"10^10 x {figures.row_bytes:g}",
            ),
            (
                f"servers with {load.server_bytes / 1e9:g} GB for rows",
                math.ceil(rows / load.server_bytes),
                "the minimum",
            ),
            (
                "unique ids of a batch",
                _digits(p.distinct, 3),
                f"of {load.ids:,} ids of zipf({load.exponent}) over 10^10",
            ),
            (
                "network per step of a worker",
                f"{_digits(p.bytes / 1e6, 3)} MB",
                f"{_digits(ids / 1e6, 3)} of ids, rows and gradients, 2 x "
                f"{figures.lookup_bytes} each; {_digits(calls / 1e6, 2)} of "
                f"calls, {_digits(figures.step_bytes / 1e6, 1)} of dense weights",
            ),
            (
                "lookups per second of a server's core",
                f"{_digits(1e3 / figures.lookup_ns, 3)} M",
                "10^9 / `lookup_ns`",
            ),
            (
                "lookups and updates per second of a core",
                f"{_digits(1e3 / figures.id_ns, 3)} M",
                "10^9 / `id_ns`",
            ),
            (
                "lookups per second of all servers",
                f"{_digits(p.lookups_per_second / 1e9, 3)} x 10^9",
                f"{p.servers} x {load.server_cores} cores, limited by the "
                "busiest",
            ),
            (
                "steps per second of all workers",
                _digits(load.workers * 1e3 / p.step_ms, 3),
                f"{load.workers} workers, {_digits(p.step_ms, 3)} ms each",
            ),
        ],
    )


def held_table(
    pairs: Sequence[dict[str, Any]], lines: Sequence[dict[str, Any]]
) -> list[str]:
    """Compares predictions with measured steps."""
    (alone,) = (x["seconds"] * 1e3 for x in lines if x.get("servers") == 0)
    head = [f"{pair['servers']} servers" for pair in pairs]
    head[0] = head[0].replace("1 servers", "1 server")
    rows = []
    for name, what in _HELD.items():
        values = [
            f"{_digits(p[name]['predicted'], 3)} / "
            f"{_digits(p[name]['measured'], 3)}"
            for p in pairs
        ]
        rows.append([what, *values])
    rows.append(
        [
            f"measured, relative to a step in one process ({_digits(alone)} ms)",
            *(_digits(p["step_ms"]["measured"] / alone) for p in pairs),
        ]
    )
    return _table(["predicted / measured", *head], rows)


def busy_table(predictions: Sequence[scale.Prediction]) -> list[str]:
    """Lists the utilization of each resource, and which limits first."""
    names = list(predictions[0].busy)
    return _table(
        ["servers", "first", *names, "ms per step"],
        [
            (
                f"{p.servers:,}",
                p.first,
                *(_digits(p.busy[name]) for name in names),
                _digits(p.step_ms),
            )
            for p in predictions
        ],
    )


def spread_table(predictions: Sequence[scale.Prediction]) -> list[str]:
    """Lists how a batch is distributed over servers."""
    return _table(
        (
            "servers",
            "servers with an id of a batch",
            "busiest over mean, unique ids",
            "without deduplication",
            "delay of the last reply, ms",
            "99th percentile",
            "lookups per second, 10^9",
        ),
        [
            (
                f"{p.servers:,}",
                _digits(p.fan_out, 4),
                _digits(p.skew, 3),
                _digits(p.skew_of_all),
                _digits(p.late_ms),
                _digits(p.late_p99_ms),
                _digits(p.lookups_per_second / 1e9),
            )
            for p in predictions
        ],
    )


def tables() -> list[list[str]]:
    """Returns all tables of the page in order."""
    lines = scale.read_lines()
    figures = scale.fitted(lines)
    predictions = [scale.predict(n, figures) for n in scale.SERVERS]
    return [
        figures_table(figures),
        budget_table(figures),
        held_table(scale.held_against(lines, figures), lines),
        busy_table(predictions),
        spread_table(predictions),
    ]


if __name__ == "__main__":
    print("\n\n".join(map("\n".join, tables())))
