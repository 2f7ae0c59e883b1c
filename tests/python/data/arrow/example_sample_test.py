"""What TFRecord files show of their features: schemas, feature lists."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import tensorflow as tf
from example_cases import open_examples, records, sequence
from row_cases import set_block_bytes

from lodestar.data import Column, DataError, Schema, open_dataset
from lodestar.data.arrow.example_source import ExampleSource


def test_features_are_columns(tmp_path):
    path = records(
        tmp_path / "a.tfrecord",
        {"user": 2**63 - 1, "city": "Łódź", "tags": ["a", "b"], "none": []},
        {"price": 0.5, "tags": [], "raw": b"\xff", "user": []},
        {"price": [1.5, 2.5], "city": "Oslo"},
    )
    source = ExampleSource(str(path))
    text = pa.large_binary()
    assert source.schema == pa.schema(
        [
            ("city", text),
            ("none", pa.null()),
            ("price", pa.large_list(pa.float32())),
            ("raw", text),
            ("tags", pa.large_list(text)),
            ("user", pa.int64()),
        ]
    )
    found = source.head(source.schema.names, 9)
    assert found.schema == source.schema
    assert found.to_pydict() == {
        "city": ["Łódź".encode(), None, b"Oslo"],
        "none": [None] * 3,
        "price": [[], [0.5], [1.5, 2.5]],
        "raw": [None, b"\xff", None],
        "tags": [[b"a", b"b"], [], []],
        "user": [2**63 - 1, None, None],
    }


def test_only_described_groups_are_sampled(tmp_path, monkeypatch):
    set_block_bytes(monkeypatch, 1)
    many = [{"n": i, "text": "x" * 300} for i in range(5000)]
    path = records(tmp_path / "a.tfrecord", *many, {"n": [1, 2]})
    source = ExampleSource(str(path))
    assert len(source.row_groups) > 2
    found = source.head(["n"], 5000)["n"].to_pylist()
    assert found == list(range(len(found))) and 1000 <= len(found) < 2000
    assert source.head(["n"], 7)["n"].to_pylist() == list(range(7))
    # The list is not in the sample, but it is read, or is an error.
    (*_, last) = open_dataset(path, [Column.sparse("n")], 1000)
    assert last["n"].to_list() == [[1, 2]]
    with pytest.raises(
        tf.errors.InvalidArgumentError,
        match="record 5000: column 'n': found 2 values, expected 1",
    ):
        list(open_dataset(path, [Column.dense("n")], 1000))


def test_rows_of_several_files(tmp_path):
    files = [
        records(tmp_path / f"{i}.tfrecord", *[{"n": i}] * i) for i in range(4)
    ]
    dataset = open_examples(files, None, numeric=["n"], verbose=False)
    found = [x for batch in dataset for x in batch["n"].numpy().ravel()]
    assert found == [1, 2, 2, 3, 3, 3]


def test_bad_records(tmp_path):
    path = records(tmp_path / "a", {"n": 1}, b"\xff\xffno proto", {"n": 2})
    options = {"numeric": ["n"], "verbose": False}
    with pytest.raises(
        tf.errors.InvalidArgumentError, match="a: record 1: is not a tf.Examp"
    ):
        list(open_examples(path, None, **options))
    (found,) = open_examples(path, None, on_error="skip", **options)
    assert found["n"].numpy().tolist() == [[1], [2]]


@pytest.mark.parametrize(
    "examples, message",
    [
        ([], "a: no file of 1 has a record"),
        ([{}, {}], "a: has no columns"),
    ],
)
def test_files_that_show_no_columns(tmp_path, examples, message):
    path = records(tmp_path / "a", *examples)
    with pytest.raises(DataError, match=message):
        open_examples(path, None)


def test_a_dataset_infers_its_schema(tmp_path):
    path = records(
        tmp_path / "a.tfrecord",
        {"label": 1, "user_id": 7, "city": "Oslo", "price": 0.5},
        {"label": 0, "city": "Rom", "price": [1.5], "tags": ["a", "b"]},
    )
    dataset = open_dataset(
        path, batch_size=2, categorical=["user_id"], verbose=False
    )
    assert list(dataset.schema) == [
        Column.label("label"),
        Column.sparse("city", encoding="hash", strings_only=True),
        Column.dense("price"),
        Column.sparse("tags", encoding="hash", strings_only=True),
        Column.sparse("user_id"),
    ]
    ((features, label),) = dataset
    assert features["user_id"].to_list() == [[7], []]
    assert [len(row) for row in features["tags"].to_list()] == [0, 2]
    assert label.numpy().tolist() == [[1.0], [0.0]]
    dataset = open_dataset(
        path,
        label="city=Rom",
        categorical=["label", "user_id"],
        verbose=False,
    )
    assert dataset.schema["city"] == Column.label(
        "city", positive="Rom", negative="Oslo"
    )
    assert dataset.schema["label"] == Column.sparse("label")


# Columns of values that a tf.Example and Parquet can both hold.
VALUES = {
    "y": [0, 1, 1, 0],
    "id": [7, None, -(2**63), 2**53 + 1],
    "ids": [[1, 2], [], None, [3]],
    "text": ["a", "NA", " b ", None],
    "texts": [["a", "b|c"], ["NA"], None, ["d"]],
    "number": [0.5, None, 2.0, float("inf")],
    "numbers": [[0.5, float("nan")], None, [], [1.0]],
    "whole": ["7", "-8.0", "0x10", None],
    "pair": [[1, 2], None, [3, 4], [5, 6]],
    "split": ["1;2.5", "NA", None, "NA;4"],
    "json": ["[1, 2]", None, "[]", "[3]"],
    "hex": ["ff", "0x1A", None, " 0 "],
    "day": [2.0, 0.0, 1.0, 2.0],
    "label": [" >50K.", "<=50K", ">50K", "<=50K"],
    "number label": [0.5, 1.0, 1.0, 0.5],
}
SCHEMA = Schema(
    [
        Column.label("y"),
        Column.sparse("id", encoding="hash"),
        Column.sparse("ids"),
        Column.sparse("text", encoding="hash"),
        Column.sparse("texts", encoding="hash", separator="|"),
        Column.dense("number", fill_value=-1),
        Column.sparse("numbers", dtype="float"),
        Column.sparse("whole"),
        Column.dense("pair", (2,), fill_value=9),
        Column.dense("split", (2,), separator=";", fill_value=-1),
        Column.sparse("json", separator="json"),
        Column.sparse("hex", encoding="hex"),
        Column.one_hot("day", 3),
        Column.label("label", positive=(">50K", ">50K."), negative="<=50K"),
        Column.label("number label", positive="0.5", negative="1"),
    ]
)


@pytest.mark.parametrize("shuffle", [0, 3])
def test_values_are_those_of_parquet(tmp_path, shuffle):
    rows = [dict(zip(VALUES, row)) for row in zip(*VALUES.values())]
    example = records(
        tmp_path / "a.tfrecord",
        *({k: v for k, v in row.items() if v is not None} for row in rows),
    )
    pq.write_table(pa.table(VALUES), tmp_path / "a.parquet")
    options = {"shuffle": shuffle, "seed": 1, "as_columns": True}
    (found,), (wanted,) = (
        open_dataset(path, SCHEMA, 4, **options)
        for path in (example, tmp_path / "a.parquet")
    )
    found, wanted = map(tf.nest.flatten, (found, wanted))
    for a, b in zip(found, wanted, strict=True):
        np.testing.assert_array_equal(a, b)


STEPS = {
    "clicks": [[3, 4], [], [5]],
    "words": [[["a", "b"], []], [], [["c"]]],
}


def sequences(path):
    rows = zip(*STEPS.values())
    return records(
        path,
        *(
            sequence({"user": i}, clicks=clicks, words=words)
            for i, (clicks, words) in enumerate(rows)
        ),
    )


def test_feature_lists(tmp_path):
    path = sequences(tmp_path / "a.tfrecord")
    dataset = open_dataset(
        path, batch_size=3, categorical=["user", "clicks"], verbose=False
    )
    assert list(dataset.schema) == [
        Column.sparse("clicks"),
        Column.sparse("user"),
        Column.sparse("words", encoding="hash", depth=2, strings_only=True),
    ]
    (found,) = dataset
    assert found["user"].to_list() == [[0], [1], [2]]
    assert found["clicks"].to_list() == STEPS["clicks"]
    lengths = [[len(x) for x in row] for row in found["words"].to_list()]
    assert lengths == [[2, 0], [], [1]]
    (found,) = open_dataset(path, [Column.sparse("clicks", depth=2)], 3)
    assert found["clicks"].to_list() == [[[3], [4]], [], [[5]]]


def test_feature_lists_without_a_context(tmp_path):
    path = records(tmp_path / "a.tfrecord", sequence({}, clicks=[1, 2]))
    (found,) = open_dataset(path, [Column.sparse("clicks")], 1)
    assert found["clicks"].to_list() == [[1, 2]]


@pytest.mark.parametrize(
    ("column", "text"),
    [
        (
            Column.sparse("words", encoding="hash"),
            "found 2 values in step 0 of a feature list, expected 1, unless",
        ),
        (
            Column.sparse("user", depth=2),
            "found a list of values, expected a feature list of a tf.Sequence",
        ),
        (Column.dense("clicks", (1,)), "found 2 values, expected 1"),
    ],
)
def test_feature_lists_that_contradict_the_schema(tmp_path, column, text):
    path = sequences(tmp_path / "a.tfrecord")
    with pytest.raises(
        tf.errors.InvalidArgumentError,
        match=f"record 0: column {column.name!r}: {text}",
    ):
        list(open_dataset(path, [column], 3))
