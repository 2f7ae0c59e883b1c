"""lodestar.lookup.IdTable: lookups, updates, saving, errors."""

import pathlib
import subprocess
import sys
import threading

import numpy as np
import pytest
import tensorflow as tf

from lodestar._library import gen_ops
from lodestar.lookup import IdTable

EDGES = [-(2**63), -1, 0, 1, 2**63 - 1]


def ids_of(table, keys):
    return table.lookup(tf.constant(keys)).numpy().tolist()


@pytest.mark.parametrize("dtype", [tf.string, tf.int64, tf.int32])
@pytest.mark.parametrize("size", [0, 1, 5, 10_000])
def test_find_agrees_with_a_dict(dtype, size, rng):
    keys = rng.choice(10 * size + 1, size, replace=False) + 2
    if dtype == tf.int64 and size > 10:
        keys[:5] = EDGES
    values = tf.constant(rng.integers(-(2**62), 2**62, size), tf.int64)
    queries = tf.constant(
        np.concatenate([keys, rng.integers(-size, 20 * size + 1, 50)])
    )
    keys = tf.constant(keys, tf.int64)
    if dtype == tf.string:
        keys, queries = (
            tf.strings.as_string(keys),
            tf.strings.as_string(queries),
        )
    else:
        keys, queries = tf.cast(keys, dtype), tf.cast(queries, dtype)
    table = IdTable(keys, values, default_value=-7)
    known = dict(
        zip(keys.numpy().tolist(), values.numpy().tolist(), strict=True)
    )
    wanted = [known.get(key, -7) for key in queries.numpy().tolist()]
    np.testing.assert_array_equal(table[queries], wanted)
    # TensorFlow's own op on the handle.
    np.testing.assert_array_equal(
        tf.raw_ops.LookupTableFindV2(
            table_handle=table.resource_handle,
            keys=queries,
            default_value=tf.constant(-7, tf.int64),
        ),
        wanted,
    )
    assert int(table.size()) == size


def test_keys_are_numbered_by_default_and_exported_in_order():
    table = IdTable(["c", "a", "b"])
    assert ids_of(table, ["a", "b", "c", "d"]) == [1, 2, 0, -1]
    keys, values = table.export()
    assert keys.numpy().tolist() == [b"c", b"a", b"b"]
    assert values.numpy().tolist() == [0, 1, 2]


def test_strange_strings_are_ordinary_keys():
    keys = [b"", b"\0", b"\0\0", b"\xff\xfe", b"x" * 1_000_000]
    table = IdTable(tf.constant(keys))
    assert ids_of(table, keys) == [0, 1, 2, 3, 4]
    assert ids_of(table, [b"\0\0\0", b"x" * 999_999]) == [-1, -1]


def test_lists_of_strings_and_bytes():
    keys = [b"\xff", "ü", "日本", b"a"]
    table = IdTable(keys)
    assert table[keys].numpy().tolist() == [0, 1, 2, 3]
    assert table[[[b"\xff"], ["ü"]]].numpy().tolist() == [[0], [1]]
    assert table[("x", b"\xff")].numpy().tolist() == [-1, 0]


def test_dense_ragged_sparse_and_functions():
    table = IdTable(tf.constant([10, 20, 30], tf.int64))
    dense = tf.constant([[10, 5], [30, 20]], tf.int64)
    assert table.lookup(dense).numpy().tolist() == [[0, -1], [2, 1]]
    assert ids_of(table, [10, 20]) == [0, 1]
    ragged = tf.ragged.constant([[[10], []], [], [[5, 30]]], dtype=tf.int64)
    assert table.lookup(ragged).to_list() == [[[0], []], [], [[-1, 2]]]
    sparse = tf.sparse.from_dense(dense)
    assert table.lookup(sparse).values.numpy().tolist() == [0, -1, 2, 1]
    assert table.lookup(tf.zeros([0, 3], tf.int64)).shape == (0, 3)

    @tf.function(input_signature=[tf.TensorSpec(None, tf.int64)])
    def find(keys):
        return table.lookup(keys)

    assert find(dense).numpy().tolist() == [[0, -1], [2, 1]]
    dataset = tf.data.Dataset.from_tensor_slices(dense).map(table.lookup)
    assert [x.numpy().tolist() for x in dataset] == [[0, -1], [2, 1]]


