"""lodestar.lookup.IdTable: look-ups, updates, saving, errors."""

import subprocess
import sys
import threading

import numpy as np
import pytest
import tensorflow as tf

from lodestar.lookup import IdTable, index_table_from_file

EDGES = [-(2**63), -1, 0, 1, 2**63 - 1]


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
        keys, queries = tf.strings.as_string(keys), tf.strings.as_string(queries)
    else:
        keys, queries = tf.cast(keys, dtype), tf.cast(queries, dtype)
    table = IdTable(keys, values, default_value=-7)
    known = dict(zip(keys.numpy().tolist(), values.numpy().tolist(), strict=True))
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
    assert table.lookup(tf.constant(["a", "b", "c", "d"])).numpy().tolist() == [
        1,
        2,
        0,
        -1,
    ]
    keys, values = table.export()
    assert keys.numpy().tolist() == [b"c", b"a", b"b"]
    assert values.numpy().tolist() == [0, 1, 2]


def test_strange_strings_are_ordinary_keys():
    keys = [b"", b"\0", b"\0\0", b"\xff\xfe", b"x" * 1_000_000]
    table = IdTable(tf.constant(keys))
    assert table.lookup(tf.constant(keys)).numpy().tolist() == [0, 1, 2, 3, 4]
    assert table.lookup(tf.constant([b"\0\0\0", b"x" * 999_999])).numpy().tolist() == [
        -1,
        -1,
    ]


def test_dense_ragged_sparse_and_functions():
    table = IdTable(tf.constant([10, 20, 30], tf.int64))
    dense = tf.constant([[10, 5], [30, 20]], tf.int64)
    assert table.lookup(dense).numpy().tolist() == [[0, -1], [2, 1]]
    assert table.lookup(tf.constant([10, 20])).numpy().tolist() == [0, 1]
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


def test_initializers_and_files(tmp_path):
    path = tmp_path / "vocabulary.txt"
    path.write_text("a\nb\nc\n")
    table = index_table_from_file(str(path))
    assert table.lookup(tf.constant(["c", "x"])).numpy().tolist() == [2, -1]
    columns = tmp_path / "columns.tsv"
    columns.write_text("7\tx\n9\ty\n")
    table = index_table_from_file(
        str(columns), key_column_index=1, value_column_index=0
    )
    assert table.lookup(tf.constant(["y", "x"])).numpy().tolist() == [9, 7]
    table = IdTable(
        tf.lookup.KeyValueTensorInitializer(
            tf.constant([5], tf.int64), tf.constant([50], tf.int64)
        )
    )
    assert table.lookup(tf.constant([5], tf.int64)).numpy().tolist() == [50]
    with pytest.raises(tf.errors.NotFoundError, match="absent.txt"):
        index_table_from_file(str(tmp_path / "absent.txt"))
    columns.write_text("7\tx\nnine\ty\n")
    with pytest.raises(tf.errors.InvalidArgumentError, match="nine"):
        index_table_from_file(
            str(columns), key_column_index=1, value_column_index=0
        )


def test_mutable_table():
    table = IdTable(["a"], mutable=True)
    table.insert(["b", "c", "b"], [5, 6, 7])
    assert table.lookup(tf.constant(["a", "b", "c"])).numpy().tolist() == [0, 7, 6]
    table.remove(["a", "nobody"])
    assert table.lookup(tf.constant(["a", "b"])).numpy().tolist() == [-1, 7]
    tf.raw_ops.LookupTableInsertV2(
        table_handle=table.resource_handle,
        keys=tf.constant(["d"]),
        values=tf.constant([8], tf.int64),
    )
    tf.raw_ops.LookupTableRemoveV2(
        table_handle=table.resource_handle, keys=tf.constant(["c"])
    )
    keys, values = tf.raw_ops.LookupTableExportV2(
        table_handle=table.resource_handle, Tkeys=tf.string, Tvalues=tf.int64
    )
    assert keys.numpy().tolist() == [b"b", b"d"]
    assert values.numpy().tolist() == [7, 8]


def test_immutable_table_refuses_writes():
    table = IdTable(["a"])
    for write in (lambda: table.insert(["b"], [1]), lambda: table.remove(["a"])):
        with pytest.raises(
            tf.errors.FailedPreconditionError, match="not mutable"
        ):
            write()
    assert table.lookup(tf.constant(["a", "b"])).numpy().tolist() == [0, -1]


def test_a_key_with_two_values_leaves_the_table_as_it_was():
    table = IdTable(["a", "b"])
    with pytest.raises(
        tf.errors.InvalidArgumentError, match="key 'x' has two values: 1 and 2"
    ):
        table.import_(["x", "x"], [1, 2])
    assert table.lookup(tf.constant(["a", "x"])).numpy().tolist() == [0, -1]
    table.import_(["x", "x"], [1, 1])
    assert table.lookup(tf.constant(["a", "x"])).numpy().tolist() == [-1, 1]
    with pytest.raises(tf.errors.InvalidArgumentError, match="key -3 has two"):
        IdTable(tf.constant([-3, -3], tf.int64))


def test_what_is_refused():
    with pytest.raises(TypeError, match="`keys` have dtype float32"):
        IdTable([1.0])
    with pytest.raises(ValueError, match="must have rank 1"):
        IdTable([["a"]])
    with pytest.raises(ValueError, match=r"`keys` have shape \(2,\), but"):
        IdTable(["a", "b"], [1])
    table = IdTable(["a"])
    with pytest.raises(TypeError, match="dtype int64, but the keys of table"):
        table.lookup(tf.constant([1], tf.int64))
    with pytest.raises(tf.errors.InvalidArgumentError, match="`values` has"):
        table.import_(["a"], [[1]])


def test_find_before_anything_was_imported():
    from lodestar._library import gen_ops

    handle = gen_ops.lodestar_id_table(shared_name="bare", key_dtype=tf.int64)
    with pytest.raises(
        tf.errors.FailedPreconditionError, match="was not initialized"
    ):
        gen_ops.lodestar_id_table_find(
            handle=handle,
            keys=tf.constant([1], tf.int64),
            default_value=tf.constant(-1, tf.int64),
        )


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
    assert other.lookup(tf.constant(["b", "a"])).numpy().tolist() == [4, 3]
    table.insert(["c"], [9])
    assert int(other.size()) == 2


def test_saved_model_in_a_fresh_process(tmp_path):
    module = tf.Module()
    module.table = IdTable(["a", "b"])
    module.find = tf.function(
        module.table.lookup, input_signature=[tf.TensorSpec([None], tf.string)]
    )
    tf.saved_model.save(module, str(tmp_path / "m"))
    program = (
        "import tensorflow as tf, lodestar._library\n"
        f"m = tf.saved_model.load({str(tmp_path / 'm')!r})\n"
        "print(m.find(tf.constant(['b', 'x', 'a'])).numpy().tolist())\n"
    )
    result = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        check=True,
    )
    assert result.stdout.strip().endswith("[1, -1, 0]")
