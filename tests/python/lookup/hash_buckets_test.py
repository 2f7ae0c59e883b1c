"""Compares an IdTable's buckets with tf.lookup.StaticVocabularyTable."""

import numpy as np
import pytest
import tensorflow as tf

from lodestar._library import gen_ops
from lodestar.lookup import IdTable

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
    table = IdTable(STRINGS, num_oov_buckets=buckets)
    stock = tf.lookup.StaticVocabularyTable(
        tf.lookup.KeyValueTensorInitializer(
            STRINGS, tf.range(3, dtype=tf.int64)
        ),
        buckets,
    )
    np.testing.assert_array_equal(table[strings], stock.lookup(strings))
    assert int(table.size()) == int(stock.size())


def test_the_first_example():
    table = IdTable(STRINGS, num_oov_buckets=10)
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
    table = IdTable(STRINGS, num_oov_buckets=3)
    ids = table.lookup(keys).numpy().tolist()
    assert ids == stock.lookup(keys).numpy().tolist()
    assert ids[:3] == [0, 1, 2]
    assert set(ids[3:]) <= {3, 4, 5}
    assert int(table.size()) == 6
    # Without keys there are only buckets.
    table = IdTable([], key_dtype=tf.string, num_oov_buckets=3)
    wanted = tf.strings.to_hash_bucket_fast(keys, 3)
    np.testing.assert_array_equal(table.lookup(keys), wanted)


def test_exactly_one_miss():
    keys = tf.constant(["emerson", "lake", "and", "palmer"])
    table = IdTable(STRINGS, num_oov_buckets=1)
    assert table.lookup(keys).numpy().tolist() == [0, 1, 3, 2]
    table = IdTable(STRINGS)
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
    table = IdTable(vocabulary, key_dtype=dtype, num_oov_buckets=buckets)
    np.testing.assert_array_equal(table[keys], wanted)
    # No keys.
    table = IdTable([], key_dtype=dtype, num_oov_buckets=buckets)
    texts = tf.strings.as_string(tf.cast(keys, tf.int64))
    wanted = tf.strings.to_hash_bucket_fast(texts, buckets)
    np.testing.assert_array_equal(table[keys], wanted)
    ragged = tf.RaggedTensor.from_row_lengths(keys, [len(keys), 0])
    np.testing.assert_array_equal(table[ragged].flat_values, wanted)
    assert table.key_dtype == dtype
    assert int(table.size()) == buckets


@pytest.mark.parametrize("dtype", [tf.string, tf.int64])
def test_an_empty_vocabulary(dtype, strings):
    keys = strings if dtype == tf.string else tf.constant(INTEGERS, tf.int64)
    table = IdTable([], key_dtype=dtype, num_oov_buckets=10)
    texts = keys if dtype == tf.string else tf.strings.as_string(keys)
    wanted = tf.strings.to_hash_bucket_fast(texts, 10)
    np.testing.assert_array_equal(table[keys], wanted)


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


def test_a_large_batch_on_all_threads(rng):
    vocabulary = tf.constant(rng.permutation(60_000), tf.int64)
    keys = tf.constant(rng.integers(-40_000, 80_000, 200_000), tf.int64)
    ids = tf.range(60_000, dtype=tf.int64)
    for convert in (tf.identity, tf.strings.as_string):
        known, batch = convert(vocabulary), convert(keys)
        stock = tf.lookup.StaticVocabularyTable(
            tf.lookup.KeyValueTensorInitializer(known, ids), 1000
        )
        table = IdTable(known, num_oov_buckets=1000)
        np.testing.assert_array_equal(table[batch], stock.lookup(batch))


@pytest.mark.parametrize("buckets", [1, 1000, 2**31])
@pytest.mark.parametrize("seed", [(0, 0), (1, 2**64 - 1), (-5, 2**63), 7])
def test_keyed_hashes(seed, buckets, strings):
    words = (seed, seed) if isinstance(seed, int) else seed
    key = [int(np.uint64(w % 2**64).astype(np.int64)) for w in words]
    numbers = tf.constant(INTEGERS, tf.int64)
    for keys, texts, known in (
        (strings, strings, b"lake"),
        (numbers, tf.strings.as_string(numbers), 7),
    ):
        wanted = tf.strings.to_hash_bucket_strong(texts, buckets, key)
        options = {"num_oov_buckets": buckets, "seed": seed}
        table = IdTable([], key_dtype=keys.dtype, **options)
        np.testing.assert_array_equal(table.lookup(keys), wanted)
        table = IdTable(tf.constant([known], keys.dtype), **options)
        wanted = tf.where(keys == known, 0, wanted + 1)
        np.testing.assert_array_equal(table.lookup(keys), wanted)


