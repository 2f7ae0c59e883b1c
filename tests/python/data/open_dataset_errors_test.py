"""open_dataset: data that contradict a schema, and invalid options."""

import datetime
import json

import pandas
import polars
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import tensorflow as tf
from text_ids import hash_ids

from lodestar._errors import describe_error
from lodestar.data import Column, DataError, Schema, open_dataset

SOURCES = ["csv", "jsonl", "parquet", "arrow", "pandas", "polars", "pyarrow"]


def stored(folder, source, columns):
    """Stores columns in a source; returns it and its name in errors."""
    table = pa.table(columns)
    path = folder / f"new.{source}"
    if source == "csv":
        table.to_pandas().to_csv(path, index=False)
    elif source == "jsonl":
        rows = [f"{json.dumps(row)}\n" for row in table.to_pylist()]
        path.write_text("".join(rows))
    elif source == "parquet":
        pq.write_table(table, path)
    elif source == "arrow":
        with pa.ipc.new_file(path, table.schema) as writer:
            writer.write_table(table)
    elif source == "pandas":
        return table.to_pandas(), "pandas.DataFrame"
    elif source == "polars":
        return polars.from_arrow(table), "polars.DataFrame"
    else:
        return table, "pyarrow.Table"
    return path, str(path)


@pytest.fixture
def schema(tmp_path):
    """Returns the schema inferred from a CSV file."""
    path = tmp_path / "train.csv"
    rows = [f"{i % 2},{i % 7},{i / 2},{'ab'[i % 2]}\n" for i in range(9)]
    path.write_text("label,user_id,price,city\n" + "".join(rows))
    return open_dataset(
        path, batch_size=4, categorical=["user_id"], verbose=False
    ).schema


GOOD = {
    "label": [1, 0],
    "user_id": [7, 8],
    "price": [0.5, 1.0],
    "city": ["a", "b"],
}


@pytest.mark.parametrize("source", SOURCES)
def test_other_data_are_read_as_the_first_file(tmp_path, schema, source):
    data, _ = stored(tmp_path, source, GOOD)
    dataset = open_dataset(data, schema, 4)
    assert dataset.schema == schema
    ((features, label),) = dataset
    assert label.numpy().tolist() == [[1.0], [0.0]]
    assert features["user_id"].to_list() == [[7], [8]]
    assert features["price"].numpy().tolist() == [[0.5], [1.0]]
    want = hash_ids("city", "ab").tolist()
    assert features["city"].values.numpy().tolist() == want
    # The same values in other types.
    other = {
        "label": [True, False],
        "user_id": ["7", "8"],
        "price": ["0.5", "1"],
        "city": pa.array(["a", "b"]).dictionary_encode(),
    }
    data, _ = stored(tmp_path, source, other)
    ((same, label),) = open_dataset(data, schema, 4)
    assert label.numpy().tolist() == [[1.0], [0.0]]
    for name in ("user_id", "city"):
        assert same[name].to_list() == features[name].to_list()
    assert same["price"].numpy().tolist() == [[0.5], [1.0]]


CONTRADICTIONS = {
    "user_id": (
        ["7", "u8"],
        "found 'u8', expected an integer of 64 bits; inferred to be ids: "
        "named in `categorical`",
    ),
    "price": (
        ["0.5", "free"],
        "found 'free', expected a float32; inferred to be dense: numbers (9 "
        "rows of {train})",
    ),
    "label": (
        [1, 2],
        "found 2, expected 0 or 1; inferred to be binary label: all labels are "
        "0 or 1 (9 rows of {train})",
    ),
}


@pytest.mark.parametrize(
    ("source", "name"),
    [
        (source, list(CONTRADICTIONS)[(i + step) % 3])
        for i, source in enumerate(SOURCES)
        for step in ((0, 1) if source == "csv" else (0,))
    ],
)
def test_values_that_contradict_an_inferred_schema(
    tmp_path, schema, source, name
):
    values, text = CONTRADICTIONS[name]
    data, where = stored(tmp_path, source, {**GOOD, name: values})
    with pytest.raises(tf.errors.InvalidArgumentError) as error:
        list(open_dataset(data, schema, 4))
    found = describe_error(error.value)
    row = {"csv": "line 3", "jsonl": "line 2"}.get(source, "row 1")
    assert found.startswith(f"{where}: {row}")
    text = text.format(train=tmp_path / "train.csv")
    assert f": column {name!r}: {text}" in found
    assert found.endswith("`on_error='skip'` leaves such rows out") or (
        found.endswith(
            "declare the column in a schema, or use `on_error='skip'`"
        )
    )
    # A declared schema has no inference to report.
    declared = Schema([Column.label("label"), Column.sparse("user_id"),
                       Column.dense("price")])  # fmt: skip
    with pytest.raises(tf.errors.InvalidArgumentError) as error:
        list(open_dataset(data, declared, 4))
    assert "inferred" not in describe_error(error.value)


