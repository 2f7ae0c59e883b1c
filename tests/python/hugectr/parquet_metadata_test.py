"""lodestar.hugectr.parquet_metadata: HugeCTR's `_metadata.json`."""

import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import tensorflow as tf

from lodestar._errors import describe_error
from lodestar.data import DataError, open_dataset
from lodestar.hugectr.parquet_metadata import (
    ParquetMetadata,
    read_metadata,
    write_metadata,
)

METADATA = {
    "file_stats": [{"file_name": "a.parquet", "num_rows": 2}],
    "labels": [],
    "conts": [{"col_name": "x", "index": 0}],
    "cats": [{"col_name": "C", "index": 1}],
}
BAD_METADATA = {
    "no object": ([], "an object with the keys file_stats, labels"),
    "a key is missing": (
        {k: v for k, v in METADATA.items() if k != "cats"},
        "key 'cats' is missing",
    ),
    "no list": ({**METADATA, "cats": {}}, "key 'cats' must be a list"),
    "no entry": ({**METADATA, "cats": [1]}, "cats[0]: key 'col_name' is mis"),
    "no index": (
        {**METADATA, "cats": [{"col_name": "C"}]},
        "cats[0]: key 'index' is missing",
    ),
    "negative": (
        {**METADATA, "cats": [{"col_name": "C", "index": -1}]},
        "cats[0]: 'index' must be a whole number of at least 0, got -1",
    ),
    "no number": (
        {**METADATA, "cats": [{"col_name": "C", "index": True}]},
        "cats[0]: 'index' must be a whole number",
    ),
    "beyond the schema": (
        {**METADATA, "cats": [{"col_name": "C", "index": 7}]},
        "cats: the index of 'C' must be less than 2",
    ),
    "twice in a group": (
        {**METADATA, "cats": METADATA["cats"] * 2},
        "cats[1]: 'index' 1 is repeated, first in 'cats'",
    ),
    "in two groups": (
        {**METADATA, "cats": METADATA["conts"]},
        "cats[0]: 'index' 0 is repeated, first in 'conts'",
    ),
    "of another type": (
        {**METADATA, "cats": [], "conts": METADATA["cats"]},
        "column 'C' must have floats or lists of them, got int64",
    ),
    "ids of another type": (
        {**METADATA, "cats": METADATA["conts"], "conts": []},
        "column 'x' must have integers or lists of them, got float",
    ),
    "no name": (
        {**METADATA, "file_stats": [{"num_rows": 2}]},
        "file_stats[0]: key 'file_name' is missing",
    ),
    "file twice": (
        {**METADATA, "file_stats": METADATA["file_stats"] * 2},
        "file_stats[1]: the file 'a.parquet' is repeated",
    ),
    "another file": (
        {**METADATA, "file_stats": [{"file_name": "b", "num_rows": 2}]},
        "a.parquet: is not in 'file_stats' of",
    ),
    "rows": (
        {**METADATA, "file_stats": [{"file_name": "a.parquet", "num_rows": 3}]},
        "a.parquet: found 2 rows, expected 3 as",
    ),
    "no columns": (
        {**METADATA, "cats": [], "conts": []},
        "labels, conts and cats are all empty",
    ),
}


@pytest.fixture
def small(tmp_path):
    data = pa.table({"x": pa.array([1, 2], pa.float32()), "C": [1, 2]})
    pq.write_table(data, tmp_path / "a.parquet")
    return tmp_path / "a.parquet"


def first_error(path):
    with pytest.raises((DataError, tf.errors.OpError)) as error:
        list(open_dataset(path, batch_size=8))
    text = describe_error(error.value)
    assert "\n" not in text and "Traceback" not in text
    return text


@pytest.mark.parametrize("name", BAD_METADATA)
def test_bad_metadata(small, name):
    content, message = BAD_METADATA[name]
    path = small.parent / "_metadata.json"
    path.write_text(json.dumps(content))
    text = first_error(small)
    assert message in text
    assert text.startswith(str(small.parent))


@pytest.mark.parametrize(
    "text, message",
    [
        ("", "is not valid JSON"),
        ("{", "is not valid JSON"),
        ('{"cats": [], "cats": []}', "is not valid JSON: key 'cats' is"),
        ("[" * 3_000, "is nested too deep"),
        (b"\xff", "is not valid JSON"),
    ],
    ids=["empty", "cut", "twice", "deep", "no text"],
)
def test_metadata_that_is_not_json(small, text, message):
    path = small.parent / "_metadata.json"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    assert first_error(small).startswith(f"{path}: {message}")


def test_written_files_are_read(tmp_path):
    path = str(tmp_path / "_metadata.json")
    assert read_metadata(path) is None
    columns = {"labels": ((0, "y"),), "conts": (), "cats": ((2, "ø"), (5, "C"))}
    written = ParquetMetadata(path, {"b": 3, "a": 0}, columns)
    write_metadata(written)
    assert read_metadata(path) == written
    assert list(read_metadata(path).num_rows) == ["b", "a"]
