"""Compares id tables of integers on a GPU with those on the CPU."""

import emulated

emulated.load()

import numpy as np  # noqa: E402
import pytest  # noqa: E402
import tensorflow as tf  # noqa: E402

import lodestar  # noqa: E402
from lodestar.ops import id_table_ops  # noqa: E402

INTEGERS = [d for d in id_table_ops.KEY_DTYPES if d != tf.string]


def pair(keys, values=None, **kwargs):
    """Returns a table on the CPU and one on a GPU."""
    tables = []
    for device in ("/CPU:0", "/GPU:1"):
        with tf.device(device):
            tables.append(lodestar.lookup.IdTable(keys, values, **kwargs))
    assert tables[0].resource_handle.device.endswith("CPU:0")
    assert tables[1].resource_handle.device.endswith("GPU:1")
    return tables


@pytest.mark.parametrize("dtype", INTEGERS, ids=lambda d: d.name)
def test_lookups_are_those_of_the_cpu(rng, dtype):
    keys = np.unique(
        rng.integers(dtype.min, dtype.max, 90, dtype.as_numpy_dtype)
    )
    values = rng.integers(-3, 3, len(keys))
    asked = np.concatenate(
        [rng.choice(keys, 50), rng.integers(0, 100, 50)]
    ).astype(dtype.as_numpy_dtype)
    cpu, gpu = pair(keys, values, key_dtype=dtype, default_value=-9)
    found = gpu.lookup(asked.reshape(4, 25))
    assert found.backing_device.endswith("GPU:1")
    np.testing.assert_array_equal(found, cpu.lookup(asked.reshape(4, 25)))
    for hasher, key in (("fast", None), ("strong", (3, 7)), ("legacy", None)):
        on_cpu, on_gpu = (
            lodestar.lookup.IdTableWithHashBuckets(
                table, 7, hasher=hasher, hasher_key=key
            )
            for table in (cpu, gpu)
        )
        ids = on_gpu.lookup(asked)
        assert ids.backing_device.endswith("GPU:1")
        np.testing.assert_array_equal(ids, on_cpu.lookup(asked))
    with tf.device("/GPU:1"):
        alone = lodestar.lookup.IdTableWithHashBuckets(None, 7, key_dtype=dtype)
    assert alone.lookup(asked).backing_device.endswith("GPU:1")


def test_a_changed_table_is_copied_again():
    cpu, gpu = pair([5, 6, 7], mutable=True, key_dtype=tf.int64)
    asked = tf.constant([5, 6, 7, 8, -1], tf.int64)
    for change in (
        lambda t: t.insert([8, 5], [80, 50]),
        lambda t: t.remove([6]),
        lambda t: t.load(
            tf.constant([-1], tf.int64), tf.constant([3], tf.int64)
        ),
    ):
        np.testing.assert_array_equal(gpu.lookup(asked), cpu.lookup(asked))
        for t in (cpu, gpu):
            change(t)
        np.testing.assert_array_equal(gpu.lookup(asked), cpu.lookup(asked))
    assert gpu.size() == cpu.size() == 1


def test_ragged_keys_and_functions(rng):
    cpu, gpu = pair(np.arange(50) * 3)
    keys = tf.RaggedTensor.from_row_lengths(rng.integers(0, 99, 6), [2, 0, 4])

    @tf.function(input_signature=[tf.RaggedTensorSpec([None, None], tf.int64)])
    def lookup(keys):
        return gpu.lookup(keys)

    tf.debugging.assert_equal(lookup(keys).values, cpu.lookup(keys).values)


def test_it_is_saved_and_restored(tmp_path):
    cpu, gpu = pair([5, 6], [50, 60])
    path = tf.train.Checkpoint(table=gpu).save(str(tmp_path / "saved"))
    with tf.device("/CPU:0"):
        other = lodestar.lookup.IdTable(tf.constant([1], tf.int64))
    tf.train.Checkpoint(table=other).restore(path).assert_consumed()
    assert other.lookup([5, 6, 1]).numpy().tolist() == [50, 60, -1]


def test_strings_stay_on_the_cpu():
    with tf.device("/GPU:0"):
        table = lodestar.lookup.IdTable(["a", "b"])
        assert table.lookup(["b", "c"]).numpy().tolist() == [1, -1]
    assert table.resource_handle.device.endswith("CPU:0")


def test_memory_of_the_copy_is_counted():
    cpu, gpu = pair(range(1000))
    assert gpu.memory_used() == cpu.memory_used()
    gpu.lookup([1])
    copied = int(gpu.memory_used() - cpu.memory_used())
    assert 24 * 1000 <= copied <= 80 * 1000
