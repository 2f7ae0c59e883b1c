"""Times open_dataset against pyarrow alone on files of Criteo's shape.

The baseline decodes the same columns in batches of as many rows, with all cores,
and does nothing with them. Ours yields them as features and label.
"""

import pathlib
import tempfile

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import tensorflow as tf

from benchmarks.measure import arguments, compare
from lodestar.data import open_dataset

ROW_GROUP = 50_000
BATCH_SIZES = [4096, 16384]


def write(path: pathlib.Path, rows: int, lists: bool) -> None:
    """Writes a label, 13 floats and 26 columns of ids, one or 0 to 2 a row."""
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
    """Returns a function that counts rows, and all that is made with them."""

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


def main():
    options = arguments(__doc__)
    rows = ROW_GROUP * (2 if options.small else 20)
    with tempfile.TemporaryDirectory() as directory:
        for lists in (True, False):
            path = pathlib.Path(directory, f"{lists}.parquet")
            write(path, rows, lists)
            kind = "lists of ids" if lists else "one id a column"
            for batch_size in BATCH_SIZES:
                compare(
                    f"Parquet, {kind}, batches of {batch_size}",
                    ours(open_dataset(path, batch_size=batch_size)),
                    baseline(path, batch_size),
                    [None],
                    against="pyarrow alone",
                    items=rows,
                    wanted=0.87,
                    runs=options.runs,
                )


if __name__ == "__main__":
    main()
