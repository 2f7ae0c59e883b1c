"""Tests of id tables in models that are exported with plain TensorFlow ops."""

import keras
import numpy as np
import plain_served
import pytest
import tensorflow as tf

import lodestar
from lodestar.lookup import IdTable, IdTableWithHashBuckets

WORDS = ["u", "v", "", "w" * 40]
NUMBERS = [5, -(2**63), 2**63 - 1, 0, -1]


class Tables(keras.Model):
    """A model with every kind of id table as an attribute."""

    def __init__(self):
        super().__init__()
        ids = [7, -1, 7, 2**62]
        self.word = IdTable(WORDS, ids, default_value=-5)
        self.number = IdTable(NUMBERS, mutable=True)
        self.unsigned = IdTable([3, 2**64 - 1], key_dtype="uint64")
        self.empty = IdTable([], key_dtype="int64", default_value=9)
        self.buckets = IdTableWithHashBuckets(IdTable(WORDS, ids), 10)
        self.keyed = IdTableWithHashBuckets(
            self.word, 10, hasher="strong", hasher_key=(1, -2)
        )
        self.legacy = IdTableWithHashBuckets(self.word, 10, hasher="legacy")
        self.counted = IdTableWithHashBuckets(IdTable(NUMBERS), 100)
        self.alone = IdTableWithHashBuckets(None, 5, key_dtype="uint64")

    def call(self, x):
        words, numbers = x["words"], x["numbers"]
        bits = tf.bitcast(numbers, tf.uint64)
        return {
            "word": self.word.lookup(words).flat_values,
            "number": self.number.lookup(numbers),
            "unsigned": self.unsigned.lookup(bits),
            "empty": self.empty.lookup(numbers),
            "counted": self.counted.lookup(numbers),
            "alone": self.alone.lookup(bits),
            "buckets": self.buckets.lookup(words).flat_values,
            "keyed": self.keyed.lookup(words).flat_values,
            "legacy": self.legacy.lookup(words).flat_values,
        }


def features():
    return {
        "words": tf.ragged.constant([[*WORDS, "nobody"], [], ["x" * 99]]),
        "numbers": tf.constant([*NUMBERS, 6, 3, -(2**63) + 1], tf.int64),
    }


@pytest.mark.parametrize("index", ["hash", "sorted"])
def test_tables_of_every_kind(index, tmp_path):
    m = Tables()
    x = features()
    want = m(x)
    assert len(set(want["alone"].numpy())) > 1
    lodestar.export.save_plain(
        m,
        tmp_path / "s",
        index=index,
        inputs={
            "words": tf.RaggedTensorSpec([None, None], tf.string),
            "numbers": tf.TensorSpec([None], tf.int64),
        },
    )
    m.number.insert([6], [1])
    loaded = plain_served.load(tmp_path / "s")
    got = loaded.serve(x)
    assert set(got) == set(want)
    for name, ids in want.items():
        np.testing.assert_array_equal(got[name], ids, name)
    plain = {
        "words_values": x["words"].values,
        "words_row_splits": x["words"].row_splits,
        "numbers": x["numbers"],
    }
    if index == "hash":
        scores = plain_served.serve_elsewhere(tmp_path / "s", plain, tmp_path)
        for name, ids in want.items():
            for served in scores[name]:
                np.testing.assert_array_equal(served, ids, name)


def test_id_lookup_layers(tmp_path):
    layers = lodestar.layers
    words = keras.Input((None,), dtype="string", ragged=True, name="words")
    numbers = keras.Input((4,), dtype="int64", name="numbers")
    ids = layers.IdLookup(["a", "b"], num_oov_indices=3, mask_token="")(words)
    known = layers.IdLookup([5, 6, 7])(numbers)
    rows = layers.DynamicEmbedding(3, combiner="sum", default_row="initial")(
        ids
    )
    outputs = {
        "ids": ids,
        "known": known,
        "spread": layers.IdLookup([5, 6], num_oov_indices=4)(numbers),
        "last": layers.IdLookup(["a"], oov_ids="last")(words),
        "spread_last": layers.IdLookup(
            [5, 6], num_oov_indices=4, oov_ids="last"
        )(numbers),
        "back": layers.IdLookup(["x", "y"], invert=True)(known),
        "counts": layers.IdLookup(["a", "b"], output_mode="count")(words),
        "score": keras.layers.Dense(1)(rows),
    }
    m = keras.Model({"words": words, "numbers": numbers}, outputs)
    x = {
        "words": tf.ragged.constant([["a", "", "zzz"], ["q", "b"], []]),
        "numbers": tf.constant([[5, 6, 7, 8], [-9, 0, 5, 5], [1, 2, 3, 4]]),
    }
    x["numbers"] = tf.cast(x["numbers"], tf.int64)
    want = m(x)
    lodestar.export.save_plain(m, tmp_path / "s")
    loaded = plain_served.load(tmp_path / "s")
    got = loaded.serve(x)
    for name, value in want.items():
        for a, b in zip(
            tf.nest.flatten(value, expand_composites=True),
            tf.nest.flatten(got[name], expand_composites=True),
            strict=True,
        ):
            np.testing.assert_array_equal(a.numpy(), b.numpy(), name)


def test_an_untracked_table_is_refused(tmp_path):
    table = IdTable(["a"])
    words = keras.Input((2,), dtype="string", name="words")
    ids = keras.layers.Lambda(table.lookup, output_shape=(2,))(words)
    with pytest.raises(ValueError, match="id table that is not an attr"):
        lodestar.export.save_plain(keras.Model(words, ids), tmp_path / "s")
