"""Times two implementations in turn, and prints their ratio as JSON."""

import argparse
import functools
import itertools
import json
import resource
import statistics
import time
from collections.abc import Callable, Sequence

import numpy as np


def arguments(
    description: str, works: Sequence[str] = (), **options: str
) -> argparse.Namespace:
    """Parses the options of every benchmark: --runs, --small and `works`.

    Args:
        description: Description of the program.
        works: Names that can be given; if none is given, all are run.
        **options: Further string options, with the help of each.

    Returns:
        The parsed values; each further option is None if it is not given.
    """
    parser = argparse.ArgumentParser(description=description)
    for option, meaning in options.items():
        parser.add_argument(option, help=meaning)
    if works:
        names = ", ".join(works)
        parser.add_argument(
            "works", nargs="*", help=f"any of {names}; default: all"
        )
    parser.add_argument(
        "--runs",
        type=int,
        default=9,
        help="timed runs of each side (7 or more)",
    )
    parser.add_argument(
        "--small", action="store_true", help="small sizes, to check the program"
    )
    parsed = parser.parse_args()
    if parsed.runs < 7:
        parser.error(f"--runs must be at least 7, got {parsed.runs}")
    if works:
        parsed.works = parsed.works or list(works)
        for unknown in {*parsed.works} - {*works}:
            parser.error(f"{unknown!r} must be one of {names}")
    return parsed


def checksum(x) -> str:
    """Returns 16 hex digits that depend on every element of an array."""
    x = np.ascontiguousarray(x)
    words = np.frombuffer(
        x.tobytes().ljust(-(-x.nbytes // 8) * 8, b"\0"), np.uint64
    )
    odd = np.arange(1, 2 * len(words), 2, dtype=np.uint64)
    return f"{int((words * odd).sum(dtype=np.uint64)):016x}"


def print_line(**fields) -> None:
    """Prints one line of JSON and flushes it."""
    print(json.dumps(fields), flush=True)


def seconds_of(call: Callable) -> float:
    """Returns the duration of a call without arguments."""
    begin = time.perf_counter()
    call()
    return time.perf_counter() - begin


def page_faults() -> int:
    """Returns the number of page faults of this process without reads of files."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt


def call_seconds(function: Callable, feeds: Sequence) -> list[float]:
    """Returns the duration of each call of `function` with one of `feeds`."""
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
    `page_faults` is their mean number of pages that the system had to provide.

    A run calls one side once for each feed. The sides take turns, so a machine
    that changes its speed changes both.

    Args:
        work: Name of the comparison.
        ours: Called with a feed; returns an array or tensor.
        baseline: Another implementation of the same function.
        feeds: Batches, each used once per run.
        against: Name of the baseline.
        items: Keys or ids in a feed.
        wanted: The required ratio, baseline time over ours; or another
            requirement as a string.
        runs: Timed runs of each side, after one untimed run.
        baseline_feeds: The same batches in the form that the baseline takes.
        same_result: Whether both sides must return equal values.
    """
    sides = [(ours, feeds), (baseline, baseline_feeds or feeds)]
    sums = [checksum(np.asarray(side(feed[0]))) for side, feed in sides]
    if same_result and sums[0] != sums[1]:
        raise AssertionError(f"{work}: the result differs from {against}.")
    times = ([], [])
    faults = [0, 0]
    calls = []
    for run, side in itertools.product(range(runs + 1), (0, 1)):
        before = page_faults()
        seconds = call_seconds(*sides[side])
        if run:
            faults[side] += page_faults() - before
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
        page_faults=round(faults[0] / runs / len(feeds), 1),
        baseline_page_faults=round(faults[1] / runs / len(feeds), 1),
        runs=runs,
        checksum=sums[0],
    )
