"""lodestar.data.arrow.row_source: struct fields, partitions and splits."""

import numpy as np
import pyarrow as pa
import pytest
from arrow_cases import as_lists

from lodestar.data import Column, DataError
from lodestar.data.arrow.row_source import (
    columns_of,
    partitions_of,
    read_rows,
    split_sources,
    split_sources_by,
)
from lodestar.data.arrow.table_source import TableSource
from lodestar.data.binding import Binding, bind
from lodestar.schema.schema import NA_VALUES


def rows_of(source, *columns):
    """Returns the rows of all groups, one list per column; no row may be bad."""
    found = [[] for _ in columns]
    for group in range(len(source.row_groups)):
        rows = read_rows(source, group, bind(columns), NA_VALUES)
        assert not rows.bad and rows.num_rows == source.row_groups[group]
        for values, column in zip(found, rows.columns.values()):
            values += as_lists(column)
    return found


STRUCTS = pa.table(
    {
        "user": pa.array(
            [
                {"id": 7, "home": {"zip": "0150", "at": [1.5, 2.5]}},
                {"id": None, "home": None},
                None,
                {"id": 8, "home": {"zip": None, "at": None}},
            ]
        ),
        "a.b": [1, 2, 3, 4],
        "a": [{"b": "5", "c": 6}] * 4,
    }
)


@pytest.mark.parametrize("chunked", [False, True])
def test_fields_of_structs(chunked):
    table = STRUCTS
    if chunked:
        table = pa.concat_tables([table[:1], table[1:3], table[3:]])
    source = TableSource("t", table)
    zips = Column.sparse("user.home.zip")
    found = rows_of(
        source,
        Column.sparse("user.id"),
        zips,
        Column.dense("user.home.at", (2,), fill_value=-1),
        Column.sparse("a.c"),
    )
    assert found == [
        [[7], [], [], [8]],
        [[150], [], [], []],
        [[1.5, 2.5], [-1, -1], [-1, -1], [-1, -1]],
        [[6]] * 4,
    ]
    # A column with this name precedes a field.
    assert rows_of(source, Column.sparse("a.b")) == [[[1], [2], [3], [4]]]
    assert source.types["a.b"] == pa.int64()
    # Data outside a slice is not read.
    assert rows_of(TableSource("t", table[2:]), zips) == [[[], []]]


def test_names_are_checked():
    source = TableSource("t", STRUCTS)
    source.check_names(["user.home.zip", "a.b", "user"])
    with pytest.raises(DataError) as error:
        source.check_names(["user.zip", "b"])
    assert str(error.value) == (
        "t: has no column 'user.zip', 'b'; its columns are user, a.b, a"
    )
    twice = TableSource("t", pa.table([[1], [2]], names=["C", "C"]))
    with pytest.raises(DataError, match="t: has 2 columns named 'C'"):
        twice.check_names(["C"])


def test_partitions_of_a_path():
    path = (
        "/data/day=2026-01-31/city=%C3%98st%2Ffold/x=__HIVE_DEFAULT_PARTITION__"
    )
    assert partitions_of(f"{path}/y=/=z/part-0.parquet") == {
        "day": "2026-01-31",
        "city": "Øst/fold",
        "x": None,
        "y": "",
    }
    assert partitions_of("/data/a=b.parquet") == {}
    assert partitions_of("a=1/a=2/b") == {"a": "2"}


def test_partition_values_are_columns():
    source = TableSource("t", pa.table({"C": [1, 2]}))
    source.partitions = {"day": "7", "city": None, "C": "9"}
    columns = [Column.sparse(name) for name in ("day", "city", "C")]
    # A column of the file takes precedence over the path.
    assert rows_of(source, *columns) == [[[7]] * 2, [[], []], [[1], [2]]]
    assert source.types["day"] == pa.string()
    assert source.types["C"] == pa.int64()


def test_columns_in_any_order_and_more_than_once():
    table = pa.table({"a": [1], "b": [2]})
    found = columns_of(table, ["b", "p", "a"], {"p": "x"})
    assert found.to_pydict() == {"b": [2], "p": ["x"], "a": [1]}
    bindings = [
        Binding(Column.sparse("x"), "a"),
        Binding(Column.dense("y"), "a"),
    ]
    rows = read_rows(TableSource("t", table), 0, bindings, ())
    assert [as_lists(c) for c in rows.columns.values()] == [[[1]], [[1.0]]]


def test_bad_rows_are_named_by_their_place_in_the_source(monkeypatch):
    monkeypatch.setattr("lodestar.data.arrow.table_source._GROUP_ROWS", 3)
    source = TableSource("t", pa.table({"C": ["1"] * 7 + ["a"]}))
    assert source.row_groups == (3, 3, 2)
    rows = read_rows(source, 2, bind([Column.sparse("C")]), ())
    assert rows.bad[1].text == (
        "row 7: column 'C': found 'a', expected an integer of 64 bits"
    )
    with pytest.raises(
        DataError, match="^t: column 'C': found the type struct"
    ):
        read_rows(
            TableSource("t", pa.table({"C": [{"a": 1}]})),
            0,
            bind([Column.sparse("C")]),
            (),
        )