def test_initializers():
    five = tf.constant([5], tf.int64)
    fifty = tf.constant([50], tf.int64)
    initializer = tf.lookup.KeyValueTensorInitializer(five, fifty)
    table = IdTable(initializer)
    assert table.lookup(five).numpy().tolist() == [50]
    with pytest.raises(ValueError, match="must be None if `keys` is an in"):
        IdTable(initializer, [1])
    with pytest.raises(TypeError, match="values must be int64, got string"):
        IdTable(tf.lookup.KeyValueTensorInitializer(five, tf.constant(["x"])))


def test_a_file_initializer_is_read_again(tmp_path):
    path = tmp_path / "vocabulary.txt"
    for text, wanted in (("b\na\n", [1, 0]), ("a\nb\n", [0, 1])):
        path.write_text(text)
        initializer = tf.lookup.TextFileInitializer(
            str(path),
            tf.string,
            tf.lookup.TextFileIndex.WHOLE_LINE,
            tf.int64,
            tf.lookup.TextFileIndex.LINE_NUMBER,
        )
        table = IdTable(initializer)
        assert table[tf.constant(["a", "b"])].numpy().tolist() == wanted


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
def test_every_integer_type(dtype):
    keys = tf.constant([dtype.min, 1, dtype.max], dtype)
    table = IdTable(keys)
    assert table.key_dtype == dtype
    queries = tf.constant([dtype.max, 2, dtype.min, 1], dtype)
    assert table[queries].numpy().tolist() == [2, -1, 0, 1]
    exported, values = table.export()
    np.testing.assert_array_equal(exported, keys)
    assert values.numpy().tolist() == [0, 1, 2]
    # Python integers, and another type whose values all fit.
    table = IdTable([5, 6], key_dtype=dtype)
    assert table.key_dtype == dtype
    assert table[[6, 7]].numpy().tolist() == [1, -1]
    if dtype != tf.uint64:
        wide = IdTable(tf.constant([5, 6], tf.int64))
        assert wide[queries].shape == (4,)
        assert wide[tf.constant([6], dtype)].numpy().tolist() == [1]


def test_numbers_of_numpy():
    table = IdTable(np.array([5, 6]), np.array([50, 60]), key_dtype=tf.int8)
    assert table[np.array([6, 7])].numpy().tolist() == [60, -1]
    assert table[np.array([])].shape == (0,)
    assert IdTable(np.array([5], np.int16)).key_dtype == tf.int16


WORDS = pathlib.Path("words.txt")
MADE = [
    (
        [7, 300],
        {"key_dtype": tf.uint8},
        "The key 300 does not fit `key_dtype` u",
    ),
    ([-1], {"key_dtype": tf.uint32}, "The key -1 does not fit"),
    (tf.constant([300]), {"key_dtype": tf.uint8}, "The key 300 does not fit"),
    (
        np.array([261]),
        {"key_dtype": tf.int8},
        "The key 261 does not fit `key_d",
    ),
    ([True], {}, "string or an integer dtype, got bool"),
    ([1.0], {}, "integer dtype, got float32"),
    (
        np.array([5.9]),
        {"key_dtype": tf.int64},
        "`keys` have dtype float64, but `key_",
    ),
    ([1], {"values": np.array([9.9])}, "`values` must be integers, got float"),
    ([1], {"values": np.ones(1, "f")}, "`values` must be integers, got float"),
    ([], {}, "`key_dtype` must be given if `ke"),
    (np.zeros(0), {}, "`key_dtype` must be given if `ke"),
    (tf.zeros([0]), {}, "`key_dtype` must be given if `ke"),
    (None, {}, r"call IdTable.from_file\(path\)"),
    ("words.txt", {}, r"call IdTable.from_file\(path\)"),
    (WORDS, {}, r"call IdTable.from_file\(path\)"),
    ([["a"]], {}, "must have rank 1"),
    (
        ["a", "b"],
        {"values": [1]},
        r"`values` must have the shape of `keys`, \(2,\)",
    ),
]


@pytest.mark.parametrize("keys, options, message", MADE)
def test_invalid_arguments_are_refused(keys, options, message):
    with pytest.raises((TypeError, ValueError), match=message):
        IdTable(keys, **options)


