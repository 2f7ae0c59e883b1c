"""lodestar.data.Column: its attributes, and the combinations it refuses."""

import pytest

from lodestar.data import Column


def test_number_of_values_of_the_other_kinds():
    assert Column.sparse("s").num_values is None
    assert Column.sparse("s").multiple == 1
    for column in Column.label("l"), Column.one_hot("h", 7):
        assert (column.num_values, column.multiple) == (1, 1)


def test_defaults():
    column = Column.sparse("C1")
    assert (column.dtype, column.encoding, column.depth) == ("uint64", "int", 1)
    for field in "hash_as", "fill_value", "separator", "unit":
        assert getattr(column, field) is None
    assert column.positive == column.negative == ()
    assert not (column.rounded or column.strings_only or column.optional)
    assert Column.dense("I").shape == (1,)
    assert Column.dense("I", iter([2, 3])).shape == (2, 3)
    assert Column.dense("I").dtype == "float"
    assert Column.label("y").dtype == "uint64"
    assert Column.label("y", optional=True).dtype == "float"
    assert Column.sample_weight("w").dtype == "float"


def test_strings_of_a_label():
    one = Column.label("y", positive="yes", negative=["no", "never"])
    assert one.positive == ("yes",) and one.negative == ("no", "never")
    assert one.describe() == "binary label, 1 for 'yes', 0 for 'no' or 'never'"
    many = Column.label("y", positive="a", negative=list("bcdef"))
    assert many.describe().endswith("0 for 'b' or 'c' or 'd' and 2 others")


def test_which_columns_are_features():
    assert Column.sparse("s").is_feature and Column.dense("d").is_feature
    assert not Column.label("y").is_feature
    assert not Column.sample_weight("w").is_feature


def test_why_is_not_compared():
    assert Column.sparse("a", why="integers") == Column.sparse("a")
    assert hash(Column.sparse("a", why="integers")) == hash(Column.sparse("a"))
    assert Column.sparse("a") != Column.sparse("a", encoding="hash")


def test_a_missing_value_is_an_error():
    assert Column.label("y").missing_is_error
    assert Column.sample_weight("w").missing_is_error
    assert not Column.label("y", optional=True).missing_is_error
    assert Column.one_hot("h", 7).missing_is_error
    assert Column.dense("I", fill_value="error").missing_is_error
    assert Column.sparse("C", fill_value="error").missing_is_error
    for column in (
        Column.sparse("C"),
        Column.dense("I"),
        Column.dense("I", fill_value=-1.0),
    ):
        assert not column.missing_is_error
    nan = Column.dense("I", fill_value=float("nan"))
    assert nan == Column.dense("I", fill_value=float("nan"))
    assert repr(Column.dense("I", fill_value=-1).fill_value) == "-1.0"
    # A default that is given explicitly needs no entry in a schema file.
    assert Column.label("y", fill_value="error") == Column.label("y")
    assert Column.one_hot("h", 7, fill_value="error") == Column.one_hot("h", 7)


@pytest.mark.parametrize("name", ["", 7])
def test_a_name_is_a_string(name):
    with pytest.raises(ValueError, match=f"a non-empty string, got {name!r}"):
        Column(name, "sparse")


IDS_ONLY = "only a sparse id column can have `encoding`, got 'hash'"
BAD = [
    (Column, {"kind": "scalar"}, "`kind` must be one .*, got 'scalar'"),
    (Column.sparse, {"shape": (2,)}, "only a dense column can have `shape`"),
    (
        Column.dense,
        {"shape": 2},
        "`shape` must be a list of positive integers, .*, got 2",
    ),
    (Column.dense, {"size": 2}, "only a one-hot column can have `size`"),
    (Column.label, {"wide": True}, "can have `wide`"),
    (
        Column,
        {"kind": "one_hot", "dtype": "float", "size": 2},
        "a one_hot column has the dtype 'uint64'",
    ),
    (Column.sparse, {"used": 1}, "`used` must be True or False"),
    (
        Column.dense,
        {"weights_of": "b"},
        "'a': only a sparse float column can have `weights_of`, got 'b'",
    ),
    (
        Column.sparse,
        {"encoding": "md5"},
        "`encoding` must be one of .*, got 'md5",
    ),
    (Column.label, {"encoding": "hash"}, IDS_ONLY),
    (Column.dense, {"encoding": "hash"}, IDS_ONLY),
    (Column.one_hot, {"size": 2, "encoding": "hash"}, IDS_ONLY),
    (Column.sparse, {"dtype": "float", "encoding": "hash"}, IDS_ONLY),
    (Column.sparse, {"hash_as": "b"}, "the encoding 'hash' can have `hash_as`"),
    (
        Column.sparse,
        {"encoding": "hash", "hash_as": ""},
        "`hash_as` must be a non-empty string or None, got ''",
    ),
    (Column.sparse, {"fill_value": 0}, "must be 'error' or None, got 0"),
    (Column.label, {"fill_value": 0}, "must be 'error' or None, got 0"),
    *(
        (
            Column.dense,
            {"fill_value": value},
            f"`fill_value` must be a float32, 'error' or None, got {text}",
        )
        for value, text in (("zero", "'zero'"), (True, "True"), (1e39, "1e.39"))
    ),
    *(
        (
            Column.dense,
            {"dtype": "uint64", "fill_value": value},
            f"`fill_value` must be an int64, 'error' or None, got {value}",
        )
        for value in (0.5, 2**63)
    ),
    (
        Column.sparse,
        {"separator": ""},
        "`separator` must be a non-empty string or None, got ''",
    ),
    (
        Column.label,
        {"separator": "|"},
        "only a dense or sparse column can have `sep",
    ),
    (Column.sparse, {"unit": "h"}, "`unit` must be one of .*, got 'h'"),
    (
        Column.one_hot,
        {"size": 2, "unit": "s"},
        "only a dense or sparse column can have `unit`",
    ),
    (Column.sparse, {"positive": "yes"}, "only a label can have `positive`"),
    (
        Column.label,
        {"positive": 1},
        "`positive` must be a non-empty string or a list of them, got 1",
    ),
    (Column.label, {"positive": "yes"}, "`positive` and `negative` need each"),
    (
        Column.label,
        {"positive": "1", "negative": ["0", "1"]},
        "'1' is both `positive` and `negative`",
    ),
    (
        Column.label,
        {"optional": True, "dtype": "uint64"},
        "an `optional` label has the dtype 'float', got 'uint64'",
    ),
    (Column.dense, {"optional": True}, "only a label can have `optional`"),
    (Column.sparse, {"rounded": True}, "only a float column or a label can ha"),
    (
        Column.sparse,
        {"strings_only": True},
        "the encoding 'hash' can have `strings_only`, got True",
    ),
    (Column.dense, {"rounded": 1}, "`rounded` must be True or False, got 1"),
    (
        Column,
        {"kind": "sample_weight"},
        "a sample_weight column has the dtype 'float', got 'uint64'",
    ),
    (Column.sparse, {"depth": 3}, "must be 1, or 2 for a sparse column, got 3"),
    (Column.dense, {"depth": 2}, "must be 1, or 2 for a sparse column, got 2"),
]


@pytest.mark.parametrize("make, options, message", BAD)
def test_bad_columns_are_refused(make, options, message):
    with pytest.raises(ValueError, match=message):
        make("a", **options)
