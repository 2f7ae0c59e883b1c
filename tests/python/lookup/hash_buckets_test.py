"""Compares IdTableWithHashBuckets with TensorFlow's tables and hashes."""

import copy
import functools
import pickle
import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf

from lodestar import _library
from lodestar._library import gen_ops
from lodestar.lookup import (
    IdTable,
    IdTableWithHashBuckets,
    index_table_from_tensor,
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
    table = IdTableWithHashBuckets(IdTable(STRINGS), buckets)
    stock = tf.lookup.StaticVocabularyTable(
        tf.lookup.KeyValueTensorInitializer(
            STRINGS, tf.range(3, dtype=tf.int64)
        ),
        buckets,
    )
    np.testing.assert_array_equal(table[strings], stock.lookup(strings))
    assert int(table.size()) == int(stock.size())


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
    table = index_table_from_tensor(vocabulary, buckets)
    np.testing.assert_array_equal(table[keys], wanted)
    # No keys.
    table = IdTableWithHashBuckets(None, buckets, key_dtype=dtype)
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
    table = index_table_from_tensor([], 10, dtype=dtype)
    texts = keys if dtype == tf.string else tf.strings.as_string(keys)
    wanted = tf.strings.to_hash_bucket_fast(texts, 10)
    np.testing.assert_array_equal(table[keys], wanted)


def test_a_large_batch_on_all_threads(rng):
    vocabulary = tf.constant(rng.permutation(60_000), tf.int64)
    keys = tf.constant(rng.integers(-40_000, 80_000, 200_000), tf.int64)
    ids = tf.range(60_000, dtype=tf.int64)
    for convert in (tf.identity, tf.strings.as_string):
        known, batch = convert(vocabulary), convert(keys)
        stock = tf.lookup.StaticVocabularyTable(
            tf.lookup.KeyValueTensorInitializer(known, ids), 1000
        )
        table = index_table_from_tensor(known, 1000)
        np.testing.assert_array_equal(table[batch], stock.lookup(batch))


KEYED = [
    functools.partial(
        tf.strings.to_hash_bucket_strong,
        key=[int(np.uint64(word % 2**64).astype(np.int64)) for word in key],
    )
    for key in ((0, 0), (1, 2**64 - 1), (-5, 2**63))
]


@pytest.mark.parametrize("buckets", [1, 12345, 2**31])
@pytest.mark.parametrize("hash_of", [tf.strings.to_hash_bucket, *KEYED])
def test_other_hashes(hash_of, buckets, strings):
    options = {"hasher": "legacy"}
    if hash_of in KEYED:
        options = {"hasher": "strong", "hasher_key": hash_of.keywords["key"]}
    cases = [(strings, strings, b"lake")]
    for dtype in INTEGER_TYPES:
        numbers = [n for n in INTEGERS if dtype.min <= n <= dtype.max]
        keys = tf.constant([*numbers, dtype.max], dtype)
        texts = tf.strings.as_string(tf.cast(keys, tf.int64))
        cases.append((keys, texts, 7))
    for keys, texts, known in cases:
        wanted = hash_of(texts, buckets)
        table = IdTableWithHashBuckets(
            None, buckets, key_dtype=keys.dtype, **options
        )
        np.testing.assert_array_equal(table.lookup(keys), wanted)
        table = IdTableWithHashBuckets(
            IdTable(tf.constant([known], keys.dtype)), buckets, **options
        )
        wanted = tf.where(keys == known, 0, wanted + 1)
        np.testing.assert_array_equal(table.lookup(keys), wanted)


def test_the_table_of_the_keys_has_no_buckets():
    names = IdTable(["a"], default_value=-9)
    table = IdTableWithHashBuckets(names, 5)
    keys = tf.constant(["a", "b"])
    assert table.table is names
    assert table.table.lookup(keys).numpy().tolist() == [0, -9]
    assert table.num_oov_buckets == 5
    assert table.value_dtype == tf.int64
    assert table.resource_handle is names.resource_handle
    assert int(table.memory_used()) == int(names.memory_used())
    # TensorFlow's op on the handle does not hash.
    found = tf.raw_ops.LookupTableFindV2(
        table_handle=table.resource_handle,
        keys=keys,
        default_value=tf.constant(-7, tf.int64),
    )
    assert found.numpy().tolist() == [0, -7]


def test_no_buckets():
    for names in (
        IdTable(["a"], default_value=-9),
        IdTable(["a"], default_value=-9, mutable=True),
    ):
        table = IdTableWithHashBuckets(names, 0)
        assert table.lookup(["a", "b"]).numpy().tolist() == [0, -9]
        assert int(table.size()) == 1


def test_two_bucket_counts_for_one_table():
    names = IdTable(STRINGS)
    keys = tf.constant(["lake", "king"])
    for buckets in (7, 100):
        table = IdTableWithHashBuckets(names, buckets)
        wanted = tf.strings.to_hash_bucket_fast("king", buckets) + 3
        assert table[keys].numpy().tolist() == [1, int(wanted)]


def test_a_value_equal_to_the_default_is_found():
    table = IdTableWithHashBuckets(IdTable(["a", "b"], [-1, 5]), 1)
    assert table.lookup(tf.constant(["a", "b", "c"])).numpy().tolist() == [
        -1,
        5,
        2,
    ]


def test_ragged_sparse_empty_and_functions():
    table = IdTableWithHashBuckets(IdTable(STRINGS), 1)
    ragged = tf.ragged.constant([["lake"], [], ["x", "emerson"]])
    assert table.lookup(ragged).to_list() == [[1], [], [3, 0]]
    sparse = ragged.to_sparse()
    assert table.lookup(sparse).values.numpy().tolist() == [1, 3, 0]
    assert table.lookup(tf.zeros([0], tf.string)).shape == (0,)

    @tf.function(input_signature=[tf.TensorSpec(None, tf.string)])
    def find(keys):
        return table[keys]

    assert find(tf.constant([["palmer", "y"]])).numpy().tolist() == [[2, 3]]
    dataset = tf.data.Dataset.from_tensor_slices(["x", "lake"])
    assert [int(x) for x in dataset.map(table.lookup)] == [3, 1]

    @tf.function
    def made_inside(keys):
        with tf.init_scope():
            inside = index_table_from_tensor(STRINGS, 1)
        return inside[keys]

    assert made_inside(tf.constant(["lake", "y"])).numpy().tolist() == [1, 3]


def test_invalid_arguments_are_refused():
    names = IdTable(["a"], name="names")
    strong = {"hasher": "strong"}
    for table, buckets, options, error, message in (
        (names, -1, {}, ValueError, "`num_oov_buckets`.* 0, got -1"),
        (names, 2.5, {}, ValueError, "`num_oov_buckets`.* got 2.5"),
        (None, 0, {"key_dtype": "string"}, ValueError, "at least 1, got 0"),
        (None, 1, {}, ValueError, "`key_dtype` must be given if `table` is N"),
        (["a"], 1, {}, TypeError, r"got list.*first: IdTable\(keys\)"),
        (IdTableWithHashBuckets(names, 1), 1, {}, TypeError, "got IdTableWith"),
        (names, 1, {"key_dtype": "int64"}, ValueError, "string, as in .*'name"),
        (
            IdTable(["a"], mutable=True),
            1,
            {},
            ValueError,
            "must be 0 for the mutable table .*, got 1: bucket ids would move",
        ),
        (names, 1, {"hasher": "md5"}, ValueError, "`hasher`='md5' is not in"),
        (names, 1, {"name": "a\0"}, ValueError, "`name` must not contain null"),
        (names, 1, strong, ValueError, "a pair of 64-bit integers .* got None"),
        (
            names,
            1,
            {"hasher_key": (1, 2)},
            ValueError,
            "be None for `hasher`='f",
        ),
    ):
        with pytest.raises(error, match=message):
            IdTableWithHashBuckets(table, buckets, **options)
    table = index_table_from_tensor(tf.constant([1], tf.int8), 1)
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
    "key",
    ["fast", 1.5, 7, [1], [1, 2, 3], [1, "2"], [1, True], [0, 2**64]],
    ids=repr,
)
def test_hasher_keys_that_are_refused(key):
    with pytest.raises(ValueError, match="`hasher_key` must be a pair of 64-b"):
        IdTableWithHashBuckets(
            IdTable(["a"]), 1, hasher="strong", hasher_key=key
        )


