"""ExampleSource: what the features of tf.Examples mean.

Equal values are equal ids, however a tf.Example stores them.
"""

import numpy as np
import pytest
import tensorflow as tf
from example_cases import open_examples, records

from lodestar import hash_ids
from lodestar.data import Column, Schema, SkippedRecords

NAN = float("nan")


def write(tmp_path, column, *values):
    """Writes records of a column; None is a missing feature."""
    return records(
        tmp_path / "a.tfrecord",
        *({} if v is None else {column.name: v} for v in values),
    )


def read(tmp_path, column, *values, **options):
    """Writes records of a column and returns the values read."""
    path = write(tmp_path, column, *values)
    schema = Schema([column], **options)
    (found,) = open_examples(path, schema, len(values), as_columns=True)
    if column.kind == "sparse":
        return tf.RaggedTensor.from_row_splits(*found["c"]).to_list()
    return found["c"].numpy().tolist()


def hashed(texts, column="c"):
    return hash_ids(texts, column=column).numpy().tolist()


@pytest.mark.parametrize(
    "values",
    [
        [7, [8, -9], []],
        ["7", ["8", "-9"], []],
        [7.0, [8.0, -9.0], []],
        [" 7 ", ["+008.", "-9.00"], "NA"],
        [["7", "", "NULL"], ["8", "?", "-9"], ["nan"]],
        [[7.0, NAN], [8.0, -9.0], NAN],
    ],
)
def test_integers_are_the_same_ids(tmp_path, values):
    assert read(tmp_path, Column.sparse("c"), *values) == [[7], [8, -9], []]
    texts = [hashed(["7"]), hashed(["8", "-9"]), []]
    if not isinstance(values[0], str) or values[0] == "7":
        column = Column.sparse("c", encoding="hash")
        assert read(tmp_path, column, *values) == texts


@pytest.mark.parametrize(
    "text, wanted",
    [
        ("0", 0),
        ("-0", 0),
        ("000", 0),
        ("9999999999", 9999999999),
        ("10000000000", 10**10),
        (str(2**63 - 1), 2**63 - 1),
        (str(2**63), -(2**63)),
        (str(-(2**63)), -(2**63)),
        (str(2**64 - 1), -1),
        ("0000" + str(2**64 - 1), -1),
        ("true", 1),
        ("False", 0),
        (" 0xFF ", 255),
        ("0xffffffffffffffff", -1),
    ],
)
def test_decimal_text(tmp_path, text, wanted):
    assert read(tmp_path, Column.sparse("c"), text, "1") == [[wanted], [1]]


@pytest.mark.parametrize(
    "text",
    [
        str(2**64),
        str(-(2**63) - 1),
        "1" + "0" * 20,
        "1.5",
        "1e3",
        "x",
        "1 2",
        "1_000",
        "--1",
        ".",
        "0x",
        "ff",
        "\u0661",
        b"\xff",
    ],
)
def test_other_text_is_not_an_integer(tmp_path, text):
    with pytest.raises(
        tf.errors.InvalidArgumentError,
        match=r"a\.tfrecord: record 1: column 'c': found .*, expected an integer",
    ):
        read(tmp_path, Column.sparse("c"), [], ["5", text], "6")


def test_random_integers(tmp_path):
    rng = np.random.default_rng(1)
    numbers = rng.integers(-(2**63), 2**63, 500, np.int64)
    numbers >>= rng.integers(0, 63, 500)
    texts = [str(n) for n in numbers]
    assert read(tmp_path, Column.sparse("c"), texts) == [numbers.tolist()]
    unsigned = [str(n) for n in numbers.view(np.uint64)]
    assert read(tmp_path, Column.sparse("c"), unsigned) == [numbers.tolist()]
    hexes = [f"{n:x}" for n in numbers.view(np.uint64)]
    column = Column.sparse("c", encoding="hex")
    assert read(tmp_path, column, hexes) == [numbers.tolist()]


@pytest.mark.parametrize("number", [0.5, 2.0**24 + 2, float("inf"), 1e30])
def test_other_floats_are_not_integers(tmp_path, number):
    for encoding in "int", "hash":
        with pytest.raises(
            tf.errors.InvalidArgumentError, match="expected a.* integer"
        ):
            read(tmp_path, Column.sparse("c", encoding=encoding), 1.0, number)


