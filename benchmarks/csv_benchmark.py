"""Times open_dataset on a CSV file against pandas and the DataFrame it reads.

Both open the file in each run: ours reads it as batches; the baseline reads it
with `pandas.read_csv`, and its DataFrame as batches by `open_dataset`.
"""

import pathlib
import tempfile

import numpy as np
import pandas

from benchmarks.measure import arguments, compare
from lodestar.data import open_dataset

BATCH_SIZE = 4096


def frame(rows: int) -> pandas.DataFrame:
    """Returns a label, two columns of strings, one of ids and one of numbers."""
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
    """Returns the number of rows of a dataset, all of which are read."""
    dataset = open_dataset(data, schema, BATCH_SIZE)
    return np.int64(sum(len(label) for _, label in dataset))


def main():
    options = arguments(__doc__)
    rows = 30_000 if options.small else 300_000
    with tempfile.TemporaryDirectory() as directory:
        path = pathlib.Path(directory, "clicks.csv")
        data = frame(rows)
        data.to_csv(path, index=False)
        schema = open_dataset(path, verbose=False).schema
        compare(
            "CSV, 5 columns",
            lambda _: count(path, schema),
            lambda _: count(pandas.read_csv(path), schema),
            [None],
            against="pandas.read_csv and its DataFrame",
            items=rows,
            wanted=0.67,
            runs=options.runs,
        )


if __name__ == "__main__":
    main()
