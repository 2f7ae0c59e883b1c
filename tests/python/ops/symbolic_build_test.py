"""Subclassed models around Lodestar's layers, built from shapes, then loaded.

Keras builds such a model before it loads the weights, by running `call` on
dense float32 placeholders. If a layer raises there, the Dense layer after it is
not built, and starts with new weights.
"""

import keras
import numpy as np
import pytest
import tensorflow as tf

import lodestar
from lodestar import layers, sequence
from lodestar.lookup import IdTable, index_table_from_tensor

WORDS = tf.constant([["a", "b"], ["strange", "b"]])
RAGGED_WORDS = tf.ragged.constant([["a"], ["b", "strange"], []])
IDS = tf.ragged.constant([[1], [2, 77], []], dtype=tf.int64)


class Words(keras.Model):
    """A lookup, and a Dense layer after it."""

    def __init__(self, lookup):
        super().__init__()
        self.lookup = lookup
        self.rows = layers.DynamicEmbedding(4, combiner="sum", name="rows")
        self.dense = keras.layers.Dense(2)

    def call(self, inputs):
        found = self.lookup(inputs)
        if self.lookup.output_mode == "int":
            found = self.rows(found)
        elif self.lookup.output_mode == "one_hot":
            found = tf.reduce_sum(found, 1)
        return self.dense(found)

    def get_config(self):
        # Without the vocabulary, which is saved like weights.
        return {"lookup": self.lookup.get_config()}

    @classmethod
    def from_config(cls, config):
        return cls(layers.IdLookup.from_config(config["lookup"]))


class Sequences(keras.Model):
    """Ragged ids, sequence ops, and a Dense layer after them."""

    def __init__(self, kind):
        super().__init__()
        self.kind = kind
        self.rows = layers.DynamicEmbedding(4, name="rows")
        if kind == "conv":
            self.conv = layers.SequenceConv(3, 3)
        if kind == "gru":
            self.gru = keras.layers.GRU(3)
        self.dense = keras.layers.Dense(2)

    def call(self, ids):
        x = self.rows(ids)
        if self.kind == "conv":
            x = self.conv(x)
        elif self.kind == "lod":
            x = lodestar.ragged.LoDTensor.from_ragged(x).to_ragged()
        elif self.kind == "softmax":
            x = sequence.softmax(sequence.reverse(x))
        elif self.kind == "expand":
            x = sequence.expand_as(sequence.pool(x, "first"), x)
        elif self.kind == "unpad":
            x = sequence.unpad(*sequence.pad(x), like=x)
        if self.kind == "gru":
            x = self.gru(sequence.pad(x)[0])
        else:
            x = sequence.pool(x, "first")
        return self.dense(x)

    def get_config(self):
        return {"kind": self.kind}


class Tables(keras.Model):
    """Id tables and hashes outside Lodestar's layers."""

    def __init__(self):
        super().__init__()
        self.table = index_table_from_tensor(["a", "b"], 3)
        self.dense = keras.layers.Dense(2)

    def call(self, words):
        ids = self.table.lookup(words) + self.table.table.lookup(words)
        ids += lodestar.hash_ids(words) % 7
        return self.dense(tf.cast(ids, tf.float32))

    def get_config(self):
        return {}


def with_rows(model, inputs):
    """Calls `model` until each id has a row; returns its outputs."""
    with tf.GradientTape():
        model(inputs)
    return model(inputs).numpy()


def loaded(model, path):
    """Saves `model` and loads it back."""
    path = str(path / "model.keras")
    model.save(path)
    custom = {cls.__name__: cls for cls in (Words, Sequences, Tables)}
    return keras.saving.load_model(path, custom_objects=custom, compile=False)


@pytest.mark.parametrize(
    "words", [WORDS, RAGGED_WORDS], ids=["dense", "ragged"]
)
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"num_oov_indices": 3},
        {"mask_token": "a"},
        {"output_mode": "multi_hot"},
        {"output_mode": "count", "sparse": True},
        {"output_mode": "one_hot"},
    ],
    ids=str,
)
def test_load_model_with_a_vocabulary(words, options, tmp_path):
    if options.get("output_mode") == "one_hot":
        words = WORDS
    vocabulary = ["b"] if "mask_token" in options else ["a", "b"]
    model = Words(layers.IdLookup(vocabulary, **options))
    wanted = with_rows(model, words)
    again = loaded(model, tmp_path)
    assert again.dense.built
    np.testing.assert_array_equal(again(words), wanted)