def test_hexadecimal_text(tmp_path):
    column = Column.sparse("c", encoding="hex")
    texts = ["ff", "0x1A", " 0 ", "ffffffffffffffff", "0000000000000000007b"]
    assert read(tmp_path, column, *texts) == [[255], [26], [0], [-1], [123]]
    assert read(tmp_path, column, 255) == [[255]]
    for text in "10000000000000000", "xyz", "0x":
        with pytest.raises(tf.errors.InvalidArgumentError, match="a hexadecim"):
            read(tmp_path, column, text)


def test_strings_are_hashed(tmp_path):
    column = Column.sparse(
        "c", encoding="hash", hash_as="other", strings_only=True
    )
    found = read(tmp_path, column, ["Oslo", " NA", " 007\t"], None, "Łódź")
    assert found == [
        hashed(["Oslo", "007"], "other"),
        [],
        hashed(["Łódź"], "other"),
    ]
    found = read(tmp_path, column, ["NA", "-"], na_values=["-"])
    assert found == [hashed(["NA"], "other")]
    assert read(tmp_path, column, ["NA", ""], na_values=[]) == [
        hashed(["NA", ""], "other")
    ]


def test_separated_strings(tmp_path):
    column = Column.sparse("c", separator="||")
    found = read(tmp_path, column, " 1|| 2||", " NA ", ["3", "4||NA||5"], None)
    assert found == [[1, 2], [], [3, 4, 5], []]
    column = Column.sparse("c", separator=",", encoding="hash")
    assert read(tmp_path, column, "a,b", "a") == [
        hashed(["a", "b"]),
        hashed(["a"]),
    ]
    column = Column.dense("c", [2], separator=";", fill_value=-1)
    found = read(tmp_path, column, "1;2.5", "NA", "NA;4")
    assert found == [[1, 2.5], [-1, -1], [-1, 4]]
    # Lists of numbers need no separator.
    assert read(tmp_path, column, [1.0, 2.5]) == [[1, 2.5]]


@pytest.mark.parametrize(
    "values",
    [
        [[1.0, 2.0], None],
        [[1, 2], None],
        [["1", " 2.0"], None],
        [["1e0", "2"], []],
        [[1.0, 2.0], ["NA", "NULL"]][:1] + [None],
    ],
)
@pytest.mark.parametrize("missing", [None, -1.5])
def test_dense_floats(tmp_path, values, missing):
    column = Column.dense("c", [2], fill_value=missing)
    fill = missing or 0.0
    assert read(tmp_path, column, *values) == [[1, 2], [fill, fill]]


def test_dense_integers(tmp_path):
    column = Column.dense("c", [1], dtype="uint64", fill_value=2**62)
    for values in [7, None], ["7", "NA"], [7.0, NAN], [7.0, None]:
        assert read(tmp_path, column, *values) == [[7], [2**62]]


def test_a_nan_of_a_dense_column_is_missing(tmp_path):
    for values in [NAN, 1.0], ["nan", "1"]:
        column = Column.dense("c", fill_value=-1)
        assert read(tmp_path, column, *values) == [[-1], [1]]
    found = read(tmp_path, Column.sparse("c", dtype="float"), [1.0, NAN])
    assert np.isnan(found[0][1])


def test_labels(tmp_path):
    for values in [1, 0], [1.0, 0.0], ["1", "0"], ["true", "FALSE"]:
        assert read(tmp_path, Column.label("c"), *values) == [[1], [0]]
        column = Column.label("c", dtype="float")
        assert read(tmp_path, column, *values) == [[1.0], [0.0]]
    column = Column.label("c", positive=(">50K", ">50K."), negative="<=50K")
    assert read(tmp_path, column, " >50K.", "<=50K", ">50K") == [[1], [0], [1]]
    column = Column.label("c", positive="2", negative="1", dtype="float")
    for values in [2, 1], [2.0, 1.0], ["2", "1"]:
        assert read(tmp_path, column, *values) == [[1.0], [0.0]]
    column = Column.label("c", positive="0.5", negative="1")
    assert read(tmp_path, column, 0.5, 1.0) == [[1], [0]]
    column = Column.one_hot("c", 3)
    for values in [2, 0], [2.0, 0.0], ["2", "0"]:
        assert read(tmp_path, column, *values) == [2, 0]


