"""Compares IdTableWithHashBuckets with tf.lookup.StaticVocabularyTable."""

import numpy as np
import pytest
import tensorflow as tf

from lodestar._library import gen_ops
from lodestar.lookup import (
    HasherSpec,
    IdTable,
    IdTableWithHashBuckets,
)

STRINGS = ["emerson", "lake", "palmer"]


@pytest.fixture(scope="module")
def strings():
    """Returns byte strings that reach every branch of the hashes."""
    rng = np.random.default_rng(1)
    keys = [rng.bytes(n) for n in list(range(300)) * 2]
    return tf.constant([*keys, b"", b"\0" * 9, b"\xff", b"y" * 10**6, b"lake"])


INTEGERS = [-(2**63), -(2**31), -10, -1, 0, 7, 9, 10, 99, 2**31, 2**63 - 1]


@pytest.mark.parametrize("buckets", [1, 10, 12345, 2**31])
def test_strings_agree_with_tensorflow(buckets, strings):
    table = IdTable.from_tensor(STRINGS, buckets)
    stock = tf.lookup.StaticVocabularyTable(
        tf.lookup.KeyValueTensorInitializer(
            STRINGS, tf.range(3, dtype=tf.int64)
        ),
        buckets,
    )
    np.testing.assert_array_equal(table[strings], stock.lookup(strings))
    assert int(table.size()) == int(stock.size())


def test_the_first_example():
    table = IdTable.from_tensor(STRINGS, num_oov_buckets=10)
    keys = tf.constant(["emerson", "lake", "palmer", "king", "crimson"])
    ids = table.lookup(keys).numpy().tolist()
    assert ids[:3] == [0, 1, 2]
    wanted = tf.strings.to_hash_bucket_fast(keys[3:], 10) + 3
    assert ids[3:] == wanted.numpy().tolist()
    assert int(table.size()) == 13


def test_the_second_example():
    # Three buckets after three words: 5 is the largest possible id.
    keys = tf.constant(["emerson", "lake", "palmer", "king", "crimnson"])
    stock = tf.lookup.StaticVocabularyTable(
        tf.lookup.KeyValueTensorInitializer(
            STRINGS, tf.range(3, dtype=tf.int64)
        ),
        num_oov_buckets=3,
    )
    table = IdTableWithHashBuckets(IdTable(STRINGS), num_oov_buckets=3)
    ids = table.lookup(keys).numpy().tolist()
    assert ids == stock.lookup(keys).numpy().tolist()
    assert ids[:3] == [0, 1, 2]
    assert set(ids[3:]) <= {3, 4, 5}
    assert int(table.size()) == 6
    # Without a table there are only buckets.
    table = IdTableWithHashBuckets(None, num_oov_buckets=3)
    wanted = tf.strings.to_hash_bucket_fast(keys, 3)
    np.testing.assert_array_equal(table.lookup(keys), wanted)


def test_exactly_one_miss():
    keys = tf.constant(["emerson", "lake", "and", "palmer"])
    table = IdTable.from_tensor(STRINGS, num_oov_buckets=1)
    assert table.lookup(keys).numpy().tolist() == [0, 1, 3, 2]
    table = IdTable.from_tensor(STRINGS)
    assert table.lookup(keys).numpy().tolist() == [0, 1, -1, 2]


INTEGER_TYPES = [
    tf.int8,
    tf.int16,
    tf.int32,
    tf.int64,
    tf.uint8,
    tf.uint16,
    tf.uint32,
    tf.uint64,
]


@pytest.mark.parametrize("dtype", INTEGER_TYPES, ids=lambda x: x.name)
@pytest.mark.parametrize("buckets", [1, 10, 2**31])
def test_integers_agree_with_tensorflow(dtype, buckets):
    numbers = [n for n in INTEGERS if dtype.min <= n <= dtype.max]
    keys = tf.constant([*numbers, dtype.max], dtype)
    vocabulary = tf.constant([7, dtype.min, 99], dtype)
    stock = tf.lookup.StaticVocabularyTable(
        tf.lookup.KeyValueTensorInitializer(
            tf.cast(vocabulary, tf.int64), tf.range(3, dtype=tf.int64)
        ),
        buckets,
        lookup_key_dtype=dtype,
    )
    wanted = stock.lookup(keys)
    table = IdTable.from_tensor(vocabulary, buckets, key_dtype=dtype)
    np.testing.assert_array_equal(table[keys], wanted)
    # A table of int64 keys that accepts other types, like TensorFlow's.
    names = IdTable(tf.cast(vocabulary, tf.int64))
    table = IdTableWithHashBuckets(names, buckets, key_dtype=dtype)
    assert table.key_dtype == dtype
    np.testing.assert_array_equal(table[keys], wanted)
    # Without a table.
    table = IdTableWithHashBuckets(None, buckets, key_dtype=dtype)
    wanted = tf.strings.to_hash_bucket_fast(tf.strings.as_string(keys), buckets)
    np.testing.assert_array_equal(table[keys], wanted)
    ragged = tf.RaggedTensor.from_row_lengths(keys, [len(keys), 0])
    np.testing.assert_array_equal(table[ragged].flat_values, wanted)
    assert table.key_dtype == dtype
    assert int(table.size()) == buckets