@pytest.fixture
def many(monkeypatch):
    monkeypatch.setattr("lodestar.data.arrow.table_source._GROUP_ROWS", 30)
    return TableSource("t", pa.table({"n": range(100)}))


def split(source, held, seed=0):
    """Returns the values of each part; `source` may be a list."""
    sources = source if isinstance(source, list) else [source]
    return [
        [n for s in part for n in sum(rows_of(s, Column.sparse("n"))[0], [])]
        for part in split_sources(sources, held, seed)
    ]


@pytest.mark.parametrize("held", [0.001, 0.1, 0.5, 0.9, 0.999])
def test_a_split_is_disjoint_and_complete(many, held):
    rest, part = split(many, held)
    assert sorted(rest + part) == list(range(100))
    assert len(part) == int(100 * held)
    # Rows keep their order.
    assert rest == sorted(rest) and part == sorted(part)


def test_a_split_depends_on_the_seed_and_positions(many, monkeypatch):
    found = split(many, 0.4)
    assert split(many, 0.4) == found
    assert split(many, 0.4, seed=1) != found
    # Groups and files make no difference.
    monkeypatch.setattr("lodestar.data.arrow.table_source._GROUP_ROWS", 7)
    files = [
        TableSource("t", pa.table({"n": range(begin, end)}))
        for begin, end in ((0, 41), (41, 41), (41, 100))
    ]
    assert split(files, 0.4) == found
    # Longer runs of rows are split one by one.
    monkeypatch.setattr("lodestar.data.arrow.row_source._SPLIT_ROWS", 32)
    _, part = split(files, 0.25)
    assert [sum(n // 32 == i for n in part) for i in range(3)] == [8] * 3


@pytest.mark.parametrize(
    "values",
    [
        [i % 9 for i in range(100)],
        [f"user {i % 9}" for i in range(100)],
        pa.array([i % 9 for i in range(100)], pa.int8()),
    ],
    ids=["int64", "string", "int8"],
)
def test_a_split_by_a_column(values, monkeypatch):
    monkeypatch.setattr("lodestar.data.arrow.table_source._GROUP_ROWS", 30)
    table = pa.table({"n": range(100), "user": values})
    parts = split_sources_by([TableSource("t", table)], "user", 0.4, 3, None)
    found = [
        {n % 9 for s in p for n in sum(rows_of(s, Column.sparse("n"))[0], [])}
        for p in parts
    ]
    assert found[0] | found[1] == set(range(9)) and not found[0] & found[1]
    assert found[0] and found[1]
    counts = [sum(s.num_rows for s in part) for part in parts]
    assert sum(counts) == 100
    other = split_sources_by([TableSource("t", table)], "user", 0.4, 4, None)
    assert [s.row_groups for s in other[1]] != [s.row_groups for s in parts[1]]


def test_rows_without_the_value_to_split_by():
    table = pa.table({"user": ["a", None, "b"]})
    source = TableSource("t", table)
    with pytest.raises(
        DataError, match="row 1: column 'user': found a missing"
    ):
        split_sources_by([source], "user", 0.5, 0, None)
    rest, _ = split_sources_by([source], "user", 0.5, 0, lambda *_: None)
    assert rest[0].num_rows >= 1
    lists = TableSource("t", pa.table({"user": [["a", "b"]]}))
    with pytest.raises(DataError, match="needs one value per row"):
        split_sources_by([lists], "user", 0.5, 0, None)
    with pytest.raises(DataError, match="has no column 'x'"):
        split_sources_by([source], "x", 0.5, 0, None)


def test_a_split_names_rows_of_the_source(many):
    for (part,) in split_sources([many], 0.3, 0):
        numbers = sum(rows_of(part, Column.sparse("n"))[0], [])
        places = [
            part.where(group, row)
            for group, rows in enumerate(part.row_groups)
            for row in range(rows)
        ]
        assert places == [f"row {n}" for n in numbers]


class Unparsed(TableSource):
    """A source whose even rows cannot be parsed."""

    def table(self, group, bindings):
        table, _ = super().table(group, bindings)
        rows = range(0, table.num_rows, 2)
        return table, {row: f"is bad {row}" for row in rows}


def test_rows_that_cannot_be_parsed_keep_their_place_in_a_split():
    source = Unparsed("t", pa.table({"n": range(20)}))
    bindings = bind([Column.sparse("n")])
    bad = []
    for (part,) in split_sources([source], 0.5, 0):
        rows = read_rows(part, 0, bindings, ())
        numbers = np.concatenate(as_lists(rows.columns[0]))
        for row, fault in rows.bad.items():
            assert fault.text == f"row {numbers[row]}: is bad {numbers[row]}"
        bad += numbers[list(rows.bad)].tolist()
    assert sorted(bad) == list(range(0, 20, 2))
