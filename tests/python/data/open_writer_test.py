"""open_writer: the format of the suffix, or as given."""

import pytest

from lodestar.data import Column, DataError, Schema, open_dataset, open_writer

SCHEMA = Schema(
    [Column.label("y"), Column.dense("x", [2]), Column.sparse("item")]
)
SAMPLES = [
    {"y": 1, "x": [0.5, 2], "item": [7]},
    {"y": 0, "x": [0, -1], "item": [2**40]},
]


@pytest.mark.parametrize(
    "name, format, writing, reading",
    [
        ("a.txt", "multislot", {}, {}),
        ("a.txt.gz", "multislot", {}, {}),
        ("a.instant", "instant", {"batch_size": 1}, {}),
        ("a.norm", "norm", {"key_type": "int64"}, {"key_type": "int64"}),
        (
            "a.raw",
            "raw",
            {"layout": "multi_hot_float", "key_type": "int64"},
            {"layout": "multi_hot_float", "key_type": "int64"},
        ),
        ("a.parquet", "parquet", {"row_group_size": 1}, {}),
        ("a.tfrecord", "tfrecord", {}, {}),
        ("a.csv", "csv", {"delimiter": ";"}, {}),
        ("a.tsv", "tsv", {}, {}),
    ],
)
def test_written_files_are_read_back(tmp_path, name, format, writing, reading):
    SCHEMA.save(tmp_path / "schema.yaml")
    for path, named, schema in (
        (tmp_path / name, None, SCHEMA),
        (tmp_path / "other", format, tmp_path / "schema.yaml"),
    ):
        with open_writer(path, schema, named, **writing) as writer:
            for sample in SAMPLES:
                writer.write(sample)
        dataset = open_dataset(path, SCHEMA, 2, format=format, **reading)
        ((features, label),) = dataset
        assert label.numpy().tolist() == [[1], [0]]
        assert features["x"].numpy().tolist() == [[0.5, 2], [0, -1]]
        assert features["item"].to_list() == [[7], [2**40]]


@pytest.mark.parametrize(
    "name, format, options, message",
    [
        ("a.jpg", None, {}, "a.jpg: the ending names no format; rename the"),
        ("a.txt", "avro", {}, "`format` must be one of .*, got 'avro'"),
        ("a.txt", None, {"key_type": "int64"}, "`key_type` is for norm, raw"),
        ("a.arrow", None, {}, "Arrow IPC and JSON files are not written"),
        ("a.jsonl", None, {}, "Arrow IPC and JSON files are not written"),
    ],
)
def test_a_bad_call_writes_nothing(tmp_path, name, format, options, message):
    with pytest.raises(DataError, match=message):
        open_writer(tmp_path / name, SCHEMA, format, **options)
    assert list(tmp_path.iterdir()) == []
