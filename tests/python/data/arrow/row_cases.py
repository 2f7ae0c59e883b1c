"""Writes files of every format, and reads them with open_dataset."""

import csv
import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from example_cases import records

from lodestar.data import Column, Schema
from lodestar.data.arrow.file_source import BlockSource

SPEC = Schema(
    [
        Column.label("click"),
        Column.dense("I1"),
        Column.dense("I2", (2, 2)),
        Column.sparse("C1"),
        Column.sparse("C2"),
        Column.one_hot("day", 7),
        Column.sparse("w", dtype="float"),
        Column.dense("n", (1,), dtype="uint64"),
    ]
)


def table(begin, end):
    """Row i has n = i and other columns that depend on i; C1 and w may be empty."""
    rows = range(begin, end)
    return pa.table(
        {
            "click": pa.array([i % 2 for i in rows], pa.float32()),
            "I1": pa.array([i / 4 for i in rows], pa.float32()),
            "I2": pa.array(
                [[i, -i, 0.5, 1e-3] for i in rows], pa.list_(pa.float32())
            ),
            "C1": pa.array(
                [[1000 * i + k for k in range(i % 4)] for i in rows],
                pa.list_(pa.int64()),
            ),
            "C2": pa.array([i + 7 for i in rows], pa.uint32()),
            "day": pa.array([i % 7 for i in rows], pa.int32()),
            "w": pa.array(
                [[k / 4 for k in range(i % 3)] for i in rows],
                pa.large_list(pa.float32()),
            ),
            "n": pa.array(list(rows), pa.int64()),
        }
    )


def write(path, data, row_group_size=None, **options):
    """Writes a table in the format of the file name's suffix."""
    if path.suffix == ".parquet":
        pq.write_table(data, path, row_group_size=row_group_size, **options)
    elif path.suffix == ".arrow":
        with pa.ipc.new_file(path, data.schema, **options) as writer:
            writer.write_table(data, row_group_size)
    elif path.suffix == ".arrows":
        with pa.ipc.new_stream(path, data.schema, **options) as writer:
            writer.write_table(data, row_group_size)
    elif path.suffix == ".jsonl":
        rows = (json.dumps(row, ensure_ascii=False) for row in data.to_pylist())
        path.write_text("".join(f"{row}\n" for row in rows))
    elif path.suffix == ".tfrecord":
        records(path, *data.to_pylist())
    else:
        assert path.suffix == ".csv"
        _write_csv(path, data)
    return path


def _write_csv(path, data):
    """Separates list values by spaces; I2 becomes four columns."""
    names = [n for n in data.schema.names if n != "I2"]
    wide = [f"I2_{i}" for i in range(4)] if "I2" in data.schema.names else []
    with open(path, "w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow([*names, *wide])
        for row in data.to_pylist():
            values = [row[name] for name in names] + row.get("I2", [])
            writer.writerow(
                " ".join(map(repr, v)) if isinstance(v, list) else v
                for v in values
            )


def write_metadata(directory, num_rows, labels=(), conts=(), cats=(), **more):
    """Writes `_metadata.json`; each column is a pair of name and index."""
    content = {
        "file_stats": [
            {"file_name": name, "num_rows": rows}
            for name, rows in num_rows.items()
        ]
    }
    groups = {"labels": labels, "conts": conts, "cats": cats}
    for group, columns in groups.items():
        content[group] = [{"col_name": n, "index": i} for n, i in columns]
    path = directory / "_metadata.json"
    path.write_text(json.dumps({**content, **more}))
    return path


def set_block_bytes(monkeypatch, size):
    """Makes files of records consist of blocks of about this size."""
    monkeypatch.setattr(BlockSource, "_block_bytes", size)
    monkeypatch.setattr("lodestar.data.arrow.text_source._COLUMN_BYTES", 0)


def read(dataset):
    """Reads all samples of a dataset of SPEC: n, and the values derived from it."""
    numbers = []
    for features, label in dataset:
        n = features["n"].numpy()[:, 0]
        assert len(n)
        np.testing.assert_array_equal(label.numpy()[:, 0], n % 2)
        np.testing.assert_array_equal(features["I1"].numpy()[:, 0], n / 4)
        zero = np.zeros_like(n)
        wide = np.stack([n, -n, zero + 0.5, zero + np.float32(1e-3)], 1)
        np.testing.assert_array_equal(
            features["I2"], wide.reshape(-1, 2, 2).astype(np.float32)
        )
        assert features["C1"].to_list() == [
            [1000 * i + k for k in range(i % 4)] for i in n.tolist()
        ]
        assert features["C2"].to_list() == [[i + 7] for i in n.tolist()]
        np.testing.assert_array_equal(
            features["day"], np.eye(7, dtype=np.float32)[n % 7]
        )
        assert features["w"].to_list() == [
            [k / 4 for k in range(i % 3)] for i in n.tolist()
        ]
        numbers.append(n.tolist())
    return numbers