@pytest.mark.parametrize("dtype", [tf.string, tf.int64])
def test_an_empty_vocabulary(dtype, strings):
    keys = strings if dtype == tf.string else tf.constant(INTEGERS, tf.int64)
    table = IdTable.from_tensor([], 10, key_dtype=dtype)
    texts = keys if dtype == tf.string else tf.strings.as_string(keys)
    wanted = tf.strings.to_hash_bucket_fast(texts, 10)
    np.testing.assert_array_equal(table[keys], wanted)
    without_table = IdTableWithHashBuckets(None, 10, key_dtype=dtype)
    np.testing.assert_array_equal(without_table[keys], wanted)


@pytest.mark.parametrize("dtype", [tf.string, tf.int64])
def test_plain_find_agrees_with_tensorflow(dtype, strings):
    keys = strings if dtype == tf.string else tf.constant(INTEGERS, tf.int64)
    known = tf.unique(keys[::2])[0]
    values = tf.range(len(known), dtype=tf.int64) * 3 - 1
    stock = tf.lookup.StaticHashTable(
        tf.lookup.KeyValueTensorInitializer(known, values), -7
    )
    table = IdTable(known, values, default_value=-7)
    np.testing.assert_array_equal(table[keys], stock.lookup(keys))
    no_buckets = IdTableWithHashBuckets(table, 0)
    np.testing.assert_array_equal(no_buckets[keys], stock.lookup(keys))


def test_a_large_batch_on_all_threads(rng):
    vocabulary = tf.constant(rng.permutation(60_000), tf.int64)
    keys = tf.constant(rng.integers(-40_000, 80_000, 200_000), tf.int64)
    ids = tf.range(60_000, dtype=tf.int64)
    for convert in (tf.identity, tf.strings.as_string):
        known, batch = convert(vocabulary), convert(keys)
        stock = tf.lookup.StaticVocabularyTable(
            tf.lookup.KeyValueTensorInitializer(known, ids), 1000
        )
        table = IdTable.from_tensor(known, 1000)
        np.testing.assert_array_equal(table[batch], stock.lookup(batch))


@pytest.mark.parametrize("buckets", [1, 1000, 2**31])
@pytest.mark.parametrize("key", [(0, 0), (1, 2**64 - 1), (-5, 2**63), None])
def test_strong_and_legacy_hashes(key, buckets, strings):
    numbers = tf.constant(INTEGERS, tf.int64)
    if key is None:
        spec = "legacy"
        hash_strings = tf.strings.to_hash_bucket
        options = {}
    else:
        spec = HasherSpec("stronghash", key)
        hash_strings = tf.strings.to_hash_bucket_strong
        signed = [int(np.uint64(w % 2**64).astype(np.int64)) for w in key]
        options = {"key": signed}
    for keys, texts, known in (
        (strings, strings, b"lake"),
        (numbers, tf.strings.as_string(numbers), 7),
    ):
        wanted = hash_strings(texts, buckets, **options)
        table = IdTableWithHashBuckets(
            None, buckets, spec, key_dtype=keys.dtype
        )
        np.testing.assert_array_equal(table.lookup(keys), wanted)
        names = IdTable(tf.constant([known], keys.dtype))
        table = IdTableWithHashBuckets(names, buckets, spec)
        wanted = tf.where(keys == known, 0, wanted + 1)
        np.testing.assert_array_equal(table.lookup(keys), wanted)


def test_no_buckets_give_the_default_value():
    table = IdTableWithHashBuckets(IdTable(["a"], default_value=-9), 0)
    assert table.lookup(tf.constant(["a", "b"])).numpy().tolist() == [0, -9]


def test_a_value_equal_to_the_default_is_found():
    names = IdTable(["a", "b"], [-1, 5])
    table = IdTableWithHashBuckets(names, 1)
    assert table.lookup(tf.constant(["a", "b", "c"])).numpy().tolist() == [
        -1,
        5,
        2,
    ]


def test_ragged_sparse_empty_and_functions():
    table = IdTable.from_tensor(STRINGS, 1)
    ragged = tf.ragged.constant([["lake"], [], ["x", "emerson"]])
    assert table.lookup(ragged).to_list() == [[1], [], [3, 0]]
    sparse = ragged.to_sparse()
    assert table.lookup(sparse).values.numpy().tolist() == [1, 3, 0]
    assert table.lookup(tf.zeros([0], tf.string)).shape == (0,)

    @tf.function(input_signature=[tf.TensorSpec(None, tf.string)])
    def find(keys):
        return table[keys]

    assert find(tf.constant([["palmer", "y"]])).numpy().tolist() == [[2, 3]]


