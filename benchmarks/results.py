"""Trains one model with several libraries: quality and cost side by side.

    python -m benchmarks.report run results --tfra-python P --torch-python P
    python -m benchmarks.report draw

Adult, MovieLens-100k and a generated click stream, described in
`benchmarks.peers.results_data`. The libraries are Lodestar, Keras's Embedding,
TFRA, FBGEMM and PyTorch's EmbeddingBag; peers_benchmark describes the
interpreters, which also need pyarrow. Each training runs in a separate process.
The libraries take turns, and figures are medians. Only the fastest libraries
train on all rows of the stream, once. `report draw` writes the tables of
docs/results.md.
"""

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq

from benchmarks import measure, report
from benchmarks.peers import results_data
from benchmarks.peers.training import Task
from lodestar.metrics import BatchAUC

# For each library: its module in benchmarks/peers, and the option that names
# its interpreter, or None for this one.
LIBRARIES: dict[str, tuple[str, str | None]] = {
    "Lodestar": ("train_lodestar", None),
    "Keras": ("train_keras", None),
    "TFRA": ("train_tfra", "--tfra-python"),
    "FBGEMM": ("train_torch", "--torch-python"),
    "PyTorch": ("train_torch", "--torch-python"),
}
_FASTEST = ("Lodestar", "FBGEMM", "PyTorch")
# A training that takes longer fails.
_LIMIT = 1800  # seconds


class TrainingError(RuntimeError):
    """A training failed."""


def _train(task: Task, library: str, python: str) -> dict[str, Any]:
    """Returns figures from one training in a separate process."""
    with tempfile.TemporaryDirectory() as folder:
        file, scores = Path(folder, "task.json"), Path(folder, "scores.npy")
        task.save(file)
        module = f"benchmarks.peers.{LIBRARIES[library][0]}"
        command = [python, "-m", module, str(file), str(scores)]
        path = [str(report.ROOT)]
        if python == sys.executable:
            path += filter(None, sys.path)
        environment = {
            **os.environ,
            "TF_CPP_MIN_LOG_LEVEL": "3",
            "PYTHONPATH": os.pathsep.join(path),
        }
        try:
            done = subprocess.run(
                [*command, str(time.time()), library],
                env=environment,
                capture_output=True,
                text=True,
                timeout=_LIMIT,
            )
        except subprocess.TimeoutExpired as error:
            raise TrainingError(
                f"{library} took longer than {_LIMIT} seconds on {task.name}."
            ) from error
        if done.returncode:
            raise TrainingError(
                f"{library} failed on {task.name} with status "
                f"{done.returncode}: {done.stderr[-2000:]}"
            )
        (figures,) = report.lines_of(library, done.stdout)
        labels = pq.read_table(task.test, columns=[task.label])[task.label]
        auc = BatchAUC(dtype="float64")
        found = np.load(scores).astype("float64")
        figures["auc"] = float(auc(labels.to_numpy().astype("float64"), found))
    return figures


def compare(
    task: Task, libraries: Iterable[str], pythons: Mapping[str, str], runs: int
) -> None:
    """Trains with each library in turn; prints a line with medians of each.

    Args:
        task: What to train.
        libraries: Names in LIBRARIES.
        pythons: The interpreter of each library.
        runs: Trainings of each library.
    """
    found: dict[str, list[dict[str, Any]]] = {name: [] for name in libraries}
    for _ in range(runs):
        for name, figures in found.items():
            figures.append(_train(task, name, pythons[name]))
    for name, figures in found.items():
        medians = {
            field: statistics.median(run[field] for run in figures)
            for field in figures[0]
            if field != "version"
        }
        measure.print_line(
            work=task.name,
            library=name,
            version=figures[0]["version"],
            train_rows=task.rows,
            test_rows=pq.read_metadata(task.test).num_rows,
            epochs=task.epochs,
            batch_size=task.batch_size,
            dim=task.dim,
            units=task.units,
            learning_rate=task.learning_rate,
            buckets=task.buckets,
            id_columns=len(task.ids),
            number_columns=len(task.numbers),
            best_auc=task.best_auc and round(task.best_auc, 4),
            **{field: float(f"{x:.4g}") for field, x in medians.items()},
            runs=runs,
        )


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    for option, library in report.PEERS.items():
        parser.add_argument(option, help=f"an interpreter with {library}")
    parser.add_argument(
        "--rows",
        type=int,
        default=10_000_000,
        help="rows of the stream for the fastest libraries (%(default)s)",
    )
    parser.add_argument(
        "--rows-of-all",
        type=int,
        default=500_000,
        help="rows of the stream for all libraries (%(default)s)",
    )
    parser.add_argument(
        "--runs", type=int, default=3, help="trainings of each library"
    )
    parser.add_argument(
        "--small",
        action="store_true",
        help="few rows of the stream, and one training on each data set",
    )
    options = parser.parse_args()
    if options.small:
        options.rows, options.rows_of_all, options.runs = 40_000, 20_000, 1
    return options


def main() -> None:
    """Prints one JSON line per data set and library."""
    options = _options()
    pythons = {}
    for name, (_, option) in LIBRARIES.items():
        python = sys.executable
        if option:
            python = getattr(options, option[2:].replace("-", "_"))
        if python:
            pythons[name] = python
        else:
            print(f"{name} is skipped without {option}.", file=sys.stderr)
    fastest = [name for name in _FASTEST if name in pythons]
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        for task in (
            results_data.adult(folder, options.small),
            results_data.ratings(folder, options.small),
            results_data.stream(folder, options.rows_of_all),
        ):
            compare(task, pythons, pythons, options.runs)
        whole = results_data.stream(folder, options.rows)
        compare(whole, fastest, pythons, 1)


if __name__ == "__main__":
    main()
