"""sample_table: the first records of TFRecord files as an Arrow table."""

import pyarrow as pa
import pytest
from example_cases import records

from lodestar.data import Column, DataError, open_dataset
from lodestar.data.example.sample_table import sample_table


def test_features_are_columns(tmp_path):
    path = records(
        tmp_path / "a.tfrecord",
        {"user": 2**63 - 1, "city": "Łódź", "tags": ["a", "b"], "none": []},
        {"price": 0.5, "tags": [], "raw": b"\xff", "user": []},
        {"price": [1.5, 2.5], "city": "Oslo"},
    )
    found = sample_table([str(path)], 10)
    wanted = pa.table(
        {
            "city": pa.array(["Łódź", None, "Oslo"]),
            "none": pa.nulls(3),
            "price": pa.array(
                [None, [0.5], [1.5, 2.5]], pa.list_(pa.float32())
            ),
            "raw": pa.array([None, b"\xff", None], pa.binary()),
            "tags": pa.array([["a", "b"], [], None]),
            "user": pa.array([2**63 - 1, None, None], pa.int64()),
        }
    )
    assert found.schema == wanted.schema
    assert found.to_pylist() == wanted.to_pylist()


def test_rows_of_several_files(tmp_path):
    files = [
        str(records(tmp_path / f"{i}.tfrecord", *[{"n": i}] * i))
        for i in range(4)
    ]
    assert sample_table(files, 5)["n"].to_pylist() == [1, 2, 2, 3, 3]
    assert sample_table(files, 99).num_rows == 6


def test_bad_records(tmp_path):
    path = records(tmp_path / "a", {"n": 1}, b"\xff\xffno proto", {"n": 2})
    with pytest.raises(DataError, match="a: record 1: is not a tf.Example"):
        sample_table([str(path)], 10)
    assert sample_table([str(path)], 10, skip=True)["n"].to_pylist() == [1, 2]
    assert sample_table([str(path)], 1).num_rows == 1


@pytest.mark.parametrize(
    "examples, message",
    [
        ([], "a: no file of 1 has a record"),
        ([{}, {}], "a: no record has a feature"),
        (
            [{"n": 1}, {}, {"n": "one"}],
            "a: record 2: feature 'n' is a bytes_list, but a int64_list in the",
        ),
    ],
)
def test_invalid_samples(tmp_path, examples, message):
    path = records(tmp_path / "a", *examples)
    with pytest.raises(DataError, match=message):
        sample_table([str(path)], 10)


def test_a_dataset_infers_its_schema(tmp_path):
    path = records(
        tmp_path / "a.tfrecord",
        {"label": 1, "user_id": 7, "city": "Oslo", "price": 0.5},
        {"label": 0, "city": "Rom", "price": [1.5], "tags": ["a", "b"]},
    )
    dataset = open_dataset(path, batch_size=2, verbose=False)
    assert list(dataset.schema) == [
        Column.label("label"),
        Column.sparse("city", encoding="hash"),
        Column.dense("price"),
        Column.sparse("tags", encoding="hash"),
        Column.sparse("user_id"),
    ]
    ((features, label),) = dataset
    assert features["user_id"].to_list() == [[7], []]
    assert [len(row) for row in features["tags"].to_list()] == [0, 2]
    assert label.numpy().tolist() == [[1.0], [0.0]]
    dataset = open_dataset(
        path, label="city=Rom", categorical=["label"], verbose=False
    )
    assert dataset.schema["city"] == Column.label("city", positive="Rom")
    assert dataset.schema["label"] == Column.sparse("label")
