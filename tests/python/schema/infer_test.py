"""lodestar.schema.infer: one inference rule for every source."""

import dataclasses
import datetime
import decimal

import numpy as np
import pandas
import polars
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lodestar.data import Column, DataError, Schema, open_dataset
from lodestar.schema.infer import Wanted, infer_schema, parse_label


def inferred(table, where="t", **options):
    return infer_schema(table, where, Wanted(**options)).schema


def infer(values, name="x", **options):
    """Infers the only column of a sample."""
    if not isinstance(values, (pa.Array, pa.ChunkedArray)):
        values = pa.array(values)
    (column,) = inferred(pa.table({name: values}), **options)
    return column


def doubt(values, name="x", **options):
    """Returns what was seen of a column in doubt, and the suggested option."""
    with pytest.raises(DataError, match="leave several meanings") as error:
        infer(values, name, **options)
    _, seen, _, call = str(error.value).split("\n")
    option = call.removeprefix("  open_dataset(..., ").partition("=")[0]
    return seen.removeprefix(f"  {name!r}: "), option


def kind(values, name="x"):
    """Returns "ids", "number" or "unclear"."""
    try:
        column = infer(values, name)
    except DataError as error:
        assert "leave several meanings" in str(error)
        return "unclear"
    if column.holds_ids:
        return "ids"
    assert column.dtype == "float"
    return "number"


def some(rng, count, rows):
    """Returns `rows` integers with `count` different values, from 1 on."""
    values = np.concatenate([np.arange(count), rng.integers(0, count, rows)])
    return rng.permutation(values[:rows]) + 1


def forms(values):
    """Yields integers as each source stores them."""
    yield pa.array(values)
    yield pa.array(list(map(str, values)))
    yield pa.array(list(map(str, values))).cast(pa.large_binary())
    missing = [*values, None, None]
    yield pa.array(missing)
    yield pa.array(missing, pa.float64())
    yield pa.array([*map(float, values), np.nan])
    # As pandas writes integers next to missing values.
    yield pa.array([f"{i}.0" for i in values] + [""])
    yield pa.chunked_array([values[:2], values[2:]], pa.int64())


@pytest.mark.parametrize(
    ("name", "rows", "count"),
    [
        *(("user_id", 1, 1), ("itemId", 20, 2), ("ID", 999, 70)),
        *(("zip", 3000, 2960), ("age", 3000, 2), ("ID", 999, 2960)),
    ],
)
def test_integers_are_in_doubt_in_every_form(rng, name, rows, count):
    values = [int(i) for i in some(rng, count, rows)]
    for form in forms(values):
        _, option = doubt(form, name)
        many = len(set(values)) > 128
        assert option == ("categorical" if many else "numeric"), form.type


@pytest.mark.parametrize(
    "values",
    [[0, 1, 1], [-1, 5], [0, 0, 0, 9], [2**50 + 1, -(2**51)], [10**12, 10**13]],
)
def test_no_integers_are_certain(values):
    for form in forms(values):
        assert kind(form, "user_id") == "unclear"


def test_what_is_said_of_a_column_in_doubt():
    seen, option = doubt([20200715, 20200716, None])
    assert option == "categorical"
    assert seen == (
        "2 distinct whole numbers in 2 values: 20200715, 20200716, of which "
        "float32 does not hold 20200715"
    )
    seen, option = doubt([[1, 2], [5, 6, 7]])
    assert option == "categorical"
    assert seen == (
        "5 distinct whole numbers in 5 values in lists: 1, 2, 5, ..."
    )
    assert doubt([0.5, 20200715.0]) == (
        "2 distinct numbers in 2 values: 0.5, 20200715.0, of which float32 does "
        "not hold 20200715.0",
        "numeric",
    )
    assert doubt([datetime.date(2026, 1, 31)], "day") == (
        "date32[day], which needs a unit",
        "ignore",
    )
    assert doubt([None, None]) == ("every value is missing", "ignore")
    assert doubt([[], []]) == ("no values", "ignore")