@pytest.mark.parametrize("source", ["parquet", "arrow", "pandas", "pyarrow"])
@pytest.mark.parametrize(
    ("column", "values", "found"),
    [
        (Column.sparse("x"), [{"a": 1}], "struct<a: int64>"),
        (Column.sparse("x"), [[[7]]], "list<"),
        (Column.dense("x"), [[[0.5]]], "list<"),
        (Column.one_hot("x", 9), [[7]], "list<"),
        (Column.sparse("x"), [datetime.date(2026, 1, 31)], "date32[day]"),
        (Column.sparse("x", depth=2), [[7]], "list<"),
    ],
    ids=str,
)
def test_types_that_contradict_a_schema(
    tmp_path, source, column, values, found
):
    data, where = stored(tmp_path, source, {"x": values})
    with pytest.raises(DataError) as error:
        open_dataset(data, [column], 4)
    text = str(error.value)
    assert text.startswith(f"{where}: column 'x': found the type {found}")
    assert "expected" in text or "cannot be read as" in text or "unit" in text


@pytest.mark.parametrize("source", SOURCES)
def test_a_missing_column(tmp_path, schema, source):
    columns = {n: v for n, v in GOOD.items() if n != "price"}
    data, where = stored(tmp_path, source, columns)
    with pytest.raises(DataError) as error:
        open_dataset(data, schema, 4)
    assert str(error.value) == (
        f"{where}: has no column 'price'; its columns are label, user_id, city"
    )


FRAME = pandas.DataFrame({"x": [1.0]})
OPTIONS = [
    ({"batch_size": 0}, "`batch_size` must be an integer"),
    ({"num_parallel_files": 0}, "`num_parallel_files` must be"),
    ({"shuffle": -1}, "`shuffle` must be"),
    ({"shuffle": True}, "such as shuffle=10_000, or 0"),
    ({"shard": (2, 2)}, "`shard` must have an index less than 2"),
    ({"on_error": "ignore"}, "`on_error`='ignore' is not in"),
    ({"sparse": "coo"}, "`sparse`='coo' is not in"),
    ({"label": "b"}, "has no column 'b'; its columns are label, x"),
    ({"numeric": ["x"], "schema": [Column.dense("x")]}, "`schema` says what"),
    ({"label": "x", "schema": [Column.dense("x")]}, "`schema` says what"),
    ({"numeric": "x"}, "`numeric` must be a list of strings, got 'x'"),
    ({"na_values": "NA"}, "`na_values` must be a list of strings, got 'NA'"),
    ({"weights": {"x": "y"}, "schema": [Column.dense("x")]}, "`weights`: 'y'"),
    ({"weights": 3, "schema": [Column.dense("x")]}, "`weights` must map"),
]


@pytest.mark.parametrize("source", ["csv", "pandas"])
@pytest.mark.parametrize(("options", "text"), OPTIONS, ids=str)
def test_options_are_checked(tmp_path, source, options, text):
    data, _ = stored(tmp_path, source, {"label": [1], "x": [0.5]})
    with pytest.raises(ValueError) as error:
        list(open_dataset(data, **{"batch_size": 2, **options}))
    assert text in str(error.value)


@pytest.mark.parametrize(
    ("data", "options", "text"),
    [
        (FRAME, {"format": "csv"}, "`format` is not an option of a tab"),
        (FRAME, {"shuffle_files": True}, "`shuffle_files` is not an option of"),
        (
            FRAME,
            {"open_command": ["cat", "{path}"]},
            "`open_command` is not an",
        ),
        (FRAME, {"delimiter": ","}, "is a table, but `delimiter` is an option"),
        (FRAME, {"header": False}, "is a table, but `header` is an option of"),
        ("a.parquet", {"quote": ""}, "is parquet, but `quote` is an option of"),
        ("a.parquet", {"skip_lines": 1}, "but `skip_lines` is an option of cs"),
        ("a.jsonl", {"columns": ["x"]}, "is jsonl, but `columns` is an option"),
        ("a.tfrecord", {"delimiter": ","}, "but `delimiter` is an option of"),
        (
            "a.tfrecord",
            {"open_command": ["cat", "{path}"]},
            "`open_command` is not an option of tfrecord",
        ),
        ("a.norm", {"delimiter": ","}, "is norm, but `delimiter` is an option"),
        ("a.norm", {"label": "x"}, "is norm and needs `schema`, but `label`"),
        ("a.norm", {"na_values": ["-"]}, "and needs `schema`, but `na_values`"),
    ],
)
def test_options_of_another_format(tmp_path, data, options, text):
    if isinstance(data, str):
        (tmp_path / data).touch()
        options = {"format": data.partition(".")[2], **options}
        data = tmp_path / data
    with pytest.raises(ValueError, match=text):
        open_dataset(data, [Column.dense("x")], 1, **options)


def test_no_paths():
    with pytest.raises(ValueError, match="`files` must have at least one path"):
        open_dataset([], [Column.dense("x")], 1)
