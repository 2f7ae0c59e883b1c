"""lodestar.data.arrow.table_source: which objects are in-memory tables."""

import numpy as np
import pandas
import polars
import pyarrow as pa
import pytest
from text_ids import hash_ids

from lodestar.data import Column, DataError, Schema, open_dataset
from lodestar.data.arrow.table_source import as_arrow, is_table, name_of

SCHEMA = Schema(
    [
        Column.label("click"),
        Column.dense("age"),
        Column.sparse("user"),
        Column.sparse("city", encoding="hash"),
        Column.sparse("tags", encoding="hash"),
        Column.one_hot("day", 7),
    ]
)


def columns(rows):
    return {
        "click": [i % 2 for i in range(rows)],
        "age": [i / 2 for i in range(rows)],
        "user": list(range(rows)),
        "city": ["Oslo" if i % 3 else "Łódź" for i in range(rows)],
        "tags": [[f"t{k}" for k in range(i % 3)] for i in range(rows)],
        "day": [i % 7 for i in range(rows)],
    }


def tables(rows=20):
    data = columns(rows)
    arrow = pa.table(data)
    frame = pandas.DataFrame(data)
    return {
        "pandas": frame,
        "pandas-category": frame.astype({"city": "category"}),
        "pandas-nullable": frame.astype({"user": "Int64", "city": "string"}),
        "pandas-float": frame.astype({"user": "float64", "day": "float32"}),
        "pandas-object": frame.astype({"user": object, "city": object}),
        "pandas-index": frame.set_index(frame.index * 7 + 3),
        "polars": polars.DataFrame(data),
        "polars-category": polars.DataFrame(data).with_columns(
            polars.col("city").cast(polars.Categorical)
        ),
        "polars-enum": polars.DataFrame(data).with_columns(
            polars.col("city").cast(polars.Enum(["Oslo", "Łódź"]))
        ),
        "arrow": arrow,
        "arrow-chunks": pa.concat_tables([arrow[:7], arrow[7:8], arrow[8:]]),
        "record-batch": arrow.combine_chunks().to_batches()[0],
        "reader": pa.RecordBatchReader.from_batches(
            arrow.schema, arrow.to_batches()
        ),
    }


@pytest.mark.parametrize("kind", tables(1))
def test_every_kind_of_table_gives_the_same_batches(kind):
    data = columns(20)
    table = tables()[kind]
    assert is_table(table)
    batches = list(open_dataset(table, SCHEMA, 8))
    assert [len(label) for _, label in batches] == [8, 8, 4]
    found = {
        name: sum((x[name].to_list() for x, _ in batches), [])
        for name in ("user", "city", "tags")
    }
    assert found["user"] == [[i] for i in range(20)]
    for name in ("city", "tags"):
        texts = [t if name == "tags" else [t] for t in data[name]]
        assert found[name] == [hash_ids(name, t).tolist() for t in texts]
    ages = np.concatenate([x["age"] for x, _ in batches])
    np.testing.assert_array_equal(ages[:, 0], data["age"])
    days = np.concatenate([x["day"] for x, _ in batches])
    np.testing.assert_array_equal(days.argmax(1), data["day"])
    labels = np.concatenate([label for _, label in batches])
    np.testing.assert_array_equal(labels[:, 0], data["click"])


def test_missing_values_of_frames():
    frame = pandas.DataFrame(
        {
            "x": [1.5, np.nan, 2.5],
            "c": ["a", None, "?"],
            "i": pandas.array([7, None, 8], "Int64"),
            "f": [7, None, 8],  # pandas stores them as floats
            "l": [["a"], None, ["?", "b"]],
            "t": pandas.to_datetime(["2026-01-31", None, "1969-12-31"]),
        }
    )
    schema = [
        Column.dense("x", fill_value=-1),
        Column.sparse("c", encoding="hash"),
        Column.sparse("i"),
        Column.sparse("f"),
        Column.sparse("l", encoding="hash"),
        Column.sparse("t", unit="D"),
    ]
    for table in (frame, polars.from_pandas(frame)):
        (features,) = open_dataset(table, schema, 3)
        x = features["x"].numpy().ravel().tolist()
        assert x == [1.5, -1, 2.5]
        assert features["c"].to_list() == [[hash_ids("c", "a")[0]], [], []]
        assert features["i"].to_list() == [[7], [], [8]]
        assert features["f"].to_list() == [[7], [], [8]]
        a, b = hash_ids("l", "ab").tolist()
        assert features["l"].to_list() == [[a], [], [b]]
        assert features["t"].to_list() == [[20484], [], [-1]]


def test_columns_that_are_called_by_numbers():
    frame = pandas.DataFrame({0: [1.0, 0.0], 1: ["a", "b"]})
    ((features, label),) = open_dataset(frame, batch_size=2, label="0")
    assert list(features) == ["1"] and label.numpy().tolist() == [[1.0], [0.0]]
    with pytest.raises(DataError, match="`label` must be a string.*got 0"):
        open_dataset(frame, batch_size=2, label=0)
    for name in ("categorical", "numeric"):
        with pytest.raises(
            ValueError, match=f"`{name}` must be a list of strings, got"
        ):
            open_dataset(frame, batch_size=2, **{name: [1]})


def test_names_of_tables():
    assert name_of(pandas.DataFrame()) == "pandas.DataFrame"
    assert name_of(polars.DataFrame()) == "polars.DataFrame"
    assert name_of(pa.table({})) == "pyarrow.Table"


@pytest.mark.parametrize(
    ("data", "error", "text"),
    [
        ({"a": [1]}, TypeError, "must be paths, a pandas or polars DataFrame"),
        (polars.LazyFrame({"a": [1]}), TypeError, "collect\\(\\) it first"),
        (pandas.Series([1.0]), TypeError, "Series, one column; call `to_fr"),
        (polars.Series("a", [1.0]), TypeError, "Series, one column; call"),
        (
            pandas.DataFrame({"a": [1, "b", [2]]}),
            DataError,
            "pandas.DataFrame: column 'a': cannot be an Arrow array",
        ),
    ],
)
def test_other_objects_are_not_tables(data, error, text):
    with pytest.raises(error, match=text):
        as_arrow(data)


def test_paths_are_not_tables():
    for data in ("a.csv", ["a.csv"], {"a": [1]}, None):
        assert not is_table(data)


def test_a_list_of_tables_is_not_a_list_of_paths():
    frames = [pandas.DataFrame({"secret": [1.0]})] * 2
    with pytest.raises((TypeError, ValueError)) as error:
        open_dataset(frames, batch_size=1)
    assert "a list with DataFrame" in str(error.value)
    assert "secret" not in str(error.value)


def test_duplicate_column_names():
    frame = pandas.DataFrame([[1, 2]], columns=["a", "a"])
    for schema in ([Column.sparse("a")], None):
        with pytest.raises(
            DataError, match="pandas.DataFrame: has 2 columns named 'a'"
        ):
            open_dataset(frame, schema, 1)


def test_names_of_a_frame_have_no_whitespace_around_them(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("user_id, city, label\n7, Oslo, 1\n8, Bergen, 0\n")
    dataset = open_dataset(
        path, batch_size=2, categorical=["user_id"], verbose=False
    )
    frame = pandas.read_csv(path)
    assert " city" in frame
    ((wanted, _),) = dataset
    ((found, _),) = open_dataset(frame, dataset.schema, 2)
    assert found["city"].to_list() == wanted["city"].to_list()
