"""Schema.check: features against the declared columns."""

import re

import keras
import numpy as np
import pytest
import tensorflow as tf

from lodestar.data import Column, Schema

SCHEMA = Schema(
    [
        Column.label("click"),
        Column.sparse("item"),
        Column.sparse("word", encoding="hash"),
        Column.sparse("ad", encoding="hex"),
        Column.sparse("path", depth=2),
        Column.sparse("w", dtype="float", weights_of="item"),
        Column.dense("price"),
        Column.dense("image", [-1, 2]),
        Column.dense("count", [2], dtype="uint64"),
        Column.one_hot("day", 3),
        Column.sparse("aside", used=False),
    ]
)
IDS = tf.ragged.constant([[1], [2, 3]], tf.int64)
GOOD = {
    "item": IDS,
    "word": IDS,
    "ad": IDS,
    "path": tf.ragged.constant([[[1]], [[2], []]], tf.int64),
    "w": tf.cast(IDS, tf.float32),
    "price": tf.zeros([2, 1]),
    "image": tf.zeros([2, 5, 2]),
    "count": tf.zeros([2, 2], tf.int64),
    "day": tf.zeros([2, 3]),
}


def problems_of(**features):
    with pytest.raises(ValueError) as caught:
        SCHEMA.check({**GOOD, **features})
    _, *problems, _ = str(caught.value).splitlines()
    return problems


def test_elements_of_datasets_are_accepted():
    SCHEMA.check(GOOD)
    SCHEMA.check({**GOOD, "more": "anything"})
    SCHEMA.check(SCHEMA.inputs())
    SCHEMA.check({name: tf.type_spec_from_value(x) for name, x in GOOD.items()})


@pytest.mark.parametrize(
    "name, value",
    [
        ("item", np.array([[1, 2], [3, 4]], np.int32)),
        ("item", [[1, 2], [3, 4]]),
        ("item", IDS.to_sparse()),
        ("item", keras.Input((None,), dtype="int64")),
        ("word", tf.ragged.constant([["a"], []])),
        ("word", np.array([["a"], ["b"]])),
        ("ad", np.array([["1f"], ["b"]])),
        ("word", np.array([["a"], ["b"]], object)),
        ("price", np.array([1.0, 2.0])),
        ("price", np.array([1, 2])),
        ("image", np.zeros([2, 0, 2])),
    ],
)
def test_other_compatible_forms_are_accepted(name, value):
    SCHEMA.check({**GOOD, name: value})


@pytest.mark.parametrize(
    "name, value, declared, found",
    [
        (
            "item",
            np.zeros([2, 1], np.float32),
            "ids",
            r"dense float32 tensor \[2, 1\]",
        ),
        ("item", tf.cast(IDS, tf.float32), "ids", "ragged float32"),
        ("item", keras.Input((1,)), "ids", r"dense float32 .*\[None, 1\]"),
        ("item", tf.constant([1, 2]), "ids", r"dense int32 tensor \[2\]"),
        ("item", GOOD["path"], "ids", r"\[2, None, None\]"),
        ("item", np.array([["a"], ["b"]]), "ids", "dense string"),
        ("item", np.array([["a"], [1]], object), "ids", "dense object"),
        ("item", [[1], [2, 3]], "ids", "object"),
        ("word", tf.zeros([2, 1]), "ids, hash", "float32"),
        ("path", IDS, "ids, lists of lists", r"ragged int64 tensor \[2, None"),
        ("w", np.array([["a"], ["b"]]), "weights of 'item'", "string"),
        ("price", np.array([["a"], ["b"]]), "dense", "string"),
        ("price", tf.zeros([2, 2]), "dense", r"\[2, 2\]"),
        ("price", tf.cast(IDS, tf.float32), "dense", "ragged float32"),
        ("image", tf.zeros([2, 5, 3]), "dense", r"\[2, 5, 3\]"),
        ("count", tf.zeros([2, 2]), "dense of integers", "float32"),
        ("day", tf.zeros([2, 1], tf.int64), "one-hot vector of 3", "int64"),
    ],
)
def test_contradictions_are_refused(name, value, declared, found):
    (problem,) = problems_of(**{name: value})
    assert problem.startswith(f"Column {name!r} is declared as {declared}")
    assert re.search(found, problem), problem


def test_all_problems_are_in_one_message():
    with pytest.raises(ValueError) as caught:
        SCHEMA.check({"item": tf.zeros([2, 1]), "price": tf.zeros([2, 9])})
    text = str(caught.value)
    assert "['word', 'ad', 'path', 'w', 'image', 'count', 'day']" in text
    assert "found ['item', 'price']" in text
    assert "'click'" not in text and "'aside'" not in text
    assert "Column 'item'" in text and "Column 'price'" in text


def test_features_must_be_named():
    with pytest.raises(ValueError, match="must map column names.* got a list"):
        SCHEMA.check([IDS])
