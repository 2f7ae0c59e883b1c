"""lodestar.data.Schema: its columns, their weights, and the table of str()."""

import pytest

from lodestar.data import Column, Schema
from lodestar.schema.schema import NA_VALUES


def test_weights_pair_a_float_column_with_an_id_column():
    plain = Schema(
        [
            Column.sparse("w1", dtype="float"),
            Column.sparse("C1"),
            Column.sparse("C2"),
            Column.sparse("w2", dtype="float"),
        ]
    )
    assert plain.weights == {}
    assert plain.with_weights({}) == plain
    both = plain.with_weights({"C2": "w2", "C1": "w1"})
    assert both["w1"] == Column.sparse("w1", dtype="float", weights_of="C1")
    assert both.weights == {"C1": "w1", "C2": "w2"}
    assert plain.with_weights({"C1": "w1", "C2": "w2"}) == both
    assert plain.with_weights({"C1": "w1"}).with_weights({"C2": "w2"}) == both
    both.weights.clear()
    assert both.weights == {"C1": "w1", "C2": "w2"}


@pytest.mark.parametrize(
    "weights, message",
    [
        ({"C9": "w1"}, "`weights`: 'C9' is not a declared column; .* C1, C2"),
        ({"C1": "w9"}, "`weights`: 'w9' is not a declared column"),
        ({"C1": "C2"}, "'C2': only a sparse float column can have `weigh"),
        ({"C1": "I"}, "'I': only a sparse float column can have `weigh"),
        ({"w1": "w2"}, "of 'w1', which is not a sparse id column but a sparse"),
        ({"w1": "w1"}, "of 'w1', which is not a sparse id column but a sparse"),
        (
            {"I": "w1"},
            "which is not a sparse id column but a dense column of fl",
        ),
        (
            {"C1": "w1", "C2": "w1"},
            "'w1' cannot hold .* it already holds weights of 'C1",
        ),
        ({"C3": "w1"}, "'w1' cannot hold the weights of 'C3': 'w3' holds them"),
        ({"C1": "w3"}, "'w3' cannot hold .* it already holds weights of 'C3'"),
    ],
)
def test_bad_weights_are_refused(weights, message):
    schema = Schema(
        [Column.dense("I"), *map(Column.sparse, ("C1", "C2", "C3"))]
        + [Column.sparse(name, dtype="float") for name in ("w1", "w2")]
        + [Column.sparse("w3", dtype="float", weights_of="C3")]
    )
    with pytest.raises(ValueError, match=message):
        schema.with_weights(weights)


A = Column.sparse("a")
WEIGHTS = Column.sparse("w", dtype="float", weights_of="b")


@pytest.mark.parametrize(
    "columns, options, message",
    [
        ([A, WEIGHTS], {}, "weights of 'b', which is not a declared column"),
        ([], {}, "at least one column"),
        ([Column.sparse("a", used=False)], {}, "one used column"),
        ([A, A], {}, "'a' is declared twice"),
        ([A], {"na_values": "NA"}, "`na_values` must be a list of strings"),
        ([A], {"na_values": [0]}, "`na_values` must be a list of strings"),
    ],
)
def test_bad_schemas_are_refused(columns, options, message):
    with pytest.raises(ValueError, match=message):
        Schema(columns, **options)


def test_a_schema_takes_columns_only():
    with pytest.raises(TypeError, match="takes Columns, got 'C1'"):
        Schema(["C1"])


def test_na_values():
    columns = [Column.sparse("a")]
    assert Schema(columns).na_values == NA_VALUES
    schema = Schema(columns, na_values=["-", "none", "-"])
    assert schema.na_values == ("-", "none")
    assert schema == Schema(columns, na_values=["none", "-"])
    assert schema != Schema(columns)
    assert hash(schema) == hash(Schema(columns, na_values=["none", "-"]))
    other = schema.replace([Column.sparse("b")])
    assert other == Schema([Column.sparse("b")], na_values=["-", "none"])
    assert schema.with_weights({}).na_values == schema.na_values


def test_str_lists_the_kind_of_each_column():
    schema = Schema(
        [
            Column.label("click", why="the name of a label"),
            Column.label("won", positive="yes", negative="no"),
            Column.label("rating", dtype="float", binary=False),
            Column.sparse("item", why="integers"),
            Column.sparse("city", encoding="hash", used=False),
            Column.sparse("hexes", encoding="hex"),
            Column.sparse("path", depth=2),
            Column.sparse("w", dtype="float", weights_of="item"),
            Column.sparse("scores", dtype="float"),
            Column.dense("price"),
            Column.dense("image", [2, -1]),
            Column.dense("count", dtype="uint64"),
            Column.one_hot("weekday", 7),
        ]
    )
    assert (
        str(schema)
        == """\
column   kind                                   why
click    binary label                           the name of a label
won      binary label, 1 for 'yes', 0 for 'no'  declared
rating   label                                  declared
item     ids                                    integers
city     unused ids, hash                       declared
hexes    ids, hex                               declared
path     ids, lists of lists                    declared
w        weights of 'item'                      declared
scores   floats                                 declared
price    dense                                  declared
image    dense [2, -1]                          declared
count    dense of integers                      declared
weekday  one-hot vector of 7                    declared"""
    )
