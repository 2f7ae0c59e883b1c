"""Tests of lodestar.hash_ids, and that all conversions of strings agree."""

import keras
import numpy as np
import pytest
import tensorflow as tf

import lodestar

WORDS = [["ada", "", "ada"], ["bob", "naïve", "C1"]]


def test_frozen_values():
    # Changing these values would change the ids of every trained table.
    assert lodestar.hash_ids(["", "ada"]).numpy().tolist() == [
        -7286425919675154353,
        -5302328041424411012,
    ]
    assert lodestar.hash_ids(["a", "b", ""], column="C1").numpy().tolist() == [
        7478687048435477400,
        -7995781161520475002,
        1154449224289080334,
    ]
    assert lodestar.hash_ids([b"\xff"], salt="s").numpy().tolist() == [
        -1715154410900266796
    ]


@pytest.mark.parametrize(
    ("kind", "salt", "column"),
    [
        *(("dense", None, None), ("dense", "s", "C1"), ("ragged", "s", None)),
        *(("ragged", None, ""), ("sparse", None, "C1"), ("lists", "s", "")),
    ],
)
def test_kinds(kind, salt, column):
    dense = tf.constant(WORDS)
    values = {
        "dense": dense,
        "ragged": tf.RaggedTensor.from_tensor(dense),
        "sparse": tf.sparse.from_dense(dense),
        "lists": WORDS,
    }[kind]
    options = {"column": column, "salt": salt}
    got = lodestar.hash_ids(values, **options)
    one_by_one = [lodestar.hash_ids(w, **options) for w in sum(WORDS, [])]
    if kind == "sparse":  # which has no empty strings
        one_by_one.pop(1)
        np.testing.assert_array_equal(got.indices, values.indices)
        got = got.values
    elif kind == "ragged":
        got = got.to_tensor()
    assert got.dtype == tf.int64
    np.testing.assert_array_equal(tf.reshape(got, [-1]), one_by_one)
    if kind != "lists":
        graph = tf.function(lambda x: lodestar.hash_ids(x, **options))
        again = graph(values)
        again = again.values if kind == "sparse" else again
        again = again.to_tensor() if kind == "ragged" else again
        np.testing.assert_array_equal(again, got)


def test_in_a_dataset():
    rows = tf.data.Dataset.from_tensor_slices(WORDS).map(lodestar.hash_ids)
    np.testing.assert_array_equal(
        list(rows.as_numpy_iterator()), lodestar.hash_ids(WORDS)
    )


@pytest.mark.parametrize("salt", [None, "s"])
@pytest.mark.parametrize("column", [None, "C1"])
def test_layers_hold_these_ids(column, salt):
    wanted = np.unique(lodestar.hash_ids(WORDS, column=column, salt=salt))
    options = {"column": column, "salt": salt}
    table = lodestar.EmbeddingVariable(2, name="t")
    feature = lodestar.Feature(table, **options)
    np.testing.assert_array_equal(
        feature.table_ids(WORDS[0]), lodestar.hash_ids(WORDS[0], **options)
    )
    collection = lodestar.layers.EmbeddingCollection({"f": feature})
    collection({"f": tf.constant(WORDS)}, training=True)
    layer = lodestar.layers.DynamicEmbedding(2, **options)
    layer(tf.constant(WORDS), training=True)
    for found in (table, layer.table):
        np.testing.assert_array_equal(found.export().ids, wanted)


def test_trained_on_converted_ids_and_served_text(tmp_path):
    """Trains on ids from the data tool, and serves the column's strings."""
    texts = ["05db9164", "68fd1e64", "05db9164"]
    column = lodestar.layers.DynamicEmbedding(4, column="C1", name="embed")
    rows = column(lodestar.hash_ids(texts, column="C1"), training=True)
    np.testing.assert_array_equal(column(tf.constant(texts)), rows)
    assert np.any(rows)
    words = keras.Input((), dtype="string", name="C1")
    model = keras.Model(words, column(words))
    model.save(tmp_path / "m.keras")
    loaded = keras.models.load_model(tmp_path / "m.keras")
    np.testing.assert_array_equal(loaded(tf.constant(texts)), rows)
    lodestar.export.save(model, str(tmp_path / "served"))
    served = tf.saved_model.load(str(tmp_path / "served"))
    got = served.signatures["serving_default"](C1=tf.constant(texts))
    np.testing.assert_array_equal(list(got.values())[0], rows)


def test_a_collection_keeps_its_columns(tmp_path):
    words = keras.Input((3,), dtype="string", name="w")
    collection = lodestar.layers.EmbeddingCollection(
        {"w": lodestar.Feature(output_dim=2, column="w", combiner="sum")}
    )
    model = keras.Model({"w": words}, collection({"w": words}))
    rows = model({"w": tf.constant(WORDS)}, training=True)["w"]
    model.save(tmp_path / "m.keras")
    loaded = keras.models.load_model(tmp_path / "m.keras")
    got = loaded({"w": tf.constant(WORDS)})["w"]
    np.testing.assert_array_equal(got, rows)


def test_a_vocabulary_hashes_missing_strings_equally():
    buckets = 2**40
    table = lodestar.lookup.IdTableWithHashBuckets(
        None, buckets, key_dtype=tf.string
    )
    ids = lodestar.hash_ids(WORDS).numpy().view(np.uint64)
    np.testing.assert_array_equal(table.lookup(WORDS), ids % buckets)


@pytest.mark.parametrize(
    "arguments, options, message",
    [
        (([1, 2],), {}, "`values`, a list, must be strings"),
        ((np.array([1, 2]),), {}, "`values`, a ndarray, must be strings"),
        ((tf.constant([1]),), {}, "`values`, a EagerTensor, must be strings"),
        (
            (tf.ragged.constant([[1]]),),
            {},
            "`values` must be strings, got dtype int32. Integers are already",
        ),
        ((["a"],), {"column": 1}, "`column` must be a string or None, got 1"),
        ((["a"],), {"salt": b"s"}, "`salt` must be a string or None, got b's'"),
    ],
)
def test_errors(arguments, options, message):
    with pytest.raises(ValueError, match=message):
        lodestar.hash_ids(*arguments, **options)


def test_the_column_is_named():
    # The functions of lodestar.data take the column first.
    with pytest.raises(TypeError):
        lodestar.hash_ids("C1", ["a"])
