"""lodestar.data.schema.infer: one inference rule for every source."""

import datetime
import decimal

import numpy as np
import pandas
import polars
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lodestar.data import Column, DataError, Schema, open_dataset
from lodestar.data.schema.infer import infer_schema, parse_label


def infer(values, name="x", **options):
    """Infers the only column of a sample."""
    if not isinstance(values, (pa.Array, pa.ChunkedArray)):
        values = pa.array(values)
    (column,) = infer_schema(pa.table({name: values}), "t", **options)
    return column


def kind(values, name="x"):
    """Returns "ids", "number" or "unclear"."""
    try:
        column = infer(values, name)
    except DataError as error:
        assert "do not show what a column is" in str(error)
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
    ("name", "make", "wanted"),
    [
        # As in a log of views: many values, each repeated.
        ("user", lambda rng: some(rng, 943, 20_000), "ids"),
        ("item", lambda rng: np.minimum(rng.zipf(1.2, 9000), 1682), "ids"),
        ("from_0", lambda rng: rng.zipf(1.2, 50_000) % 4000, "ids"),
        ("few", lambda rng: some(rng, 129, 129 * 4), "ids"),
        # As in a census.
        ("age", lambda rng: some(rng, 73, 30_000), "number"),
        ("month", lambda rng: some(rng, 10, 1000), "number"),
        ("weight", lambda rng: some(rng, 9000, 13_000), "number"),
        ("row", lambda rng: np.arange(1, 20_000), "number"),
        # Too few rows to decide.
        ("month", lambda rng: some(rng, 10, 300), "unclear"),
        ("few", lambda rng: some(rng, 128, 128 * 4), "unclear"),
        ("few", lambda rng: some(rng, 129, 129 * 4 - 1), "unclear"),
        ("one", lambda rng: [7] * 999, "unclear"),
        ("one", lambda rng: [7] * 1000, "number"),
        # Flags, counts, and numbers that may be negative.
        ("flag", lambda rng: [0, 1, 1], "number"),
        ("count", lambda rng: [0, 0, 0, 9, 4], "number"),
        (
            "gain",
            lambda rng: some(rng, 900, 9000) * (rng.random(9000) < 0.4),
            "number",
        ),
        ("change", lambda rng: some(rng, 900, 9000) - 450, "number"),
        # Columns whose names indicate ids.
        ("user_id", lambda rng: some(rng, 5, 20), "ids"),
        ("movieId", lambda rng: some(rng, 5, 20), "ids"),
        ("ID", lambda rng: some(rng, 5, 20), "ids"),
        ("user.ids", lambda rng: np.arange(2000), "ids"),
        ("userID", lambda rng: [0, 1, 0, -1], "ids"),
        ("paid", lambda rng: some(rng, 5, 20), "unclear"),
        ("idle", lambda rng: some(rng, 5, 20), "unclear"),
        ("Druid", lambda rng: some(rng, 5, 20), "unclear"),
        # Digits that are unlikely in numbers.
        ("hash", lambda rng: [2**50 + 1, -(2**51)], "ids"),
        ("stamp", lambda rng: [10**12, 10**13], "unclear"),
    ],
)
def test_integers_in_every_form(rng, name, make, wanted):
    values = [int(i) for i in make(rng)]
    for form in forms(values):
        assert kind(form, name) == wanted, form.type