@pytest.mark.parametrize(
    "texts",
    [
        *(
            ["2,50", "3,75"],
            ["$3"],
            ["1 234"],
            ["50%"],
            ["2020-07-15"],
            ["12:30"],
        ),
        *(
            ["a|b", "c"],
            ["['a', 'b']"],
            ["{'a': 1}"],
            ["(1, 2)"],
            ["[1, 2", "3]"],
        ),
        *(["[1", "a"],),
    ],
    ids=str,
)
def test_text_that_may_be_another_thing(texts):
    if texts == ["[1", "a"]:
        texts = ["[1]", "a"]  # not all are lists
    seen, option = doubt(["Oslo", *texts])
    assert option == "categorical" and seen.startswith("text such as ")
    column = infer(texts, categorical=["x"])
    assert column.encoding == "hash" and column.strings_only
    # A category is declared by its source.
    assert kind(pa.array(["Oslo", *texts]).dictionary_encode()) == "ids"


@pytest.mark.parametrize(
    ("values", "wanted"),
    [
        (["a", "b", None], "ids"),
        (["a", "7"], "unclear"),
        ([b"\xff", b"a"], "ids"),
        (["02139", "10001", ""], "ids"),
        (["0", "10", "0", "0"], "unclear"),
        (["9" * 5000, "1"], "ids"),
        (["7.0", "8."], "unclear"),
        (["1e3", "-.5", "inf", None], "number"),
        (["1e3"], "number"),
        (["", "?", "Oslo"], "ids"),
        ([" 0.5", "1 "], "number"),
        (["True", "false", None], "number"),
        ([True, None], "number"),
        ([0.5, 7.0], "number"),
        ([7.0, 8.0], "unclear"),
        (pa.array(np.float16([0.5, 7])), "number"),
        ([np.inf, 1.0, None], "number"),
        ([decimal.Decimal("0.50")], "number"),
        ([decimal.Decimal("7.00"), None], "unclear"),
        ([None, None], "unclear"),
        (["", "?"], "unclear"),
        ([np.nan, np.nan], "unclear"),
        ([[], None], "unclear"),
        (pa.array(["a", "b"]).dictionary_encode(), "ids"),
        (pa.array([7, 8]).dictionary_encode(), "ids"),
        ([[1, 2], []], "unclear"),
        ([["a"], None], "ids"),
        ([[0.5], []], "number"),
        ([[True], []], "number"),
        ([["[1]"]], "ids"),
        ([["7"], ["8"]], "unclear"),
        (["[1, 2]", "[]", None], "unclear"),
        (['["a"]', "[]"], "ids"),
        (["[0.5, 1]", "[2]"], "number"),
        (["[a]", "[b]"], "unclear"),
        ([datetime.date(2026, 1, 31)], "unclear"),
        (
            pa.RunEndEncodedArray.from_arrays([2], pa.array(["a"])),
            "ids",
        ),
        (pa.array([["a"]], pa.list_view(pa.string())), "ids"),
    ],
    ids=str,
)
def test_other_values(values, wanted):
    assert kind(values) == wanted


def test_numbers_among_which_is_text():
    values = [str(i / 4) for i in range(95)] + ["n.a."] * 5
    assert doubt(values) == (
        "95 of 100 values are numbers, but others are 'n.a.' (`na_values` names "
        "missing values)",
        "categorical",
    )
    assert infer(values, na_values=["n.a."]).kind == "dense"
    assert infer(values, categorical=["x"]).encoding == "hash"
    assert kind(["7", *["word"] * 999]) == "unclear"


