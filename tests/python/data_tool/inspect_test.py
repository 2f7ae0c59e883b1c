"""Tests of `lodestar data inspect`."""

import json
import re

import numpy as np

from lodestar._data_tool import command as tool
from lodestar._data_tool import distinct_ids
from lodestar._data_tool import inspect_files as inspection
from lodestar.data import Column, Schema
from lodestar.data.arrow.parquet_writer import ParquetWriter
from lodestar.paddle.multislot_writer import MultiSlotWriter

SPEC = Schema(
    [
        Column.label("y"),
        Column.dense("I", (2,)),
        Column.sparse("C", used=False),
        Column.sparse("w", dtype="float"),
        Column.one_hot("d", 7),
    ]
)
COLUMNS = {
    "y": [1, 0, 1, 1],
    "I": np.float32([[0.1, 2], [np.nan, -1], [np.inf, 0], [0, 0.5]]),
    "C": (
        np.uint64([7, 2**64 - 1, 8, 8, 8, 8, 8, 9, 9]),
        [0, 2, 2, 7, 9],
    ),
    "w": (np.float32([0.5]), [0, 0, 1, 1, 1]),
    "d": [6, 0, 0, 1],
}


def write(path):
    with MultiSlotWriter(path, SPEC) as writer:
        writer.write_batch(COLUMNS)
    SPEC.save(f"{path}.schema.yaml")


def run(capsys, *arguments):
    assert tool.main(["inspect", *map(str, arguments)]) == 0
    return capsys.readouterr().out


def test_text(tmp_path, capsys):
    write(tmp_path / "a")
    first, *rows = run(capsys, tmp_path / "a", "--records=2").splitlines()
    assert first == "4 samples in 1 file"
    assert [re.split(" {2,}", row) for row in rows[:6]] == [
        ["column", "kind", "why", "values", "values per sample"],
        ["y", "binary label", "declared", "mean 0.75, from 0 to 1"],
        [
            *("I", "dense [2]", "declared"),
            "mean 0.266667, from -1 to 2, 2 are inf or NaN",
        ],
        [
            *("C", "unused ids", "declared"),
            "9 values, 4 distinct, from 7 to 18446744073709551615",
            "0: 1, 2: 2, 5-8: 1",
        ],
        [
            *("w", "floats", "declared"),
            "1 values, mean 0.5, from 0.5 to 0.5",
            "0: 3, 1: 1",
        ],
        ["d", "one-hot vector of 7", "declared", "3 distinct, from 0 to 6"],
    ]
    assert rows[6:] == [
        "sample 1: y=1 I=[0.1, 2.0] C=[7, 18446744073709551615] w=[] d=6",
        "sample 2: y=0 I=[nan, -1.0] C=[] w=0.5 d=0",
    ]


def test_an_inferred_schema_gives_reasons(tmp_path, capsys):
    path = tmp_path / "a.csv"
    path.write_text("label,a,b\n1,x,7\n0,y,8\n")
    *rows, note = run(capsys, path, "--numeric=b").splitlines()[2:]
    assert note == "Text: delimiter ',', quote '\"', header in line 1."
    found = [re.split(" {2,}", row)[:3] for row in rows]
    assert [row[:2] for row in found] == [
        ["label", "binary label"],
        ["a", "ids, hash of strings"],
        ["b", "dense"],
    ]
    assert found[0][2].startswith("all labels are 0 or 1")


def test_json(tmp_path, capsys):
    write(tmp_path / "a")
    found = json.loads(
        run(capsys, tmp_path / "a", tmp_path / "a", "--json", "--records=1")
    )
    assert (found["files"], found["samples"]) == (2, 8)
    assert found["records"] == [
        {"y": [1], "I": [0.1, 2.0], "C": [7, 2**64 - 1], "w": [], "d": [6]}
    ]
    assert found["columns"][2] == {
        "name": "C",
        "kind": "sparse",
        "description": "unused ids",
        "why": "declared",
        "dtype": "uint64",
        "used": False,
        "values": 18,
        "longest": 5,
        "lengths": {"0": 2, "2": 4, "5-8": 2},
        "distinct": 4,
        "distinct_is_exact": True,
        "least": 7,
        "most": 2**64 - 1,
    }
    assert found["columns"][4]["size"] == 7
    assert found["columns"][1]["shape"] == [2]


def test_distinct_ids_are_exact_up_to_a_bound(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(distinct_ids, "_MOST_NEW", 100)
    monkeypatch.setattr(distinct_ids, "_MAX_DISTINCT", 3000)
    spec = Schema([Column.sparse("a"), Column.sparse("b")])
    ids = np.arange(6000)
    with MultiSlotWriter(tmp_path / "a", spec) as writer:
        writer.write_batch(
            {
                "a": (ids % 3000, np.arange(6001)),
                "b": (ids % 3001, np.arange(6001)),
            }
        )
    spec.save(tmp_path / "a.schema.yaml")
    text = run(capsys, tmp_path / "a")
    assert "3000 distinct" in text and "3000 or more distinct" in text


def test_parquet_without_a_slot_file(tmp_path, capsys):
    spec = Schema(
        [Column.label("label"), Column.dense("I"), Column.sparse("C")]
    )
    with ParquetWriter(tmp_path / "a.parquet", spec) as writer:
        writer.write({"label": 1, "I": 0.5, "C": [2**63, 7]})
    text = run(capsys, tmp_path / "a.parquet", "--records=1")
    assert f"sample 1: label=1.0 I=0.5 C=[{2**63}, 7]" in text
    assert run(capsys, tmp_path, "--records=1") == text


def test_buckets_of_lengths():
    names = [inspection._bucket_name(bucket) for bucket in range(6)]
    assert names == ["0", "1", "2", "3-4", "5-8", "9-16"]
    statistics = inspection._Statistics(Column.sparse("C"))
    counts = np.arange(18)
    splits = np.concatenate([[0], np.cumsum(counts)])
    statistics.add((np.zeros(splits[-1], np.int64), splits))
    assert statistics.summary()["lengths"] == {
        "0": 1,
        "1": 1,
        "2": 1,
        "3-4": 2,
        "5-8": 4,
        "9-16": 8,
        "17-32": 1,
    }