@pytest.mark.parametrize(
    "dtype, call, message",
    [
        (
            "int8",
            lambda t: t[np.array([261])],
            "The key 261 does not fit `key_d",
        ),
        (
            "int32",
            lambda t: t[[5, 2**32 + 5]],
            "The key 4294967301 does not fit",
        ),
        (
            "int32",
            lambda t: t[tf.constant([5], tf.int64)],
            "dtype int64, but the keys of table",
        ),
        (
            "string",
            lambda t: t[tf.constant([5], tf.int64)],
            "dtype int64, but the keys of table",
        ),
        (
            "int8",
            lambda t: t[np.array([5.9])],
            "`keys` have dtype float64, but the k",
        ),
        (
            "int8",
            lambda t: t.insert([2], np.array([20.9])),
            "`values` must be integers, got float64",
        ),
        ("string", lambda t: t.load(["a"], [[1]]), "`values` has"),
        ("string", lambda t: t.insert(["b"], [1]), "not mutable"),
        ("string", lambda t: t.remove(["a"]), "not mutable"),
    ],
)
def test_calls_that_are_refused(dtype, call, message):
    known, other = (["a"], ["b"]) if dtype == "string" else ([5], [6])
    table = IdTable(known, key_dtype=dtype)
    errors = (TypeError, ValueError, tf.errors.OpError)
    with pytest.raises(errors, match=message):
        call(table)
    assert table[known + other].numpy().tolist() == [0, -1]


def test_mutable_table():
    table = IdTable(["a"], mutable=True)
    table.insert(["b", "c", "b"], [5, 6, 7])
    assert ids_of(table, ["a", "b", "c"]) == [0, 7, 6]
    table.remove(["a", "nobody"])
    assert ids_of(table, ["a", "b"]) == [-1, 7]
    table.insert([["d"]], [[8]])
    table.remove(tf.constant("c"))
    keys, values = tf.raw_ops.LookupTableExportV2(
        table_handle=table.resource_handle, Tkeys=tf.string, Tvalues=tf.int64
    )
    assert keys.numpy().tolist() == [b"b", b"d"]
    assert values.numpy().tolist() == [7, 8]


def test_a_key_with_two_values_leaves_the_table_as_it_was():
    table = IdTable(["a", "b"])
    with pytest.raises(
        tf.errors.InvalidArgumentError, match="key 'x' has two values: 1 and 2"
    ):
        table.load(["x", "x"], [1, 2])
    assert ids_of(table, ["a", "x"]) == [0, -1]
    table.load(["x", "x"], [1, 1])
    assert ids_of(table, ["a", "x"]) == [-1, 1]
    with pytest.raises(tf.errors.InvalidArgumentError, match="key -3 has two"):
        IdTable(tf.constant([-3, -3], tf.int64))


def test_its_repr():
    table = IdTable(["a", "b"], name="names")
    wanted = (
        "<IdTable 'names' keys=2 key_dtype=string default_value=-1 "
        "mutable=False>"
    )
    texts = [repr(table)]

    @tf.function
    def trace():
        texts.append(repr(table))

    trace()
    with tf.Graph().as_default():
        texts.append(repr(table))
        # The graph may not have run, so the number of its keys is unknown.
        inside = IdTable([1], key_dtype="int8", mutable=True, default_value=3)
        assert repr(inside) == (
            "<IdTable 'id_table' key_dtype=int8 default_value=3 mutable=True>"
        )
    assert texts == [wanted] * 3


def test_find_before_anything_was_imported():
    handle = gen_ops.lodestar_id_table(shared_name="bare", key_dtype=tf.int64)
    with pytest.raises(
        tf.errors.FailedPreconditionError, match="is not initialized"
    ):
        gen_ops.lodestar_id_table_find(
            handle=handle,
            keys=tf.constant([1], tf.int64),
            default_value=tf.constant(-1, tf.int64),
        )


