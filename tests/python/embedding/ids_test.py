"""Tests of id conversion."""

import itertools

import keras
import numpy as np
import pytest
import tensorflow as tf

import lodestar
from lodestar.embedding import ids as ids_lib


@pytest.mark.parametrize("kind", ["dense", "ragged", "sparse"])
def test_strings_become_fingerprints(kind):
    ragged = tf.ragged.constant([["a", "bc"], [], [""]])
    x = {
        "dense": ragged.to_tensor(default_value="x"),
        "ragged": ragged,
        "sparse": ragged.to_sparse(),
    }[kind]
    got = ids_lib.to_int64(x, strings=True)
    assert type(got) is type(x)
    values = {"dense": lambda t: tf.reshape(t, [-1])}.get(
        kind, lambda t: t.values
    )
    want = [
        int.from_bytes(bytes(f), "little", signed=True)
        for f in tf.fingerprint(values(x)).numpy()
    ]
    assert values(got).numpy().tolist() == want


def test_a_list_of_tensors_of_a_graph():
    got = tf.function(lambda x: ids_lib.to_int64([x, x + 1, 5]))(tf.constant(3))
    assert (got.dtype, got.numpy().tolist()) == (tf.int64, [3, 4, 5])


def test_empty_strings_tensor():
    got = ids_lib.to_int64(tf.zeros([0, 3], tf.string), strings=True)
    assert got.shape == (0, 3) and got.dtype == tf.int64


# Floats that were cast to ids before a lookup sees them.

LARGEST = {
    "float16": 2**11,
    "bfloat16": 2**8,
    "float32": 2**24,
    "float64": 2**53,
}
CAST = "was cast from"


def of_kind(kind, x):
    if kind == "ragged":
        return tf.RaggedTensor.from_tensor(x)
    if kind == "sparse":
        places = tf.constant([[0, 0], [0, 1], [1, 0], [1, 1]], tf.int64)
        return tf.SparseTensor(places, tf.reshape(x, [-1]), [2, 2])
    return x


@pytest.mark.parametrize(
    "kind, dtype, id_dtype",
    [
        *itertools.product(["dense"], LARGEST, ["int64", "int32", "uint32"]),
        *itertools.product(["ragged", "sparse"], ["float32"], ["int64"]),
    ],
)
def test_a_graph_refuses_inexact_casts_from_floats(kind, dtype, id_dtype):
    @tf.function
    def ids_of(x):
        return ids_lib.to_int64(tf.cast(x, id_dtype))

    def floats(number):
        x = np.array([[1.0, 2.0], [number, 3.0]])
        return of_kind(kind, tf.cast(tf.constant(x), dtype))

    low = max(1 - LARGEST[dtype], tf.as_dtype(id_dtype).min)
    high = min(LARGEST[dtype] - 1, tf.as_dtype(id_dtype).max)
    for number in (low, high):
        got = ids_of(floats(float(number)))
        got = tf.reshape(getattr(got, "values", got), [-1])
        assert got[2] == number
    for number in (np.nan, np.inf, -np.inf, float(low - 1), float(high + 1)):
        with pytest.raises(tf.errors.InvalidArgumentError, match=CAST):
            ids_of(floats(number))


@pytest.mark.parametrize(
    "move",
    [
        lambda x: tf.reshape(x, [-1]),
        lambda x: tf.expand_dims(x, -1),
        lambda x: x[:, 1:],
        lambda x: tf.concat([x, tf.cast(x, tf.int64)], 1),
        lambda x: tf.stack([x, x]),
        lambda x: tf.unstack(x, axis=1)[1],
        lambda x: tf.split(x, 2, 1)[1],
        lambda x: tf.transpose(tf.squeeze(tf.identity(x)))[1],
        lambda x: tf.gather(x, [1], axis=1),
        lambda x: tf.cast(tf.cast(x, tf.int32), tf.int64),
    ],
)
def test_casts_are_found_through_ops_that_move_ids(move):
    @tf.function
    def ids_of(x):
        return ids_lib.to_int64(move(tf.cast(x, tf.int64)))

    ids_of(tf.constant([[1.0, 2.0], [3.0, 4.0]]))
    with pytest.raises(tf.errors.InvalidArgumentError, match=CAST):
        ids_of(tf.constant([[1.0, np.nan], [3.0, np.nan]]))


WIDE = {
    ("int64", "int32"): [2**31, -(2**31) - 1, 2**32 + 5],
    ("int64", "uint32"): [2**32, -1],
    ("uint64", "int32"): [2**63 + 5, 2**31],
    ("int32", "uint32"): [-1],
    ("uint32", "int32"): [2**31],
    ("int32", "int16"): [2**15],
    ("int16", "int8"): [128],
    ("uint8", "int8"): [200],
}


@pytest.mark.parametrize(("source", "dtype"), WIDE)
@pytest.mark.parametrize("kind", ["dense", "ragged", "sparse"])
def test_a_graph_refuses_casts_that_wrap_integers(source, dtype, kind):
    @tf.function
    def ids_of(x):
        return ids_lib.to_int64(tf.cast(x, dtype))

    def ids(number):
        return of_kind(kind, tf.constant([[1, 2], [number, 3]], source))

    got = ids_of(ids(100))
    assert tf.reshape(getattr(got, "values", got), [-1])[2] == 100
    for number in WIDE[source, dtype]:
        with pytest.raises(
            tf.errors.InvalidArgumentError,
            match=f"cast from {source} to {dtype}, and has an integer outside",
        ):
            ids_of(ids(number))