@pytest.mark.parametrize(
    ("values", "column"),
    [
        ([7, 8], Column.sparse("x")),
        ([7.0, None], Column.sparse("x")),
        (["7", "8.0", "-9", ""], Column.sparse("x")),
        (["7", "a"], Column.sparse("x", encoding="hash", strings_only=True)),
        (["007", "8"], Column.sparse("x", encoding="hash", strings_only=True)),
        (["1e3", "2"], Column.sparse("x", encoding="hash", strings_only=True)),
        ([str(2**64)], Column.sparse("x", encoding="hash", strings_only=True)),
        ([str(2**64 - 1)], Column.sparse("x")),
        ([f"{2**64 - 1}.0", "-9"], Column.sparse("x")),
        ([str(-(2**63)), "1."], Column.sparse("x")),
        (
            [str(-(2**63) - 1)],
            Column.sparse("x", encoding="hash", strings_only=True),
        ),
        (pa.array([2**64 - 1], pa.uint64()), Column.sparse("x")),
        (pa.array(["7"]).dictionary_encode(), Column.sparse("x")),
        ([[7], [8, 9]], Column.sparse("x")),
        ([["a"]], Column.sparse("x", encoding="hash", strings_only=True)),
        ([[[7]], []], Column.sparse("x", depth=2)),
        (["[7]", "[]"], Column.sparse("x", separator="json")),
        (
            ['["a"]'],
            Column.sparse(
                "x", separator="json", encoding="hash", strings_only=True
            ),
        ),
    ],
    ids=str,
)
def test_ids(values, column):
    assert infer(values, categorical=["x"]) == column


@pytest.mark.parametrize(
    ("values", "column"),
    [
        ([7, 8], Column.dense("x")),
        (["7", None], Column.dense("x")),
        ([[0.5]], Column.sparse("x", dtype="float")),
        (
            pa.array([[0.5, 1.5]], pa.list_(pa.float32(), 2)),
            Column.dense("x", (2,)),
        ),
        ([[[0.5]]], Column.sparse("x", dtype="float", depth=2)),
        (["[0.5]"], Column.sparse("x", dtype="float", separator="json")),
    ],
    ids=str,
)
def test_numbers(values, column):
    assert infer(values, numeric=["x"]) == column


BINARY = Column.label("y")
ANY = Column.label("y", dtype="float", binary=False)


@pytest.mark.parametrize(
    ("values", "column"),
    [
        ([0, 1, None], BINARY),
        ([0.0, 1.0, np.nan], BINARY),
        (["0", "1", "?"], BINARY),
        ([True, False], BINARY),
        (["True", "false"], BINARY),
        (["1.0", "0."], BINARY),
        ([1, 2], ANY),
        ([0.5], ANY),
        (["0.5", "-3"], ANY),
        ([decimal.Decimal("2.5")], ANY),
        ([None], Column.label("y", dtype="float")),
    ],
    ids=str,
)
def test_labels(values, column):
    assert infer(values, "y", label="y") == column


@pytest.mark.parametrize(
    ("values", "positive", "negative"),
    [
        (["yes", "no"], "yes", ["no"]),
        ([" yes ", "no.", None, "No"], "yes", ["No", "no."]),
        ([1, 2], "2", ["1"]),
        ([1.0, 2.0], "2", ["1"]),
        ([True, False], "true", ["false"]),
        ([True, False], "False", ["True"]),
        (pa.array(["yes", "no"]).dictionary_encode(), "yes", ["no"]),
    ],
    ids=str,
)
def test_positive_labels(values, positive, negative):
    column = infer(values, "y", label=f"y={positive}")
    assert column == Column.label("y", positive=positive, negative=negative)
    with pytest.raises(
        DataError, match="column 'y': no label is 'maybe'; found"
    ):
        infer(values, "y", label="y=maybe")


def test_labels_whose_negative_strings_are_unknown():
    for values, count in (["yes"], 0), (["yes", *map(str, range(101))], 101):
        with pytest.raises(
            DataError,
            match=f"has {count} values besides 'yes', expected 1 to 100",
        ):
            infer(values, "y", label="y=yes")


def test_which_column_is_the_label():
    table = pa.table({"a": [0.5], "label": [1], "a=b": [0]})
    found = infer_schema(table, "t", Wanted(numeric=["a=b"]))
    assert found.schema.names() == ["label", "a", "a=b"] and not found.notes
    schema = inferred(table, label="a=b", ignore=["label"])
    assert schema.names("label") == ["a=b"]
    found = inferred(table, label="a", numeric=["label", "a=b"])
    assert found.names("label") == ["a"]
    table = table.drop_columns("label")
    found = infer_schema(table, "t", Wanted(numeric=["a=b"]))
    assert found.schema.names("label") == []
    assert found.notes == [
        "No label is declared, so batches have only features: pass "
        "`label='COLUMN'` to train."
    ]
    assert parse_label("Salary=>=50K") == ("Salary", ">=50K")


