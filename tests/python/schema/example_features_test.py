"""Schema.example_features: the argument of tf.io.parse_example."""

import numpy as np
import pytest
import tensorflow as tf

from lodestar.data import Column, Schema

SCHEMA = Schema(
    [
        Column.label("y"),
        Column.label("rating", dtype="float", binary=False),
        Column.label("clicked", positive="yes", negative="no"),
        Column.dense("x", [2, 1], fill_value=-1.5),
        Column.dense("n", [], dtype="uint64"),
        Column.dense("must", [1], fill_value="error"),
        Column.dense("free", [-1, 2]),
        Column.sparse("item"),
        Column.sparse("city", encoding="hash"),
        Column.sparse("code", encoding="hex"),
        Column.sparse("w", dtype="float", weights_of="item"),
        Column.one_hot("day", 7),
        Column.sparse("aside", used=False),
    ]
)
ALWAYS = {
    "y": tf.train.Feature(int64_list=tf.train.Int64List(value=[1])),
    "rating": tf.train.Feature(float_list=tf.train.FloatList(value=[4.5])),
    "clicked": tf.train.Feature(bytes_list=tf.train.BytesList(value=[b"yes"])),
    "must": tf.train.Feature(float_list=tf.train.FloatList(value=[2.0])),
    "day": tf.train.Feature(int64_list=tf.train.Int64List(value=[6])),
}


def parse(features):
    example = tf.train.Example(features=tf.train.Features(feature=features))
    return tf.io.parse_example(
        [example.SerializeToString()], SCHEMA.example_features()
    )


def test_features_of_every_kind():
    found = SCHEMA.example_features()
    assert list(found) == [column.name for column in SCHEMA.used]
    for name, dtype in (
        ("item", tf.int64),
        ("city", tf.string),
        ("code", tf.string),
        ("w", tf.float32),
        ("free", tf.float32),
    ):
        assert found[name] == tf.io.RaggedFeature(
            dtype, row_splits_dtype=tf.int64
        )
    for name, shape, dtype in (
        ("y", [1], tf.int64),
        ("rating", [1], tf.float32),
        ("clicked", [1], tf.string),
        ("must", [1], tf.float32),
        ("day", [], tf.int64),
    ):
        assert found[name] == tf.io.FixedLenFeature(shape, dtype)
    assert (found["x"].shape, found["x"].dtype) == ([2, 1], tf.float32)
    assert (found["n"].shape, found["n"].dtype) == ([], tf.int64)


def test_missing_features_have_the_declared_values():
    parsed = parse(ALWAYS)
    np.testing.assert_array_equal(parsed["x"], [[[-1.5], [-1.5]]])
    np.testing.assert_array_equal(parsed["n"], [0])
    assert parsed["x"].dtype == tf.float32
    assert parsed["n"].dtype == tf.int64
    for name in "item", "city", "code", "w", "free":
        assert parsed[name].to_list() == [[]]
    assert parsed["clicked"].numpy().tolist() == [[b"yes"]]
    assert parsed["day"].numpy().tolist() == [6]


@pytest.mark.parametrize("name", list(ALWAYS))
def test_other_features_are_required(name):
    rest = {key: feature for key, feature in ALWAYS.items() if key != name}
    with pytest.raises(tf.errors.InvalidArgumentError, match=f"{name}.*requir"):
        parse(rest)
