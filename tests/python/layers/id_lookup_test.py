"""lodestar.layers.IdLookup beside keras.layers.StringLookup and IntegerLookup."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from lodestar.layers import IdLookup
from lodestar.lookup import IdTable, IdTableWithHashBuckets

WORDS = ["a", "b", "c", "d"]


@pytest.mark.parametrize("num_oov_indices", [1, 3])
@pytest.mark.parametrize("mask_token", [None, ""])
def test_strings_agree_with_keras(num_oov_indices, mask_token):
    options = dict(num_oov_indices=num_oov_indices, mask_token=mask_token)
    ours = IdLookup(WORDS, **options)
    stock = keras.layers.StringLookup(vocabulary=WORDS, **options)
    keys = tf.constant([["d", "", "x"], ["a", "zz", "y"]])
    np.testing.assert_array_equal(ours(keys), stock(keys))
    assert ours.get_vocabulary() == stock.get_vocabulary()
    assert ours.vocabulary_size() == stock.vocabulary_size()
    inverse = IdLookup(WORDS, invert=True, **options)
    stock_inverse = keras.layers.StringLookup(
        vocabulary=WORDS, invert=True, **options
    )
    ids = tf.range(ours.vocabulary_size(), dtype=tf.int64)
    np.testing.assert_array_equal(inverse(ids), stock_inverse(ids))


@pytest.mark.parametrize("num_oov_indices", [1, 4])
@pytest.mark.parametrize("mask_token", [None, 0])
def test_integers_agree_with_keras(num_oov_indices, mask_token):
    vocabulary = np.array([7, -3, 2**62])
    options = dict(num_oov_indices=num_oov_indices, mask_token=mask_token)
    ours = IdLookup(vocabulary, **options)
    stock = keras.layers.IntegerLookup(vocabulary=vocabulary, **options)
    keys = tf.constant([7, 5, 0, 2**62, 123456789, -3], tf.int64)
    np.testing.assert_array_equal(ours(keys), stock(keys))


def test_unknown_keys_come_first_here_and_last_in_the_table():
    keys = tf.constant(["a", "b", "nobody"])
    assert IdLookup(["a", "b"])(keys).numpy().tolist() == [1, 2, 0]
    table = IdTableWithHashBuckets(IdTable(["a", "b"]), 1)
    assert table.lookup(keys).numpy().tolist() == [0, 1, 2]


@pytest.mark.parametrize("mode", ["one_hot", "multi_hot", "count"])
def test_output_modes_agree_with_keras(mode):
    ours = IdLookup(WORDS, output_mode=mode)
    stock = keras.layers.StringLookup(vocabulary=WORDS, output_mode=mode)
    keys = tf.constant(["d", "x", "a", "d"])
    if mode != "one_hot":
        keys = tf.reshape(keys, [2, 2])
    np.testing.assert_array_equal(ours(keys), stock(keys))


def test_adapt_agrees_with_keras():
    data = ["x", "y", "y", "z", "x", "y", "w"]
    ours = IdLookup()
    ours.adapt(tf.data.Dataset.from_tensor_slices(data).batch(3))
    stock = keras.layers.StringLookup()
    stock.adapt(np.array(data))
    assert ours.get_vocabulary() == stock.get_vocabulary()
    numbers = IdLookup(vocabulary_dtype="int64")
    numbers.adapt(np.array([5, 5, 9]))
    assert numbers(tf.constant([5, 9, 1])).numpy().tolist() == [1, 2, 0]


def test_ragged_and_sparse_in_a_saved_model(tmp_path):
    inputs = keras.Input((None,), dtype="string", ragged=True)
    outputs = IdLookup(WORDS)(inputs)
    assert outputs.ragged
    model = keras.Model(inputs, outputs)
    x = tf.ragged.constant([["b"], [], ["q", "a"]])
    assert model(x).to_list() == [[2], [], [0, 1]]
    path = str(tmp_path / "model.keras")
    model.save(path)
    assert keras.saving.load_model(path)(x).to_list() == [[2], [], [0, 1]]
    sparse = IdLookup(WORDS)(x.to_sparse())
    assert sparse.values.numpy().tolist() == [2, 0, 1]


def test_dataset_map_checkpoint_and_weights(tmp_path):
    layer = IdLookup(WORDS)
    dataset = tf.data.Dataset.from_tensor_slices(["c", "x"]).map(layer)
    assert [int(x) for x in dataset] == [3, 0]
    inputs = keras.Input((), dtype="string")
    model = keras.Model(inputs, layer(inputs))
    path = str(tmp_path / "w.weights.h5")
    model.save_weights(path)
    strange = IdLookup([b"\0", "é", ""])
    twin = keras.Model(inputs, strange(inputs))
    twin.load_weights(path)
    assert strange.get_vocabulary() == layer.get_vocabulary()


def test_strange_vocabularies_round_trip(tmp_path):
    layer = IdLookup([b"\0x\0", "é\n", "", b"\xff\xfe"])
    inputs = keras.Input((), dtype="string")
    model = keras.Model(inputs, layer(inputs))
    path = str(tmp_path / "model.keras")
    model.save(path)
    keys = tf.constant([b"\xff\xfe", "", "é\n", b"\0x\0", "x"])
    assert keras.saving.load_model(path)(keys).numpy().tolist() == [4, 3, 2, 1, 0]


def test_what_is_refused():
    with pytest.raises(ValueError, match="`num_oov_indices` is -1"):
        IdLookup(num_oov_indices=-1)
    with pytest.raises(ValueError, match="`output_mode` is 'tf_idf'"):
        IdLookup(output_mode="tf_idf")
    with pytest.raises(ValueError, match="holds b'a' more than once"):
        IdLookup(["a", "b", "a"])
    with pytest.raises(ValueError, match="holds the mask token ''"):
        IdLookup(["a", ""], mask_token="")
    with pytest.raises(ValueError, match="has no vocabulary"):
        IdLookup()(tf.constant(["a"]))
    with pytest.raises(tf.errors.InvalidArgumentError, match="not in the"):
        IdLookup(["a"], num_oov_indices=0)(tf.constant(["b"]))
