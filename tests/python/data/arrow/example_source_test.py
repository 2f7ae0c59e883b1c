"""ExampleSource: what the features of tf.Examples mean.

Equal values are equal ids, however a tf.Example stores them.
"""

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
@pytest.mark.parametrize(("good", "bad"), [(1.0, None), (1, []), ("1", "NA")])
def test_a_missing_value_is_an_error(tmp_path, column, good, bad):
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
