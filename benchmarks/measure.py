"""Times two ways of doing one thing, in turn, and prints their ratio as JSON."""

import argparse
import functools
import itertools
import json
import statistics
import time
from collections.abc import Callable, Sequence

import numpy as np


def arguments(
    description: str, works: Sequence[str] = (), **options: str
) -> argparse.Namespace:
    """Parses what every benchmark takes: --runs, --small and some of `works`.

    Args:
        description: The program's.
        works: Names that may be given; without one, all are.
        **options: Further options that take a string, and the help of each.

    Returns:
        The values, with one of each option (None without).
    """
    parser = argparse.ArgumentParser(description=description)
    for option, meaning in options.items():
        parser.add_argument(option, help=meaning)
    if works:
        names = ", ".join(works)
        parser.add_argument(
            "works", nargs="*", help=f"some of {names}; all if none is named"
        )
    parser.add_argument(
        "--runs",
        type=int,
        default=9,
        help="timed runs of each side (7 or more)",
    )
    parser.add_argument(
        "--small", action="store_true", help="small sizes, to see that it runs"
    )
    parsed = parser.parse_args()
    if parsed.runs < 7:
        parser.error(f"--runs is {parsed.runs}, wanted 7 or more")
    if works:
        parsed.works = parsed.works or list(works)
        for unknown in {*parsed.works} - {*works}:
            parser.error(f"{unknown!r} is none of {names}")
    return parsed


def checksum(x) -> str:
    """Returns 16 hex digits that depend on every number of an array."""
    x = np.ascontiguousarray(x)
    words = np.frombuffer(
        x.tobytes().ljust(-(-x.nbytes // 8) * 8, b"\0"), np.uint64
    )
    odd = np.arange(1, 2 * len(words), 2, dtype=np.uint64)
    return f"{int((words * odd).sum(dtype=np.uint64)):016x}"


def print_line(**fields) -> None:
    """Prints one line of JSON at once."""
    print(json.dumps(fields), flush=True)


def seconds_of(call: Callable) -> float:
    """Returns how long a call without arguments took."""
    begin = time.perf_counter()
    call()
    return time.perf_counter() - begin


def call_seconds(function: Callable, feeds: Sequence) -> list[float]:
    """Returns how long each call of `function` with one of `feeds` took."""
    return [seconds_of(functools.partial(function, feed)) for feed in feeds]


def compare(
    work: str,
    ours: Callable,
    baseline: Callable,
    feeds: Sequence,
    *,
    against: str,
    items: int,
    wanted: float | str,
    runs: int = 9,
    baseline_feeds: Sequence | None = None,
    same_result: bool = True,
) -> None:
    """Prints one JSON line: medians, their ratio, a checksum of the result.

    `p99` is the 99th percentile of our calls' times over their median run.

    A run calls one side once for each feed. The sides take turns, so a machine
    that changes its speed changes both.

    Args:
        work: What is done.
        ours: Called with a feed; returns an array or tensor.
        baseline: The same by other means.
        feeds: Batches, each used once a run.
        against: What the baseline is.
        items: Keys or ids in a feed.
        wanted: The ratio to reach, baseline time over ours; or what else is
            wanted, in words.
        runs: Timed runs of each side, after one that is not timed.
        baseline_feeds: The same batches as the baseline takes them.
        same_result: Whether both sides must return the same numbers.
    """
    sides = [(ours, feeds), (baseline, baseline_feeds or feeds)]
    sums = [checksum(np.asarray(side(feed[0]))) for side, feed in sides]
    if same_result and sums[0] != sums[1]:
        raise AssertionError(f"{work}: {against} gives another result")
    times = ([], [])
    calls = []
    for run, side in itertools.product(range(runs + 1), (0, 1)):
        seconds = call_seconds(*sides[side])
        if run:
            times[side].append(statistics.mean(seconds))
            calls += seconds if side == 0 else []
    medians = [statistics.median(side) for side in times]
    print_line(
        work=work,
        baseline=against,
        ratio=round(medians[1] / medians[0], 2),
        wanted=wanted,
        ns_per_item=round(medians[0] / items * 1e9, 1),
        baseline_ns_per_item=round(medians[1] / items * 1e9, 1),
        p99=round(float(np.quantile(calls, 0.99) / medians[0]), 1),
        runs=runs,
        checksum=sums[0],
    )