def test_a_hasher_key_of_numpy_equals_that_of_python():
    keys = tf.constant(["x", "y", "z"])
    got = [
        IdTableWithHashBuckets(
            IdTable(["a"]), 9, hasher="strong", hasher_key=key
        )[keys].numpy()
        for key in ([5, 2**63 + 1], np.array([5, 2**63 + 1], np.uint64))
    ]
    np.testing.assert_array_equal(got[0], got[1])


def test_index_table_from_tensor():
    keys = tf.constant(["b", "z"])
    table = index_table_from_tensor(["a", "b"], default_value=-3, name="words")
    assert isinstance(table, IdTable) and table.name == "words"
    assert table[keys].numpy().tolist() == [1, -3]
    table = index_table_from_tensor(["a", "b"], 1, name="words")
    assert isinstance(table, IdTableWithHashBuckets)
    assert table.name == table.table.name == "words"
    assert table[keys].numpy().tolist() == [1, 2]
    table = index_table_from_tensor(
        ["a", "b"], 50, hasher="strong", hasher_key=(3, 4)
    )
    wanted = tf.strings.to_hash_bucket_strong("z", 50, [3, 4]) + 2
    assert table[keys].numpy().tolist() == [1, int(wanted)]
    table = index_table_from_tensor([5, 6], 1, dtype=tf.int32)
    assert table.key_dtype == tf.int32
    assert table[[6, 7]].numpy().tolist() == [1, 2]
    with pytest.raises(tf.errors.InvalidArgumentError, match="'a' has two val"):
        index_table_from_tensor(["a", "a"], 1)
    with pytest.raises(ValueError, match="`key_dtype` must be given if `keys`"):
        index_table_from_tensor([], 1)