def test_tensorflow_ops_accept_the_handle():
    table = IdTable(["a"], mutable=True)
    handle = table.resource_handle
    raw = tf.raw_ops

    def find(*keys):
        return (
            raw.LookupTableFindV2(
                table_handle=handle,
                keys=tf.constant(keys),
                default_value=tf.constant(-5, tf.int64),
            )
            .numpy()
            .tolist()
        )

    assert find("a", "x") == [0, -5]
    one_two = tf.constant([1, 2], tf.int64)
    raw.LookupTableInsertV2(
        table_handle=handle, keys=tf.constant(["b", "c"]), values=one_two
    )
    assert find("a", "b", "c") == [0, 1, 2]
    raw.LookupTableRemoveV2(table_handle=handle, keys=tf.constant(["a"]))
    assert find("a", "b", "c") == [-5, 1, 2]
    assert int(raw.LookupTableSizeV2(table_handle=handle)) == 2
    keys, values = raw.LookupTableExportV2(
        table_handle=handle, Tkeys=tf.string, Tvalues=tf.int64
    )
    assert keys.numpy().tolist() == [b"b", b"c"]
    assert values.numpy().tolist() == [1, 2]
    raw.LookupTableImportV2(
        table_handle=handle, keys=tf.constant(["x", "y"]), values=one_two
    )
    assert find("b", "x", "y") == [-5, 1, 2]
    with pytest.raises(tf.errors.InvalidArgumentError, match="has two values"):
        raw.LookupTableImportV2(
            table_handle=handle, keys=tf.constant(["z", "z"]), values=one_two
        )
    assert find("x", "z") == [1, -5]
    with pytest.raises(tf.errors.InvalidArgumentError):
        raw.LookupTableFindV2(
            table_handle=handle,
            keys=one_two,
            default_value=tf.constant(-5, tf.int64),
        )


@pytest.mark.parametrize("keys", [[f"key {i}" for i in range(9999)], None])
def test_memory_used(keys):
    keys = list(range(9999)) if keys is None else keys
    dtype = tf.string if isinstance(keys[0], str) else tf.int64
    empty = IdTable([], key_dtype=dtype)
    table = IdTable(keys, key_dtype=dtype)
    assert empty.memory_used().dtype == tf.int64
    assert int(empty.memory_used()) < 1000
    # An integer takes 32 bytes; a string 10.7, its own bytes, and two numbers.
    per_key = int(table.memory_used()) / len(keys)
    assert 16 <= per_key <= 40
    used = tf.function(table.memory_used)()
    assert used.shape == [] and int(used) == int(table.memory_used())


def test_static_shapes():
    def check(table, handle, keys, values):
        ids = gen_ops.lodestar_id_table_find(
            handle=handle, keys=keys, default_value=tf.constant(0, tf.int64)
        )
        assert ids.shape.as_list() == keys.shape.as_list()
        ids = gen_ops.lodestar_id_table_find_or_hash(
            handle=handle, keys=keys, num_oov_buckets=1
        )
        assert ids.shape.as_list() == keys.shape.as_list()
        exported = gen_ops.lodestar_id_table_export(
            handle=handle, Tkeys=tf.int64
        )
        assert [x.shape.as_list() for x in exported] == [[None], [None]]
        assert gen_ops.lodestar_id_table_size(handle=handle).shape == ()
        made = gen_ops.lodestar_id_table(key_dtype=tf.int64, shared_name="s")
        assert made.shape == ()
        for write in (
            gen_ops.lodestar_id_table_insert,
            gen_ops.lodestar_id_table_import,
        ):
            with pytest.raises(ValueError, match="[Dd]imension|[Ss]hape"):
                write(handle=handle, keys=keys, values=values[:, :1])
        for call in (
            lambda x: gen_ops.lodestar_id_table_size(handle=x),
            lambda x: gen_ops.lodestar_id_table_remove(handle=x, keys=keys),
            lambda x: gen_ops.lodestar_id_table_import_file(handle=x, path="a"),
        ):
            with pytest.raises(ValueError, match="rank 0"):
                call(tf.stack([handle]))
        with pytest.raises(ValueError, match="rank 0"):
            gen_ops.lodestar_id_table_import_file(handle=handle, path=["a"])
        with pytest.raises(ValueError, match="rank 0"):
            gen_ops.lodestar_id_table_find(
                handle=handle, keys=keys, default_value=values[0]
            )

    table = IdTable(tf.constant([1], tf.int64), mutable=True)
    tf.function(check).get_concrete_function(
        table,
        table.resource_handle,
        tf.TensorSpec([None, 3], tf.int64),
        tf.TensorSpec([None, 3], tf.int64),
    )