def test_what_is_refused():
    with pytest.raises(ValueError, match="`num_oov_buckets` is -1"):
        IdTableWithHashBuckets(IdTable(["a"]), -1)
    with pytest.raises(ValueError, match="`num_oov_buckets` is 2.5, wanted an"):
        IdTableWithHashBuckets(IdTable(["a"]), 2.5)
    with pytest.raises(ValueError, match="there is no table"):
        IdTableWithHashBuckets(None, 0)
    with pytest.raises(ValueError, match="`table` is mutable"):
        IdTableWithHashBuckets(IdTable(["a"], mutable=True), 1)
    with pytest.raises(TypeError, match="must be an IdTable or None"):
        IdTableWithHashBuckets({"a": 1}, 1)
    with pytest.raises(TypeError, match="the table's keys are string"):
        IdTableWithHashBuckets(IdTable(["a"]), 1, key_dtype=tf.int64)
    with pytest.raises(TypeError, match="`keys` have dtype int64, wanted int8"):
        table = IdTable(tf.constant([1], tf.int64))
        IdTableWithHashBuckets(table, 1, key_dtype=tf.int8)[
            tf.constant([1], tf.int64)
        ]
    table = IdTableWithHashBuckets(table, 1, key_dtype=tf.int8)
    assert table[np.array([1])].numpy().tolist() == [0]
    with pytest.raises(TypeError, match="`keys` have dtype float64, wanted in"):
        table[np.array([1.9])]
    with pytest.raises(ValueError, match="the key 257 is beyond `key_dtype` i"):
        table[np.array([257])]
    for spec, error, message in (
        (1, TypeError, "`hasher_spec` must be a HasherSpec or the name of a h"),
        (
            None,
            TypeError,
            "`hasher_spec` must be a HasherSpec or the name of a",
        ),
        (
            "fast",
            ValueError,
            "`hasher` must be one of fasthash, legacy, strong",
        ),
        ("stronghash", ValueError, "must be two integers, got None"),
    ):
        with pytest.raises(error, match=message):
            IdTableWithHashBuckets(IdTable(["a"]), 1, spec)
        with pytest.raises(error, match=message):
            IdTable.from_tensor(["a"], 1, hasher_spec=spec)


def test_a_strong_key_of_numpy_is_that_of_python():
    keys = tf.constant(["x", "y", "z"])
    got = [
        IdTableWithHashBuckets(None, 9, HasherSpec("stronghash", key))[
            keys
        ].numpy()
        for key in ([5, 2**63 + 1], np.array([5, 2**63 + 1], np.uint64))
    ]
    np.testing.assert_array_equal(got[0], got[1])


@pytest.mark.parametrize("buckets", [0, 5])
def test_a_lookup_has_a_name(buckets):
    table = IdTableWithHashBuckets(IdTable(["a", "b"]), buckets)
    keys = tf.constant(["b", "z"])

    @tf.function
    def lookup(keys):
        return (
            table.lookup(keys, name="mine"),
            table.table.lookup(keys, name="inner"),
            table.lookup(tf.RaggedTensor.from_row_lengths(keys, [2]), "ragged"),
        )

    graph = lookup.get_concrete_function(keys).graph
    names = [op.name for op in graph.get_operations() if "IdTable" in op.type]
    scopes = [name.split("/")[0] for name in names]
    assert scopes == ["mine", "inner", "ragged"]
    want = table.lookup(keys)
    for got in (table.lookup(keys, name="mine"), lookup(keys)[0]):
        np.testing.assert_array_equal(got, want)


def test_what_the_op_refuses():
    def find_or_hash(**options):
        gen_ops.lodestar_id_table_find_or_hash(
            handle=IdTable(["a"]).resource_handle,
            keys=["a"],
            **{"num_oov_buckets": 1, **options},
        )

    for options, message in (
        ({"num_oov_buckets": 0}, "num_oov_buckets"),
        ({"hasher": "md5"}, "hasher"),
        (
            {"hasher": "stronghash", "hasher_key": [1]},
            "a key of two words, found 1",
        ),
        ({"hasher_key": [1, 2]}, "takes no key, found 2 words"),
    ):
        with pytest.raises(tf.errors.InvalidArgumentError, match=message):
            find_or_hash(**options)


def test_saved_model_keeps_table_and_hash(tmp_path):
    module = tf.Module()
    module.table = IdTableWithHashBuckets(IdTable(STRINGS), 10, "fasthash")
    module.find = tf.function(
        module.table.lookup, input_signature=[tf.TensorSpec([None], tf.string)]
    )
    keys = tf.constant([*STRINGS, "x", "y"])
    wanted = module.find(keys)
    tf.saved_model.save(module, str(tmp_path))
    loaded = tf.saved_model.load(str(tmp_path))
    np.testing.assert_array_equal(loaded.find(keys), wanted)