def test_the_reason_is_kept():
    table = pa.table(
        {"user_id": [7, 8], "x": [0.5, 1], "y": [1, 0], "c": [1, 2]}
    )
    wanted = Wanted(label="y", categorical=["c", "user_id"])
    schema = infer_schema(table, "a.csv", wanted).schema
    assert [c.why for c in schema] == [
        "all labels are 0 or 1 (2 rows of a.csv)",
        "named in `categorical`",
        "numbers (2 rows of a.csv)",
        "named in `categorical`",
    ]
    assert schema.na_values == Schema([Column.sparse("x")]).na_values
    found = infer_schema(
        table, "t", dataclasses.replace(wanted, na_values=["-"])
    )
    assert found.schema.na_values == ("-",)
    missing = pa.table({"x": [0.5, None]})
    assert inferred(missing)["x"].why.startswith("numbers, missing ones are 0")


def test_declared_ignored_and_weighted_columns():
    table = pa.table(
        {
            "item": [7, 8],
            "tags": ["a|b", "c"],
            "url": ["a", "b"],
            "w": [1, 2],
            "y": [1, 0],
            "map": pa.array([[("a", 1)]] * 2, pa.map_(pa.string(), pa.int8())),
        }
    )
    tags = Column.sparse("tags", separator="|", encoding="hash")
    found = infer_schema(
        table,
        "t",
        Wanted(
            label="y",
            categorical=["item"],
            ignore=["url"],
            sample_weight="w",
            declare=[tags],
        ),
    )
    assert list(found.schema) == [
        Column.sample_weight("w"),
        Column.label("y"),
        Column.sparse("item"),
        tags,
    ]
    assert found.notes == [
        "Not read, for their types: 'map' (map<string, int8>)."
    ]


@pytest.mark.parametrize(
    ("table", "options", "text"),
    [
        ({}, {}, "t: has no columns"),
        ({"a": [1.5]}, {"label": "b"}, "has no column 'b'; its columns are a"),
        ({"a": [1.5]}, {"numeric": ["b"]}, "t: has no column 'b'"),
        ({"a": [1.5]}, {"categorical": ["b"]}, "t: has no column 'b'"),
        ({"a": [1.5]}, {"ignore": ["b"]}, "t: has no column 'b'"),
        ({"a": [1.5]}, {"sample_weight": "b"}, "t: has no column 'b'"),
        (
            {"a": [1.5]},
            {"declare": [Column.sparse("b")]},
            "t: has no column 'b'",
        ),
        (
            {"x": [1.5]},
            {"numeric": ["x"], "categorical": ["x"]},
            "column 'x' is declared twice, in `categorical` and `numeric`",
        ),
        (
            {"x": [1.5], "y": [1.5]},
            {"label": "y", "numeric": ["y"]},
            "column 'y' is declared twice, in `label` and `numeric`",
        ),
        (
            {"y": ["a", "b"]},
            {"label": "y"},
            "column 'y': found text ('a', 'b'), expected numbers, or `label`="
            "'y=POSITIVE' to say which text is 1",
        ),
        ({"y": [[1]]}, {"label": "y"}, "column 'y': found the type list<"),
        ({"y": [1]}, {"label": "y="}, "must be COLUMN or COLUMN=POSITIVE"),
        ({"y": [1]}, {"label": "=1"}, "must be COLUMN or COLUMN=POSITIVE"),
        ({"y": [1]}, {"label": 0}, "`label` must be a string"),
        ({"x": [{"a": 1}]}, {}, "t: has no columns"),
        ({"x": [[[[1]]]]}, {}, "t: has no columns"),
        (
            {
                "x": [1, 2],
                "n": [1.5, 2.5],
                "id": [7, 8],
                "z": [None, None],
                "t": [datetime.date(2026, 1, 1)] * 2,
            },
            {"categorical": ["id"]},
            "t: 2 rows leave several meanings for these columns:\n"
            "  'x': 2 distinct whole numbers in 2 values: 1, 2\n"
            "  'z': every value is missing\n"
            "  't': date32[day], which needs a unit\n"
            "Declare which are ids (`categorical`), which are numbers "
            "(`numeric`) and which to leave out (`ignore`); `declare` takes a "
            "`Column` for anything else, e.g. declare=[Column.dense('t', "
            "dtype='uint64', unit='D')]. For example:\n"
            "  open_dataset(..., categorical=['id'], numeric=['x'], "
            "ignore=['z', 't'])",
        ),
    ],
    ids=str,
)
def test_errors_name_the_cause(table, options, text):
    with pytest.raises(DataError) as error:
        inferred(pa.table(table), **options)
    assert text in str(error.value)