@pytest.mark.parametrize(
    ("values", "wanted"),
    [
        (["a", "b", None], "ids"),
        (["a", "7"], "ids"),
        ([b"\xff", b"a"], "ids"),
        (["02139", "10001", ""], "ids"),
        (["0", "10", "0", "0"], "number"),
        (["9" * 5000, "1"], "ids"),
        (["7.0", "8."], "number"),
        (["1e3", "-.5", None], "number"),
        ([" 0.5", "1 "], "number"),
        (["True", "false", None], "number"),
        ([True, None], "number"),
        ([0.5, 7.0], "number"),
        ([7.0, 8.0], "number"),
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
        ([[1, 2], []], "ids"),
        ([["a"], None], "ids"),
        ([[0.5], []], "number"),
        ([[True], []], "number"),
        ([["[1]"]], "ids"),
        (["[1, 2]", "[]", None], "ids"),
        (['["a"]', "[]"], "ids"),
        (["[0.5, 1]", "[2]"], "number"),
        (["[a]", "[b]"], "ids"),
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


def test_integral_floats_with_the_name_of_an_id():
    for values in ([7.0, 8.0], ["7.0", "8."], pa.array([7.0], pa.float32())):
        assert infer(values, "user_id") == Column.sparse("user_id")
    assert kind([7.5], "user_id") == kind(["7.5"], "user_id") == "number"


def test_numbers_among_which_is_text():
    values = [str(i / 4) for i in range(95)] + ["n.a."] * 5
    with pytest.raises(DataError) as error:
        infer(values)
    assert (
        "'x': 95.0% of the values are numbers, but others are 'n.a.' (missing "
        "values are named by `na_values`)" in str(error.value)
    )
    assert infer(values, na_values=["n.a."]).kind == "dense"
    assert infer(values, categorical=["x"]).encoding == "hash"
    assert kind(values[51:]) == "ids"  # less than 90 %


@pytest.mark.parametrize(
    ("values", "column"),
    [
        ([7, 8], Column.sparse("x")),
        ([7.0, None], Column.sparse("x")),
        (["7", "8.0", "-9", ""], Column.sparse("x")),
        (["7", "a"], Column.sparse("x", encoding="hash")),
        (["007", "8"], Column.sparse("x", encoding="hash")),
        ([str(2**64)], Column.sparse("x", encoding="hash")),
        ([str(2**64 - 1)], Column.sparse("x")),
        ([f"{2**64 - 1}.0", "-9"], Column.sparse("x")),
        ([str(-(2**63)), "1."], Column.sparse("x")),
        ([str(-(2**63) - 1)], Column.sparse("x", encoding="hash")),
        (pa.array([2**64 - 1], pa.uint64()), Column.sparse("x")),
        (pa.array(["7"]).dictionary_encode(), Column.sparse("x")),
        ([[7], [8, 9]], Column.sparse("x")),
        ([["a"]], Column.sparse("x", encoding="hash")),
        ([[[7]], []], Column.sparse("x", depth=2)),
        (["[7]", "[]"], Column.sparse("x", separator="json")),
        (
            ['["a"]'],
            Column.sparse("x", separator="json", encoding="hash"),
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
    ("values", "positive"),
    [
        (["yes", "no"], "yes"),
        ([" yes.", "no."], "yes"),
        ([1, 2], "2"),
        ([1.0, 2.0], "2"),
        ([True, False], "true"),
        (pa.array(["yes", "no"]).dictionary_encode(), "yes"),
    ],
    ids=str,
)
def test_positive_labels(values, positive):
    column = infer(values, "y", label=f"y={positive}")
    assert column == Column.label("y", positive=positive)
    with pytest.raises(
        DataError, match="column 'y': no label is 'maybe'; found"
    ):
        infer(values, "y", label="y=maybe")


def test_which_column_is_the_label():
    table = pa.table({"a": [0.5], "label": [1], "a=b": [0]})
    assert infer_schema(table, "t").names() == ["label", "a", "a=b"]
    schema = infer_schema(table, "t", label="a=b")
    assert schema.names("label") == ["a=b"]
    assert infer_schema(table, "t", label="a").names("label") == ["a"]
    table = table.drop_columns("label")
    assert infer_schema(table, "t").names("label") == []
    assert parse_label("Salary=>=50K") == ("Salary", ">=50K")


def test_the_reason_is_kept():
    table = pa.table(
        {"user_id": [7, 8], "x": [0.5, 1], "y": [1, 0], "c": [1, 2]}
    )
    schema = infer_schema(table, "a.csv", label="y", categorical=["c"])
    assert [c.why for c in schema] == [
        "all labels are 0 or 1 (2 rows of a.csv)",
        "integers with the name of an id (2 rows of a.csv)",
        "numbers (2 rows of a.csv)",
        "named in `categorical`",
    ]
    assert schema.na_values == Schema([Column.sparse("x")]).na_values
    assert infer_schema(table, "t", label="y", categorical=["c"],
                        na_values=["-"]).na_values == ("-",)  # fmt: skip


@pytest.mark.parametrize(
    ("table", "options", "text"),
    [
        ({}, {}, "t: has no columns"),
        ({"a": [1.5]}, {"label": "b"}, "has no column 'b'; its columns are a"),
        ({"a": [1.5]}, {"numeric": ["b"]}, "t: has no column 'b'"),
        ({"a": [1.5]}, {"categorical": ["b"]}, "t: has no column 'b'"),
        (
            {"x": [1.5]},
            {"numeric": ["x"], "categorical": ["x"]},
            "column 'x' is in both `categorical` and `numeric`",
        ),
        (
            {"x": [1.5], "y": [1.5]},
            {"label": "y", "numeric": ["y"]},
            "column 'y' is the label",
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
        ({"x": [{"a": 1}]}, {}, "column 'x': found the type struct"),
        ({"x": [[[[1]]]]}, {}, "column 'x': found the type list<item: list"),
        (
            {
                "x": [1, 2],
                "z": [None, None],
                "t": [datetime.date(2026, 1, 1)] * 2,
            },
            {},
            "t: 2 rows do not show what these columns are: 'x': 2 distinct "
            "integers in 2 values; 'z': every value is missing; 't': "
            "date32[day] needs a unit, in a `schema`, e.g. "
            "Column.dense('t', dtype='uint64', unit='D'). "
            "Name them in `categorical` (ids) or `numeric`, e.g. categorical="
            "['x', 'z'], or give a `schema`",
        ),
    ],
    ids=str,
)
def test_errors_name_the_cause(table, options, text):
    with pytest.raises(DataError) as error:
        infer_schema(pa.table(table), "t", **options)
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
    opened = open_dataset(
        files.get(source, path), batch_size=512, verbose=False
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
            Column.sparse("city", encoding="hash"),
            Column.sparse("zip", encoding="hash"),
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
