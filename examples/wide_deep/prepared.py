"""Examples to train and to evaluate on, prepared once and kept in a folder."""

import contextlib
import dataclasses
import json
import os
import pathlib
import tempfile
import types
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import tensorflow as tf

from lodestar.data import DataError, Schema, open_dataset, open_writer
from lodestar.data.__main__ import main as data_tool
from lodestar.metrics import BatchAUC

_ABOUT = "about.json"
_SCHEMA = "schema.yaml"
_BATCH = 4096
_GENERATED_FILES = 12
_EVALUATED_FILES = 2  # the last ones in time

Squash = Callable[[np.ndarray], np.ndarray]


@dataclasses.dataclass(frozen=True)
class PreparedData:
    """MultiSlot files in a folder, and statistics that the model needs.

    Attributes:
        folder: The folder, with a schema file.
        train_files: Names of the files to train on.
        eval_files: Names of the files to evaluate on.
        train_examples: Number of examples in `train_files`.
        eval_examples: Number of examples in `eval_files`.
        mean: Means of the squashed dense values to train on.
        variance: Variances of the same.
        best_auc: The best AUC that any model can have, if known.
    """

    folder: pathlib.Path
    train_files: list[str]
    eval_files: list[str]
    train_examples: int
    eval_examples: int
    mean: list[float]
    variance: list[float]
    best_auc: float | None = None

    @classmethod
    def load(cls, folder: pathlib.Path) -> "PreparedData":
        """Loads the result of `prepare`."""
        return cls(folder, **_about(folder)["data"])

    @property
    def schema(self) -> Schema:
        """The columns."""
        return Schema.load(self.folder / _SCHEMA)

    def train_dataset(
        self, batch_size: int, *, shuffle: int = 0, seed: int | None = None
    ) -> tf.data.Dataset:
        """One epoch of `train_files`."""
        return self._dataset(
            self.train_files,
            self.train_examples,
            batch_size,
            shuffle=shuffle,
            seed=seed,
        )

    def eval_dataset(self) -> tf.data.Dataset:
        """One epoch of `eval_files`, in order."""
        return self._dataset(self.eval_files, self.eval_examples, _BATCH)

    def _dataset(
        self, names: list[str], examples: int, batch_size: int, **options: Any
    ) -> tf.data.Dataset:
        dataset = open_dataset(
            [self.folder / name for name in names],
            self.folder / _SCHEMA,
            batch_size,
            format="multislot",
            **options,
        )
        # Keras and snapshots then know in advance where an epoch ends.
        return dataset.apply(
            tf.data.experimental.assert_cardinality(-(-examples // batch_size))
        )


def prepare(
    folder: pathlib.Path, options: types.SimpleNamespace, squash: Squash
) -> PreparedData:
    """Generates or converts the examples, unless `folder` holds them.

    Args:
        folder: The folder to create; it appears atomically.
        options: The command line.
        squash: Applied to dense values before their mean and variance are taken.

    Raises:
        DataError: The data cannot be used, `folder` cannot be written, or it
            holds something else.
    """
    with _data_errors():
        source = _source(options)
        if folder.exists():
            if _about(folder)["source"] != source:
                raise DataError(
                    f"{folder} was made from other data or with other options. "
                    "Choose another --output."
                )
            return PreparedData.load(folder)
        with _scratch(folder) as scratch:
            make = _generate if options.data is None else _convert
            data = {"source": source, "data": make(scratch, options, squash)}
            (scratch / _ABOUT).write_text(json.dumps(data, indent=2))
        return PreparedData.load(folder)


def _source(options: types.SimpleNamespace) -> Any:
    """Returns the options that the prepared data depend on, as JSON values."""
    if options.data is None:
        return [options.examples, options.seed]

    def stamps(paths: list[pathlib.Path]) -> list[Any]:
        found = [(path, os.stat(path)) for path in paths]
        return [
            [os.path.abspath(path), status.st_size, status.st_mtime_ns]
            for path, status in found
        ]

    return [
        stamps(options.data),
        stamps(options.eval_data or []),
        stamps([options.schema] if options.schema else []),
        options.format,
        options.read,
        options.inference,
        options.eval_fraction,
        options.seed,
    ]


def _about(folder: pathlib.Path) -> Any:
    try:
        return json.loads((folder / _ABOUT).read_text())
    except FileNotFoundError as error:
        raise DataError(
            f"{folder} has no data of this program. Choose another --output."
        ) from error


def _generate(
    folder: pathlib.Path, options: types.SimpleNamespace, squash: Squash
) -> dict[str, Any]:
    failed = data_tool(
        [
            *("generate", str(folder), "--seed", str(options.seed)),
            *("--samples", str(options.examples)),
            *("--files", str(_GENERATED_FILES)),
        ]
    )
    if failed:
        raise DataError(f"{folder}: the click log could not be generated")
    schema = Schema.load(folder / _SCHEMA)
    found = sorted(map(str, folder.glob("part-*.txt")))
    parts = found[:-_EVALUATED_FILES], found[-_EVALUATED_FILES:]
    truths = [f"{os.path.splitext(file)[0]}.npy" for file in parts[1]]
    probabilities, clicks = np.concatenate([*map(np.load, truths)]).T
    summaries = _Summary(schema, squash), _Summary(schema, squash)
    for files, summary in zip(parts, summaries):
        dataset = open_dataset(files, schema, _BATCH)
        for columns in _batches(dataset, schema, files):
            summary.add(columns)
    names = [[os.path.basename(file) for file in files] for files in parts]
    return {
        "train_files": names[0],
        "eval_files": names[1],
        **_numbers(*summaries),
        "best_auc": float(BatchAUC(dtype="float64")(clicks, probabilities)),
    }


def _convert(
    folder: pathlib.Path, options: types.SimpleNamespace, squash: Squash
) -> dict[str, Any]:
    """Writes MultiSlot text, and holds examples out to evaluate on."""
    fixed = {"format": options.format, **options.read}
    dataset = open_dataset(
        options.data,
        options.schema,
        _BATCH,
        verbose=False,
        **fixed,
        **options.inference,
    )
    # Datasets, their paths, and which part of each to hold out.
    sources = [(dataset, options.data, options.eval_fraction)]
    if options.eval_data:
        evaluation = open_dataset(
            options.eval_data, dataset.schema, _BATCH, **fixed
        )
        sources = [
            (dataset, options.data, 0.0),
            (evaluation, options.eval_data, 1.0),
        ]
    _check_columns(dataset.schema, options.schema or options.data[0])
    schema = Schema(dataset.schema.used).stored()
    schema.save(folder / _SCHEMA)
    summaries = _Summary(schema, squash), _Summary(schema, squash)
    rng = np.random.default_rng(options.seed)
    with (
        open_writer(folder / "train.txt", schema) as train_writer,
        open_writer(folder / "eval.txt", schema) as eval_writer,
    ):
        for dataset, paths, fraction in sources:
            for columns in _batches(dataset, schema, paths):
                rows = len(columns[schema.labels[0].name])
                held_out = rng.random(rows) < fraction
                for summary, writer, chosen in zip(
                    summaries,
                    (train_writer, eval_writer),
                    (~held_out, held_out),
                ):
                    index = np.flatnonzero(chosen)
                    part = {
                        name: tf.gather(values, index)
                        for name, values in columns.items()
                    }
                    summary.add(part)
                    writer.write_batch(part)
        _check_parts(*summaries, _joined(sources[-1][1]))
    return {
        "train_files": ["train.txt"],
        "eval_files": ["eval.txt"],
        **_numbers(*summaries),
    }


def _joined(paths: Any) -> str:
    return ", ".join(map(str, paths))


def _check_columns(schema: Schema, where: Any) -> None:
    """Raises DataError for columns that the model cannot take."""
    labels = [column.name for column in schema.labels if column.used]
    if len(labels) != 1:
        raise DataError(f"{where}: the model needs one label, got {labels}")
    if len(schema.used) == 1:
        raise DataError(f"{where}: there is no feature besides the label")
    for column in schema.used:
        problem = ""
        if column.kind == "sparse" and not column.holds_ids:
            problem = "holds any number of floats"
        elif column.depth > 1:
            problem = "holds lists of lists"
        elif column.kind == "dense" and column.num_values is None:
            problem = f"has the shape {list(column.shape)}"
        if problem:
            raise DataError(
                f"{where}: the model cannot take column {column.name!r}, which "
                f"{problem}"
            )


def _batches(
    dataset: tf.data.Dataset, schema: Schema, paths: Any
) -> Iterator[dict[str, Any]]:
    """Yields batches in the form that writers accept.

    Raises:
        DataError: A label or a number is invalid for the model.
    """
    done = 0
    for features, label in dataset:
        columns = {schema.labels[0].name: label, **features}
        for column in schema.used:
            values = columns[column.name]
            if column.kind == "one_hot":
                columns[column.name] = tf.argmax(values, 1)
            if column.kind not in ("label", "dense"):
                continue
            values = np.reshape(values, (len(label), -1))
            if column.kind == "label":
                good, wanted = np.isin(values, (0, 1)), "0 or 1"
            else:
                good, wanted = np.isfinite(values), "a finite number"
            for row, index in np.argwhere(~good)[:1]:
                raise DataError(
                    f"{_joined(paths)}: example {done + row + 1}: column "
                    f"{column.name!r} must be {wanted}, got "
                    f"{values[row, index]}"
                )
        yield columns
        done += len(label)


class _Summary:
    """Counts examples and clicks, and adds up the squashed dense values."""

    def __init__(self, schema: Schema, squash: Squash):
        self._squash = squash
        self._label = schema.labels[0].name
        self._dense = [column.name for column in schema.dense if column.used]
        self.examples = 0
        self.clicks = 0
        self._sums: Any = 0.0
        self._squares: Any = 0.0

    def add(self, columns: dict[str, Any]) -> None:
        """Adds a batch."""
        rows = len(columns[self._label])
        if not rows:
            return
        self.examples += rows
        self.clicks += int(np.sum(columns[self._label]))
        values = [np.reshape(columns[name], (rows, -1)) for name in self._dense]
        if values:
            # float32, as the model gets them.
            numbers = np.concatenate(values, 1).astype(np.float32)
            numbers = self._squash(numbers).astype(np.float64)
            self._sums += numbers.sum(0)
            self._squares += (numbers**2).sum(0)

    def mean(self) -> np.ndarray:
        """Returns the means."""
        return np.atleast_1d(self._sums / self.examples)

    def variance(self) -> np.ndarray:
        """Returns the variances."""
        # Rounding may leave a constant column a variance just below zero.
        squares = np.atleast_1d(self._squares / self.examples)
        return np.maximum(squares - self.mean() ** 2, 0.0)


def _numbers(train: _Summary, evaluation: _Summary) -> dict[str, Any]:
    return {
        "train_examples": train.examples,
        "eval_examples": evaluation.examples,
        "mean": train.mean().tolist(),
        "variance": train.variance().tolist(),
    }


def _check_parts(train: _Summary, evaluation: _Summary, where: str) -> None:
    """Raises DataError unless there is enough to train and evaluate on."""
    if not train.examples or not evaluation.examples:
        raise DataError(
            f"{where}: {train.examples + evaluation.examples} examples are too "
            "few to hold some of them out"
        )
    if evaluation.clicks in (0, evaluation.examples):
        raise DataError(
            f"{where}: all {evaluation.examples} labels to evaluate on are "
            f"{min(evaluation.clicks, 1)}; both 0 and 1 are needed"
        )


@contextlib.contextmanager
def _scratch(folder: pathlib.Path) -> Iterator[pathlib.Path]:
    """Yields a folder that becomes `folder`, unless the block raises."""
    there = next(path for path in folder.parents if path.exists())
    try:
        scratch = tempfile.TemporaryDirectory(dir=there, prefix=".wide_deep_")
    except OSError as error:
        raise DataError(
            f"{folder.parent}: cannot be written: {error.strerror}"
        ) from error
    with scratch as made:
        inner = pathlib.Path(made, folder.name)
        inner.mkdir()
        yield inner
        folder.parent.mkdir(parents=True, exist_ok=True)
        inner.rename(folder)


@contextlib.contextmanager
def _data_errors() -> Iterator[None]:
    """Makes the data's ValueErrors, and only these, errors of the input."""
    try:
        yield
    except DataError:
        raise
    except ValueError as error:
        raise DataError(str(error)) from error