def test_wrong_dtypes_reach_no_table():
    table = IdTable(["a"], mutable=True)
    number = tf.constant([1], tf.int64)
    for call in (
        lambda: gen_ops.lodestar_id_table_find(
            handle=table.resource_handle,
            keys=number,
            default_value=tf.constant(0, tf.int64),
        ),
        lambda: gen_ops.lodestar_id_table_insert(
            handle=table.resource_handle, keys=number, values=number
        ),
        lambda: gen_ops.lodestar_id_table_remove(
            handle=table.resource_handle, keys=number
        ),
    ):
        with pytest.raises(
            tf.errors.InvalidArgumentError,
            match="`keys` has dtype int64, but the table's keys are string",
        ):
            call()
    with pytest.raises(
        tf.errors.InvalidArgumentError, match="`Tkeys` is int64, but"
    ):
        gen_ops.lodestar_id_table_export(
            handle=table.resource_handle, Tkeys=tf.int64
        )
    with pytest.raises(
        TypeError, match="`values` must be integers, got float32"
    ):
        table.insert(["b"], [1.5])
    with pytest.raises(
        tf.errors.InvalidArgumentError, match=r"`keys` has shape \[1\], but"
    ):
        table.insert(["b"], [1, 2])
    stock = tf.lookup.StaticHashTable(
        tf.lookup.KeyValueTensorInitializer(number, number), -1
    )
    with pytest.raises(
        tf.errors.InvalidArgumentError, match="does not refer to an id table"
    ):
        gen_ops.lodestar_id_table_size(handle=stock.resource_handle)
    handle = gen_ops.lodestar_id_table(
        shared_name="of_ints", key_dtype=tf.int64
    )
    with pytest.raises(
        tf.errors.InvalidArgumentError,
        match="must have keys of string, got int64",
    ):
        gen_ops.lodestar_id_table(shared_name="of_ints", key_dtype=tf.string)
    del handle


def test_no_memory_leaves_the_table_as_it_was():
    program = """
import resource
import numpy as np, tensorflow as tf
from lodestar.lookup import IdTable

numbers = IdTable([7], mutable=True)
words = IdTable(["seven"], mutable=True)
keys = tf.range(1_000_000, dtype=tf.int64)
strings = tf.strings.as_string(keys)
used = int(open("/proc/self/statm").read().split()[0]) * 4096
for room in (6, 16):  # too small for the table, and for the strings
    resource.setrlimit(resource.RLIMIT_AS, (used + (room << 20), -1))
    for table, batch in ((numbers, keys), (words, strings)):
        for write in (table.insert, table.load):
            try:
                write(batch, keys)
                print("no error", table.key_dtype, room)
            except tf.errors.ResourceExhaustedError as error:
                assert "out of memory" in str(error), error
    resource.setrlimit(resource.RLIMIT_AS, (-1, -1))
assert int(numbers.size()) == int(words.size()) == 1
assert numbers[[7, 8]].numpy().tolist() == [0, -1]
assert words[["seven", "8"]].numpy().tolist() == [0, -1]
words.insert(strings, keys)
assert int(words.size()) == 1_000_001
print("as before")
"""
    result = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True
    )
    assert result.stdout.strip() == "as before", result.stderr[-2000:]


def test_concurrent_finds_and_inserts():
    table = IdTable(tf.range(1000, dtype=tf.int64), mutable=True)
    wrong = []

    def read():
        for _ in range(50):
            found = table.lookup(tf.range(1000, dtype=tf.int64)).numpy()
            if not (found == np.arange(1000)).all():
                wrong.append(found)

    def write(offset):
        for i in range(50):
            keys = tf.range(1000, 1100, dtype=tf.int64) + 100 * i + offset
            table.insert(keys, keys)

    threads = [threading.Thread(target=read) for _ in range(2)]
    threads += [
        threading.Thread(target=write, args=(i * 10**6,)) for i in range(2)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    assert int(table.size()) == 1000 + 2 * 5000


def test_checkpoint(tmp_path):
    table = IdTable(["a", "b"], [3, 4], mutable=True)
    path = tf.train.Checkpoint(table=table).write(str(tmp_path / "c"))
    other = IdTable([], key_dtype=tf.string, mutable=True)
    tf.train.Checkpoint(table=other).read(path).assert_consumed()
    assert ids_of(other, ["b", "a"]) == [4, 3]
    table.insert(["c"], [9])
    assert int(other.size()) == 2