def test_a_default_value_of_a_call_bypasses_the_buckets():
    table = IdTable(["a"], num_oov_buckets=5)
    keys = tf.constant(["a", "b"])
    assert table.lookup(keys, default_value=-9).numpy().tolist() == [0, -9]
    assert table.num_oov_buckets == 5


def test_a_value_equal_to_the_default_is_found():
    table = IdTable(["a", "b"], [-1, 5], num_oov_buckets=1)
    assert table.lookup(tf.constant(["a", "b", "c"])).numpy().tolist() == [
        -1,
        5,
        2,
    ]


def test_ragged_sparse_empty_and_functions():
    table = IdTable(STRINGS, num_oov_buckets=1)
    ragged = tf.ragged.constant([["lake"], [], ["x", "emerson"]])
    assert table.lookup(ragged).to_list() == [[1], [], [3, 0]]
    sparse = ragged.to_sparse()
    assert table.lookup(sparse).values.numpy().tolist() == [1, 3, 0]
    assert table.lookup(tf.zeros([0], tf.string)).shape == (0,)

    @tf.function(input_signature=[tf.TensorSpec(None, tf.string)])
    def find(keys):
        return table[keys]

    assert find(tf.constant([["palmer", "y"]])).numpy().tolist() == [[2, 3]]


def test_invalid_arguments_are_refused():
    with pytest.raises(ValueError, match="`num_oov_buckets`.* -1"):
        IdTable(["a"], num_oov_buckets=-1)
    with pytest.raises(ValueError, match="`num_oov_buckets`.* 2.5"):
        IdTable(["a"], num_oov_buckets=2.5)
    with pytest.raises(
        ValueError, match="must be 0 for a mutable table, got 1"
    ):
        IdTable(["a"], num_oov_buckets=1, mutable=True)
    table = IdTable(tf.constant([1], tf.int8), num_oov_buckets=1)
    with pytest.raises(
        TypeError, match="`keys` have dtype int64, but the keys"
    ):
        table[tf.constant([1], tf.int64)]
    assert table[np.array([1])].numpy().tolist() == [0]
    with pytest.raises(TypeError, match="`keys` have dtype float64, but the k"):
        table[np.array([1.9])]
    with pytest.raises(
        ValueError, match="The key 257 does not fit `key_dtype` i"
    ):
        table[np.array([257])]


@pytest.mark.parametrize(
    "seed", ["fast", 1.5, [1], [1, 2, 3], [1, "2"], True], ids=repr
)
def test_seeds_that_are_refused(seed):
    with pytest.raises(TypeError, match="`seed` must be None, an integer or a"):
        IdTable(["a"], num_oov_buckets=1, seed=seed)


def test_a_seed_of_numpy_equals_that_of_python():
    keys = tf.constant(["x", "y", "z"])
    got = [
        IdTable(["a"], num_oov_buckets=9, seed=seed)[keys].numpy()
        for seed in ([5, 2**63 + 1], np.array([5, 2**63 + 1], np.uint64))
    ]
    np.testing.assert_array_equal(got[0], got[1])


def test_a_lookup_has_a_name():
    table = IdTable(["a", "b"], num_oov_buckets=5)
    keys = tf.constant(["b", "z"])

    @tf.function
    def lookup(keys):
        return (
            table.lookup(keys, name="mine"),
            table.lookup(keys, -1, name="inner"),
            table.lookup(
                tf.RaggedTensor.from_row_lengths(keys, [2]), name="ragged"
            ),
        )

    graph = lookup.get_concrete_function(keys).graph
    names = [op.name for op in graph.get_operations() if "IdTable" in op.type]
    scopes = [name.split("/")[0] for name in names]
    assert scopes == ["mine", "inner", "ragged"]
    want = table.lookup(keys)
    for got in (table.lookup(keys, name="mine"), lookup(keys)[0]):
        np.testing.assert_array_equal(got, want)


def test_the_op_refuses_invalid_arguments():
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
            "a key of two words, got 1",
        ),
        ({"hasher_key": [1, 2]}, "takes no key, got 2 words"),
    ):
        with pytest.raises(tf.errors.InvalidArgumentError, match=message):
            find_or_hash(**options)


def test_saved_model_keeps_table_and_hash(tmp_path):
    module = tf.Module()
    module.table = IdTable(STRINGS, num_oov_buckets=10)
    module.find = tf.function(
        module.table.lookup, input_signature=[tf.TensorSpec([None], tf.string)]
    )
    keys = tf.constant([*STRINGS, "x", "y"])
    wanted = module.find(keys)
    tf.saved_model.save(module, str(tmp_path))
    loaded = tf.saved_model.load(str(tmp_path))
    np.testing.assert_array_equal(loaded.find(keys), wanted)