@pytest.mark.parametrize(
    ("source", "dtype", "number", "want"),
    [
        ("uint64", "int64", 2**63 + 5, 5 - 2**63),
        ("int64", "uint64", -7, -7),
        ("int32", "uint64", -7, -7),
        ("uint32", "int64", 2**32 - 1, 2**32 - 1),
        ("int8", "int16", -128, -128),
    ],
)
def test_casts_that_keep_every_id(source, dtype, number, want):
    @tf.function
    def ids_of(x):
        return ids_lib.to_int64(tf.cast(x, dtype))

    assert ids_of(tf.constant([number], source)).numpy().tolist() == [want]


def test_computed_ids_and_integers_are_not_checked():
    @tf.function
    def ids_of(x, y):
        return ids_lib.to_int64(
            tf.concat([tf.cast(x, tf.int64) % 1000, tf.cast(y, tf.int64)], 0)
        )

    floats, ids = tf.constant([1e18]), tf.constant([2**31 - 1])
    assert ids_of(floats, ids)[1] == 2**31 - 1


def dynamic():
    layer = lodestar.layers.DynamicEmbedding(2, combiner="sum")
    return layer.table, layer


def collection():
    layer = lodestar.layers.EmbeddingCollection({"a": 2, "b": 2})
    pool = keras.layers.GlobalAveragePooling1D()
    return layer.tables[0], lambda ids: pool(layer({"a": ids, "b": ids})["a"])


def bare():
    table = lodestar.EmbeddingVariable(2)

    class Bare(keras.layers.Layer):
        def __init__(self):
            super().__init__()
            self.table = table

        def call(self, ids):
            return self.table.lookup(ids, combiner="mean")

    return table, Bare()


BY_KERAS = "must be integers, but the data has float32, which Keras cast to"


@pytest.mark.parametrize(
    "make, dtype",
    [(dynamic, "int64"), (collection, "int32"), (bare, "int64")],
)
def test_floats_for_an_integer_input_train_nothing(make, dtype):
    table, lookup = make()
    ids = keras.Input((2,), dtype=dtype)
    model = keras.Model(ids, keras.layers.Dense(1)(lookup(ids)))
    model.compile(lodestar.optimizers.SGD(), "mse")
    y = np.ones((2, 1))
    # In a layer of the user, the cast may be the user's.
    is_own = make is bare
    refused = (
        pytest.raises(tf.errors.InvalidArgumentError, match=CAST)
        if is_own
        else pytest.raises(ValueError, match=BY_KERAS)
    )
    for number in (np.nan, 2.0**24 + 1, *(() if is_own else (3.9, 7.0))):
        x = np.array([[1.0, 2.0], [number, 3.0]])
        with refused:
            model.fit(x, y, verbose=0)
        with refused:
            model.predict(x, verbose=0)
    assert int(table.size()) == 0
    # The id to which Keras casts NaN is valid when given as an integer.
    lowest = tf.as_dtype(dtype).min
    x = np.array([[1, 2], [lowest, 3]], dtype)
    model.fit(x, y, verbose=0)
    assert sorted(table.export().ids.numpy()) == [lowest, 1, 2, 3]


@pytest.mark.parametrize(
    "make, dtype",
    [(dynamic, "int32"), (collection, "int64"), (bare, "int32")],
)
def test_nan_in_a_cast_of_the_model_trains_nothing(make, dtype):
    table, lookup = make()
    numbers = keras.Input((2,), dtype="float32")
    rows = lookup(keras.ops.cast(numbers, dtype))
    model = keras.Model(numbers, keras.layers.Dense(1)(rows))
    model.compile(lodestar.optimizers.SGD(), "mse")
    y = np.ones((2, 1))
    for bad in (np.nan, 2.0**24 + 1):
        x = np.array([[1.0, 2.0], [bad, 3.0]])
        with pytest.raises(tf.errors.InvalidArgumentError, match=CAST):
            model.fit(x, y, verbose=0)
        with pytest.raises(tf.errors.InvalidArgumentError, match=CAST):
            model.predict(x, verbose=0)
    assert int(table.size()) == 0
    model.fit(np.array([[1.0, 2.0], [7.0, 3.0]]), y, verbose=0)
    assert sorted(table.export().ids.numpy()) == [1, 2, 3, 7]


def test_floats_are_no_keys_of_an_integer_vocabulary():
    lookup = lodestar.layers.IdLookup(vocabulary=[5, 6])
    keys = keras.Input((2,), dtype="int64")
    model = keras.Model(keys, lookup(keys))
    with pytest.raises(ValueError, match=BY_KERAS):
        model.predict(np.array([[5.0, 6.0]]), verbose=0)
    numbers = keras.Input((2,), dtype="float32")
    model = keras.Model(numbers, lookup(keras.ops.cast(numbers, "int64")))
    assert model.predict(np.array([[5.0, 6.0]]), verbose=0).shape == (1, 2)
    with pytest.raises(tf.errors.InvalidArgumentError, match=CAST):
        model.predict(np.array([[5.0, np.nan]]), verbose=0)


@pytest.mark.parametrize("make", [dynamic, collection])
def test_strings_for_an_integer_input(make):
    _, lookup = make()
    ids = keras.Input((2,), dtype="int64")
    model = keras.Model(ids, lookup(ids))
    with pytest.raises(ValueError, match="keras.Input.shape, dtype='string'"):
        model.predict(tf.constant([["a", "b"]]), verbose=0)