@pytest.mark.parametrize(
    "column",
    [
        Column.label("c"),
        Column.label("c", positive="1", negative="2"),
        Column.one_hot("c", 3),
        Column.dense("c", fill_value="error"),
        Column.sparse("c", fill_value="error"),
        Column.sparse("c", fill_value="error", encoding="hash"),
    ],
    ids=str,
)
@pytest.mark.parametrize("good", [1, 1.0, "1"])
@pytest.mark.parametrize("bad", [None, "NA"])
def test_a_missing_value_is_an_error(tmp_path, column, good, bad):
    if bad == "NA" and not isinstance(good, str):
        bad = []
    with pytest.raises(
        tf.errors.InvalidArgumentError, match=r"d: record 1\b.*c"
    ):
        read(tmp_path, column, good, bad)


@pytest.mark.parametrize(
    "column, values, message",
    [
        (
            Column.dense("c", [2]),
            ["1", ["1", "2"]],
            "found 1 values, expected 2",
        ),
        (Column.dense("c", [2]), [1, [1, 2]], "found 1 values, expected 2"),
        (
            Column.dense("c"),
            ["1", "x"],
            "1: column 'c': found 'x', expected a float32",
        ),
        (Column.dense("c"), ["1e39"], "found '1e39', expected a float32"),
        (Column.label("c"), ["2"], "found 2, expected 0 or 1"),
        (Column.label("c"), ["yes"], "found 'yes', expected 0 or 1"),
        (
            Column.one_hot("c", 3),
            [0.0, 3.0],
            "found 3, expected an integer in .0, 2.",
        ),
        (Column.one_hot("c", 3), [["1", "2"]], "found 2 values, expected 1"),
        (
            Column.sparse("c"),
            [1, "1"],
            "1: column 'c': found a bytes_list, expected an int64_list as in",
        ),
    ],
)
def test_values_that_contradict_the_schema(tmp_path, column, values, message):
    with pytest.raises(tf.errors.InvalidArgumentError, match=message):
        read(tmp_path, column, *values)


def test_datasets_of_strings(tmp_path):
    column = Column.sparse("c", separator="|")
    path = write(tmp_path, column, "1|true", "x", None, "NA", ["0x10", "7.0"])
    with pytest.raises(
        tf.errors.InvalidArgumentError, match="1: column 'c': fo"
    ):
        list(open_examples(path, [column], 5))
    skipped = SkippedRecords()
    (features,) = open_examples(
        path, [column], 5, on_error="skip", skipped=skipped
    )
    assert features["c"].to_list() == [[1, 1], [], [], [16, 7]]
    assert skipped.messages == [
        f"{path}: record 1: column 'c': found 'x', expected an integer of 64 "
        "bits"
    ]


def test_json(tmp_path):
    json = Column.sparse("c", separator="json")
    found = read(tmp_path, json, "[1, 2]", ["[3]", "[4]", "NA"], None)
    assert found == [[1, 2], [3, 4], []]
    assert read(tmp_path, json, [1, 2]) == [[1, 2]]


def test_strings_mean_the_same_beside_lists(tmp_path):
    """A list in one record does not change how others are read."""
    column = Column.sparse("c", separator="|", encoding="hash")
    wanted = [hashed(["a", "b"]), hashed(["c"])]
    assert read(tmp_path, column, "a|b", "c") == wanted
    assert read(tmp_path, column, "a|b", "c", ["d", "e|f"]) == [
        *wanted,
        hashed(["d", "e", "f"]),
    ]
    with pytest.raises(tf.errors.InvalidArgumentError, match="found '1 2'"):
        read(tmp_path, Column.sparse("c"), "1 2")


def test_weights_of_ids_that_are_missing(tmp_path):
    schema = [
        Column.sparse("c"),
        Column.sparse("w", dtype="float", weights_of="c"),
    ]
    path = records(
        tmp_path / "a",
        {"c": ["1", "2"], "w": ["0.5", "1"]},
        {"c": ["1", "NA"], "w": ["0.5", "1"]},
    )
    with pytest.raises(
        tf.errors.InvalidArgumentError,
        match="record 1: column 'w': found 2 weights, expected 1, one for each",
    ):
        list(open_examples(path, schema, 2))