def frame(rng, rows=2000):
    """Returns columns that every source can store."""
    missing = rng.random(rows) < 0.1

    ids = pandas.array(some(rng, 200, rows), "Int64")
    ids[missing] = None
    ages = pandas.array(some(rng, 70, rows), "Int64")
    ages[missing] = None
    return pandas.DataFrame(
        {
            "label": rng.integers(0, 2, rows),
            "user": some(rng, 200, rows),
            "item": ids,
            "age": ages,
            "row": np.arange(rows) + 1,
            "flag": rng.integers(0, 2, rows).astype(bool),
            "price": np.where(missing, np.nan, rng.random(rows).round(3)),
            "gain": some(rng, 900, rows) * (rng.random(rows) < 0.3),
            "city": rng.choice(["Oslo", "Łódź", None], rows),
            "zip": [f"{i % 300:05d}" for i in range(rows)],
            "hash": rng.integers(-(2**62), 2**62, rows),
            "user_id": rng.integers(0, 5, rows),
        }
    )


SOURCES = [
    *("csv", "tsv.gz", "jsonl", "jsonl.gz", "parquet", "arrow"),
    *("pandas", "polars", "pyarrow"),
]


@pytest.mark.parametrize("source", SOURCES)
def test_every_source_has_the_same_schema_and_ids(tmp_path, rng, source):
    data = frame(rng)
    table = pa.Table.from_pandas(data, preserve_index=False)
    path = tmp_path / f"in.{source}"
    if source == "csv":
        data.to_csv(path, index=False)
    elif source == "tsv.gz":
        data.to_csv(path, index=False, sep="\t", na_rep="NA")
    elif source.startswith("jsonl"):
        data.to_json(path, orient="records", lines=True)
    elif source == "parquet":
        pq.write_table(table, path, row_group_size=300)
    elif source == "arrow":
        with pa.ipc.new_file(path, table.schema) as writer:
            writer.write_table(table, 300)
    files = {"pandas": data, "polars": polars.from_pandas(data)}
    files["pyarrow"] = table
    ids = ["user", "item", "hash", "user_id"]
    numbers = ["age", "row", "gain"]
    with pytest.raises(DataError) as error:
        open_dataset(files.get(source, path))
    for name in ids + numbers:
        assert f"  {name!r}: " in str(error.value)
    opened = open_dataset(
        files.get(source, path),
        batch_size=512,
        categorical=ids,
        numeric=numbers,
        verbose=False,
    )
    assert opened.schema == Schema(
        [
            Column.label("label"),
            Column.sparse("user"),
            Column.sparse("item"),
            Column.dense("age"),
            Column.dense("row"),
            Column.dense("flag"),
            Column.dense("price"),
            Column.dense("gain"),
            Column.sparse("city", encoding="hash", strings_only=True),
            Column.sparse("zip", encoding="hash", strings_only=True),
            Column.sparse("hash"),
            Column.sparse("user_id"),
        ]
    )
    wanted = open_dataset(table, opened.schema, 512)
    for (found, label), (features, want) in zip(opened, wanted, strict=True):
        np.testing.assert_array_equal(label, want)
        for name, values in features.items():
            if opened.schema[name].kind == "dense":
                np.testing.assert_array_equal(found[name], values)
            else:
                assert found[name].to_list() == values.to_list()
