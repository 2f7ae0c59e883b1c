"""What the sides of results.py share: the task, its batches and its figures.

    python -m benchmarks.peers.train_NAME TASK.json SCORES.npy BEGAN LIBRARY

trains a model, writes the scores of the test file, and prints a JSON line of
figures. BEGAN is the time at which the process was started. The module needs
NumPy and pyarrow alone, as each side has its own interpreter.
"""

import dataclasses
import json
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks import measure

INITIAL_ACCUMULATOR = 0.1
EPSILON = 1e-7
# Rows are first drawn uniformly from plus or minus this, Keras's default.
ROW_SCALE = 0.05
_REQUESTS = 64  # different ones
_ROUNDS = 7


@dataclasses.dataclass(frozen=True)
class Task:
    """Files and a model.

    The model concatenates a row of `dim` floats per id column with the number
    columns, and applies dense layers of `units` with ReLU and one for the
    logit. Adagrad trains it on the files' rows in their order.

    Attributes:
        name: Name of the data set.
        ids: Names of columns with one id per row, an int64 or a string.
        numbers: Names of float32 columns.
        train: Path of a Parquet file.
        test: Path of another one, with the same columns.
        rows: Number of rows of `train`.
        buckets: Where a library needs indices, the number of hash buckets per
            id column; 0 for a vocabulary of the values in `train`.
        best_auc: The AUC of the true probabilities on `test`, if known.
        label: Name of the column with 0 and 1.
    """

    name: str
    ids: list[str]
    numbers: list[str]
    train: str
    test: str
    rows: int
    epochs: int
    batch_size: int
    dim: int
    units: list[int]
    learning_rate: float
    buckets: int = 0
    best_auc: float | None = None
    label: str = "label"

    def save(self, path: Path) -> None:
        """Writes a file for `load`."""
        path.write_text(json.dumps(dataclasses.asdict(self)))

    @classmethod
    def load(cls, path: str | Path) -> "Task":
        """Reads a file of `save`."""
        return cls(**json.loads(Path(path).read_text()))

    def first_weights(self) -> list[tuple[np.ndarray, np.ndarray]]:
        """Returns kernel and bias of each dense layer, equal for all sides."""
        rng = np.random.default_rng(1)
        size = len(self.ids) * self.dim + len(self.numbers)
        layers = []
        for units in (*self.units, 1):
            limit = np.sqrt(6 / (size + units))
            kernel = rng.uniform(-limit, limit, (size, units))
            layers.append((kernel.astype("float32"), np.zeros(units, "f")))
            size = units
        return layers

    def record_batches(self, path: str) -> Iterator[pa.RecordBatch]:
        """Yields the batches of a file, in its order."""
        columns = [*self.ids, *self.numbers, self.label]
        with pq.ParquetFile(path) as file:
            yield from file.iter_batches(self.batch_size, columns=columns)

    def arrays(
        self, path: str
    ) -> Iterator[tuple[dict[str, np.ndarray], np.ndarray]]:
        """Yields features and labels `[B, 1]`; numbers are in "numbers"."""
        for batch in self.record_batches(path):
            features = {
                name: batch[name].to_numpy(zero_copy_only=False)
                for name in self.ids
            }
            if self.numbers:
                features["numbers"] = self.numbers_of(batch)
            yield features, self.labels_of(batch)[:, None]

    def numbers_of(self, batch: pa.RecordBatch) -> np.ndarray:
        """Returns float32 `[B, len(numbers)]`."""
        return np.stack([batch[name].to_numpy() for name in self.numbers], 1)

    def labels_of(self, batch: pa.RecordBatch) -> np.ndarray:
        """Returns float32 `[B]`."""
        return batch[self.label].to_numpy().astype("float32")


class Clock:
    """Times a process from its start."""

    def __init__(self, began: float):
        self._began = began
        self._opened = time.perf_counter()
        self.first_step: float | None = None
        self.seconds = 0.0

    def open(self) -> None:
        """Notes that the files are about to be opened."""
        self._opened = time.perf_counter()

    def step(self) -> None:
        """Notes the end of a step."""
        if self.first_step is None:
            self.first_step = time.time() - self._began

    def trained(self) -> None:
        """Notes the end of the last step."""
        self.seconds = time.perf_counter() - self._opened


@dataclasses.dataclass
class Trained:
    """A trained and exported model.

    Attributes:
        version: The library with its version.
        scores: A score per row of the test file.
        table_rows: Rows of all tables together.
        bytes_per_row: Memory of a row and its accumulator.
        export: The folder of the export.
        request: Returns the exported model's score of a row, given as
            {column: value}.
    """

    version: str
    scores: np.ndarray
    table_rows: int
    bytes_per_row: float
    export: Path
    request: Callable[[Mapping[str, Any]], float]


def _milliseconds_of_request(task: Task, trained: Trained) -> float:
    """Checks the scores of single requests, and times them."""
    batch = next(task.record_batches(task.test))[:_REQUESTS]
    requests = batch.to_pylist()
    for request in requests:
        del request[task.label]
    served = [trained.request(request) for request in requests]
    if not np.allclose(served, trained.scores[: len(served)], atol=1e-4):
        raise AssertionError(f"{trained.version} serves other scores.")
    medians = []
    for _ in range(_ROUNDS):
        seconds = measure.call_seconds(trained.request, requests)
        medians.append(statistics.median(seconds))
    return statistics.median(medians) * 1e3


def main(train: Callable[[Task, Clock, Path, str], Trained]) -> None:
    """Trains and prints the figures.

    Args:
        train: Trains the model of a task, calls the clock, and exports to a
            folder that it is given. The last argument is the library.
    """
    task_file, scores_file, began, library = sys.argv[1:]
    task, clock = Task.load(task_file), Clock(float(began))
    trained = train(task, clock, Path(scores_file).parent / "export", library)
    np.save(scores_file, trained.scores)
    files = [path for path in trained.export.rglob("*") if path.is_file()]
    assert clock.first_step  # it trained
    measure.print_line(
        version=trained.version,
        examples_per_second=task.rows * task.epochs / clock.seconds,
        first_step_seconds=clock.first_step,
        table_rows=trained.table_rows,
        bytes_per_row=trained.bytes_per_row,
        export_bytes=sum(path.stat().st_size for path in files),
        request_ms=_milliseconds_of_request(task, trained),
    )
