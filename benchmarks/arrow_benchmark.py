"""Times open_dataset on Parquet and CSV files.

The baseline of Parquet files with Criteo's columns is pyarrow alone: it decodes
the same columns in batches of as many rows, with all cores, and discards them.
The baselines of CSV are `pandas.read_csv`, and its DataFrame as batches by
`open_dataset`; both open the file in each run.
"""

import pathlib
import tempfile

import numpy as np
import pandas
import pyarrow as pa
import pyarrow.parquet as pq
import tensorflow as tf

from benchmarks.measure import arguments, compare
from lodestar.data import open_dataset

ROW_GROUP = 50_000
BATCH_SIZES = [4096, 16384]


def write(path: pathlib.Path, rows: int, lists: bool) -> None:
    """Writes a label, 13 floats, and 26 columns of one id, or of 0 to 2 per row."""
    rng = np.random.default_rng(0)
    writer = None
    for _ in range(0, rows, ROW_GROUP):
        labels = rng.integers(0, 2, ROW_GROUP)
        columns = {"label": labels.astype(np.float32)}
        for i in range(13):
            floats = rng.normal(size=ROW_GROUP).astype(np.float32)
            columns[f"I{i + 1}"] = floats
        for i in range(26):
            counts = np.ones(ROW_GROUP, np.int32)
            if lists:
                counts = rng.integers(0, 3, ROW_GROUP, np.int32)
            splits = np.concatenate([[0], np.cumsum(counts)])
            ids = np.minimum(rng.zipf(1.2, splits[-1]), 10**6)
            columns[f"C{i + 1}"] = (
                pa.ListArray.from_arrays(splits.astype(np.int32), ids)
                if lists
                else ids
            )
        table = pa.table(columns)
        writer = writer or pq.ParquetWriter(path, table.schema)
        writer.write_table(table)
    writer.close()


def ours(dataset: tf.data.Dataset):
    """Returns a function that reads a whole dataset and counts its rows."""

    @tf.function
    def count():
        rows = tf.constant(0, tf.int64)
        for _, label in dataset:
            rows += tf.shape(label, tf.int64)[0]
        return rows

    return lambda _: count()


def baseline(path: pathlib.Path, batch_size: int):
    """Returns a function that decodes everything with pyarrow."""

    def count(_):
        batches = pq.ParquetFile(path).iter_batches(batch_size)
        return np.int64(sum(batch.num_rows for batch in batches))

    return count


def frame(rows: int) -> pandas.DataFrame:
    """Returns a label, two string columns, one of ids and one of floats."""
    rng = np.random.default_rng(0)
    items = np.minimum(rng.zipf(1.2, rows), 10**6)
    return pandas.DataFrame(
        {
            "label": rng.integers(0, 2, rows),
            "user_id": rng.integers(0, 10**9, rows),
            "item": [f"item-{item}" for item in items],
            "city": [f"city-{city}" for city in rng.integers(0, 500, rows)],
            "price": rng.random(rows).round(3),
        }
    )


def count(data, schema) -> np.int64:
    """Reads a whole dataset; returns its number of rows."""
    dataset = open_dataset(data, schema, BATCH_SIZES[0])
    return np.int64(sum(len(label) for _, label in dataset))


def compare_csv(folder: pathlib.Path, small: bool, runs: int) -> None:
    """Reads a CSV file of 300,000 rows and 5 columns."""
    rows = 30_000 if small else 300_000
    path = folder / "clicks.csv"
    frame(rows).to_csv(path, index=False)
    schema = open_dataset(path, categorical=["user_id"], verbose=False).schema
    compare(
        "CSV, 5 columns",
        lambda _: count(path, schema),
        lambda _: count(pandas.read_csv(path), schema),
        [None],
        against="pandas.read_csv and its DataFrame",
        items=rows,
        wanted=0.67,
        runs=runs,
    )


def main():
    options = arguments(__doc__)
    rows = ROW_GROUP * (2 if options.small else 20)
    with tempfile.TemporaryDirectory() as directory:
        compare_csv(pathlib.Path(directory), options.small, options.runs)
        for lists in (True, False):
            path = pathlib.Path(directory, f"{lists}.parquet")
            write(path, rows, lists)
            kind = "lists of ids" if lists else "one id per column"
            for batch_size in BATCH_SIZES:
                compare(
                    f"Parquet, {kind}, batches of {batch_size}",
                    ours(
                        open_dataset(
                            path,
                            batch_size=batch_size,
                            categorical=[f"C{i + 1}" for i in range(26)],
                            verbose=False,
                        )
                    ),
                    baseline(path, batch_size),
                    [None],
                    against="pyarrow alone",
                    items=rows,
                    wanted=0.87,
                    runs=options.runs,
                )


if __name__ == "__main__":
    main()
