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


@pytest.mark.parametrize(
    "make, message",
    [
        (lambda: Column("", "sparse"), "must be a non-empty string, got ''"),
        (lambda: Column(7, "sparse"), "must be a non-empty string, got 7"),
        (lambda: Column("a", "scalar"), "`kind` must be one .*, got 'scalar'"),
        (lambda: Column("a", "sparse", shape=(2,)), "only a dense column has"),
        (
            lambda: Column.dense("a", 2),
            "`shape` must be a list of positive integers, .*, got 2",
        ),
        (lambda: Column("a", "dense", size=2), "only a one-hot column has"),
        (lambda: Column("a", "label", wide=True), "can be `wide`"),
        (
            lambda: Column("a", "one_hot", dtype="float", size=2),
            "a one_hot column has the dtype 'uint64'",
        ),
        (lambda: Column.sparse("a", used=1), "`used` must be True or False"),
        (
            lambda: Column("a", "dense", weights_of="b"),
            "'a': only a sparse float column holds the weights of another, 'b'",
        ),
        (
            lambda: Column.sparse("a", encoding="md5"),
            "`encoding` must be one of .*, got 'md5'",
        ),
        *(
            (make, "only a sparse id column has the encoding 'hash'")
            for make in (
                lambda: Column.label("a", encoding="hash"),
                lambda: Column.dense("a", encoding="hash"),
                lambda: Column.one_hot("a", 2, encoding="hash"),
                lambda: Column.sparse("a", dtype="float", encoding="hash"),
            )
        ),
        (
            lambda: Column.sparse("a", hash_as="b"),
            "`hash_as` needs the encoding 'hash'",
        ),
        (
            lambda: Column.sparse("a", encoding="hash", hash_as=""),
            "`hash_as` must be a non-empty string or None, got ''",
        ),
        (
            lambda: Column.sparse("a", fill_value=0),
            "`fill_value` must be 'error' or None, got 0",
        ),
        (
            lambda: Column.label("a", fill_value=0),
            "`fill_value` must be 'error' or None, got 0",
        ),
        (
            lambda: Column.dense("a", fill_value="zero"),
            "`fill_value` must be a float32, 'error' or None, got 'zero'",
        ),
        (
            lambda: Column.dense("a", fill_value=True),
            "`fill_value` must be a float32, 'error' or None, got True",
        ),
        (
            lambda: Column.dense("a", dtype="uint64", fill_value=0.5),
            "`fill_value` must be an int64, 'error' or None, got 0.5",
        ),
        (
            lambda: Column.dense("a", dtype="uint64", fill_value=2**63),
            "`fill_value` must be an int64, 'error' or None, got 9223372036854775",
        ),
        (
            lambda: Column.dense("a", fill_value=1e39),
            r"`fill_value` must be a float32, 'error' or None, got 1e\+39",
        ),
        (
            lambda: Column.sparse("a", separator=""),
            "`separator` must be a non-empty string or None, got ''",
        ),
        (
            lambda: Column.label("a", separator="|"),
            "only a dense or sparse column has a `separator`",
        ),
        (
            lambda: Column.sparse("a", unit="h"),
            "`unit` must be one of .*, got 'h'",
        ),
        (
            lambda: Column.one_hot("a", 2, unit="s"),
            "only a dense or sparse column has a `unit`",
        ),
        (
            lambda: Column.sparse("a", positive="yes"),
            "only a label can have `positive`",
        ),
        (
            lambda: Column.label("a", positive=1),
            "`positive` must be a non-empty string or a list of them, got 1",
        ),
        (
            lambda: Column.label("a", positive="yes"),
            "`positive` and `negative` need each other",
        ),
        (
            lambda: Column.label("a", positive="1", negative=["0", "1"]),
            "'1' is both `positive` and `negative`",
        ),
        (
            lambda: Column.label("a", optional=True, dtype="uint64"),
            "an `optional` label has the dtype 'float', got 'uint64'",
        ),
        (
            lambda: Column.dense("a", optional=True),
            "only a label can have `optional`",
        ),
        (
            lambda: Column.sparse("a", rounded=True),
            "only a float column or a label can be `rounded`",
        ),
        (
            lambda: Column.sparse("a", strings_only=True),
            "`strings_only` needs the encoding 'hash'",
        ),
        (
            lambda: Column.dense("a", rounded=1),
            "`rounded` must be True or False, got 1",
        ),
        (
            lambda: Column("w", "sample_weight"),
            "a sample_weight column has the dtype 'float', got 'uint64'",
        ),
        (
            lambda: Column.sparse("a", depth=3),
            "`depth` must be 1, or 2 for a sparse column, got 3",
        ),
        (
            lambda: Column.dense("a", depth=2),
            "`depth` must be 1, or 2 for a sparse column, got 2",
        ),
    ],
)
def test_bad_columns_are_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()