def test_its_name_and_repr():
    names = IdTable(STRINGS, name="names")
    table = IdTableWithHashBuckets(names, 7, hasher="legacy")
    assert table.name == "names" and table.hasher == "legacy"
    assert IdTableWithHashBuckets(names, 7, name="n").name == "n"
    buckets = IdTableWithHashBuckets(None, 7, key_dtype="int8", name="b/8")
    assert buckets.name == buckets.table.name == "b/8"
    wanted = (
        "<IdTableWithHashBuckets 'names' keys=3 key_dtype=string "
        "num_oov_buckets=7 hasher='legacy'>"
    )
    assert repr(table) == wanted
    texts = []

    @tf.function
    def trace():
        texts.append(repr(table))

    trace()
    with tf.Graph().as_default():
        texts.append(repr(table))
        inside = index_table_from_tensor(["a"], 2)
        assert "key_dtype=string num_oov_buckets=2" in repr(inside)
    assert texts == [wanted, wanted]


def test_a_lookup_has_a_name():
    table = index_table_from_tensor(["a", "b"], 5)
    keys = tf.constant(["b", "z"])

    @tf.function
    def lookup(keys):
        return (
            table.lookup(keys, name="mine"),
            table.table.lookup(keys, -1, name="inner"),
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
            {"hasher": "strong", "hasher_key": [1]},
            "a key of two words, got 1",
        ),
        ({"hasher_key": [1, 2]}, "takes no key, got 2 words"),
    ):
        with pytest.raises(tf.errors.InvalidArgumentError, match=message):
            find_or_hash(**options)


class Hashed(tf.Module):
    """A table of strings, and buckets for integers."""

    def __init__(self, hasher):
        super().__init__()
        key = (5, 6) if hasher == "strong" else None
        self.words = IdTableWithHashBuckets(
            IdTable(STRINGS), 10, hasher=hasher, hasher_key=key
        )
        self.numbers = IdTableWithHashBuckets(
            None, 99, hasher=hasher, hasher_key=key, key_dtype=tf.uint64
        )

    @tf.function(input_signature=[])
    def find(self):
        return (
            self.words.lookup(tf.constant([*STRINGS, "x", "y"])),
            self.numbers.lookup(tf.constant([1, 2**64 - 1], tf.uint64)),
        )


def test_a_saved_model_in_a_process_without_the_class(tmp_path):
    module, wanted = tf.Module(), {}
    for hasher in ("fast", "strong", "legacy"):
        hashed = Hashed(hasher)
        wanted[hasher] = [ids.numpy().tolist() for ids in hashed.find()]
        setattr(module, hasher, hashed)
    tf.saved_model.save(module, str(tmp_path))
    program = (
        "import tensorflow as tf\n"
        f"tf.load_op_library({str(_library.path)!r})\n"
        f"m = tf.saved_model.load({str(tmp_path)!r})\n"
        "print({h: [ids.numpy().tolist() for ids in getattr(m, h).find()]\n"
        "       for h in ('fast', 'strong', 'legacy')})\n"
    )
    result = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        check=True,
    )
    assert result.stdout.strip().splitlines()[-1] == str(wanted)


def test_a_checkpoint_holds_the_keys(tmp_path):
    table = index_table_from_tensor(["a", "b"], 5)
    path = tf.train.Checkpoint(table=table).write(str(tmp_path / "c"))
    other = index_table_from_tensor(["z"], 5)
    tf.train.Checkpoint(table=other).read(path).assert_consumed()
    keys = tf.constant(["a", "b", "z"])
    np.testing.assert_array_equal(other.lookup(keys), table.lookup(keys))
    # Buckets alone have no keys.
    buckets = IdTableWithHashBuckets(None, 5, key_dtype=tf.string)
    path = tf.train.Checkpoint(table=buckets).write(str(tmp_path / "b"))
    tf.train.Checkpoint(table=other).read(path).assert_consumed()
    assert int(other.table.size()) == 0


def test_copies():
    table = index_table_from_tensor(["a", "b"], 5)
    keys = tf.constant(["b", "z"])
    shallow, deep = copy.copy(table), copy.deepcopy(table)
    assert shallow.table is table.table
    assert deep.resource_handle is not table.resource_handle
    for copied in (shallow, deep):
        np.testing.assert_array_equal(copied[keys], table[keys])
    with pytest.raises(TypeError, match="IdTable.*cannot be pickled"):
        pickle.dumps(table)