def test_load_model_with_integers_and_inverse_lookups(tmp_path):
    ids = tf.constant([[1, 2], [9, 2]], tf.int64)
    for options in (
        {"vocabulary": [1, 2], "output_mode": "count"},
        {"vocabulary": [1, 2], "num_oov_indices": 2},
        {"vocabulary": ["x", "y"], "invert": True},
    ):
        model = Words(layers.IdLookup(**options))
        wanted = with_rows(model, ids)
        np.testing.assert_array_equal(loaded(model, tmp_path)(ids), wanted)


@pytest.mark.parametrize(
    "kind", ["pool", "conv", "lod", "softmax", "expand", "unpad", "gru"]
)
def test_load_model_with_sequences(kind, tmp_path):
    model = Sequences(kind)
    wanted = with_rows(model, IDS)
    again = loaded(model, tmp_path)
    assert again.dense.built
    np.testing.assert_array_equal(again(IDS), wanted)


def test_load_model_with_id_tables(tmp_path):
    model = Tables()
    wanted = model(WORDS).numpy()
    np.testing.assert_array_equal(loaded(model, tmp_path)(WORDS), wanted)


def test_load_a_functional_model_around_a_subclassed_one(tmp_path):
    inputs = keras.Input((None,), dtype="string", ragged=True)
    inner = Words(layers.IdLookup(["a", "b"]))
    model = keras.Model(inputs, keras.layers.Dense(1)(inner(inputs)))
    wanted = with_rows(model, RAGGED_WORDS)
    again = loaded(model, tmp_path)
    np.testing.assert_array_equal(again(RAGGED_WORDS), wanted)


@pytest.mark.parametrize("file", ["w.weights.h5", "w.weights.json"])
def test_weights_into_a_model_that_has_no_vocabulary_yet(file, tmp_path):
    model = Words(layers.IdLookup(["a", "b"]))
    wanted = with_rows(model, RAGGED_WORDS)
    path = str(tmp_path / file)
    sharded = {"max_shard_size": 1.0} if file.endswith("json") else {}
    model.save_weights(path, **sharded)
    twin = Words(layers.IdLookup())
    twin(keras.Input((None,), dtype="string", ragged=True))
    twin.load_weights(path)
    np.testing.assert_array_equal(twin(RAGGED_WORDS), wanted)


def test_checkpoint_into_a_model_that_has_no_vocabulary_yet(tmp_path):
    model = Words(layers.IdLookup(["a", "b"], output_mode="count"))
    wanted = model(WORDS).numpy()
    path = tf.train.Checkpoint(model=model).write(str(tmp_path / "checkpoint"))
    options = {"max_tokens": 3, "pad_to_max_tokens": True}
    twin = Words(layers.IdLookup(output_mode="count", **options))
    twin(keras.Input((2,), dtype="string"))
    tf.train.Checkpoint(model=twin).read(path).assert_consumed()
    np.testing.assert_array_equal(twin(WORDS), wanted)


def test_a_lookup_still_needs_the_vocabulary():
    model = Words(layers.IdLookup())
    for call in (model, tf.function(model)):
        with pytest.raises(ValueError, match="has no vocabulary.*keras.Input"):
            call(WORDS)


def test_floats_are_refused_when_a_traced_function_runs():
    table = IdTable(["a", "b"])
    for lookup in (
        table.lookup,
        index_table_from_tensor(["a", "b"], 2).lookup,
        index_table_from_tensor([1, 2], 2).lookup,
        lodestar.hash_ids,
    ):
        function = tf.function(lookup)
        with (
            pytest.warns(UserWarning, match="fails when it runs: .*float32"),
            pytest.raises(tf.errors.InvalidArgumentError, match="float32"),
        ):
            function(tf.constant([1.0]))
        with pytest.raises((TypeError, ValueError), match="float32|be strings"):
            lookup(tf.constant([1.0]))


def test_archives_of_a_subclassed_model_hold_its_vocabulary(tmp_path):
    model = Words(layers.IdLookup(["a", "b"]))
    wanted = with_rows(model, RAGGED_WORDS)
    archive = keras.export.ExportArchive()
    archive.track(model)
    serve = tf.function(lambda words: model(words))
    serve(RAGGED_WORDS)
    archive.add_endpoint("serve", serve)
    archive.write_out(str(tmp_path / "archive"), verbose=False)
    served = tf.saved_model.load(str(tmp_path / "archive"))
    np.testing.assert_array_equal(served.serve(RAGGED_WORDS), wanted)
