"""lodestar.data.hash_ids: frozen values, and the same in a graph."""

import numpy as np
import tensorflow as tf

from lodestar.data.csv.hashing import hash_ids, hash_ids_tensor


def test_frozen_values():
    # A change here changes the ids of every converted file and trained table.
    assert hash_ids("C1", ["a", "b", ""]).tolist() == [
        7478687048435477400,
        -7995781161520475002,
        1154449224289080334,
    ]


def test_equals_tensorflow_fingerprints():
    values = [f"value {i}" for i in range(1000)] + ["naïve", "☃"]
    buckets = 2**63 - 1
    want = tf.strings.to_hash_bucket_fast(
        [f"column\0{value}" for value in values], buckets
    )
    got = hash_ids("column", values).view(np.uint64) % np.uint64(buckets)
    np.testing.assert_array_equal(got.astype(np.int64), want)


def test_columns_do_not_collide():
    assert hash_ids("a", ["bc"]) != hash_ids("ab", ["c"])
    assert hash_ids("a", ["x"]) != hash_ids("b", ["x"])


def test_no_values():
    assert hash_ids("a", []).shape == (0,)
    assert hash_ids("a", []).dtype == np.int64


def test_in_a_graph_of_any_shape():
    values = [["x", "y", ""], ["naïve", "z", "x"]]
    graph = tf.function(
        lambda v: hash_ids_tensor("C1", v),
        input_signature=[tf.TensorSpec(None, tf.string)],
    )
    want = hash_ids("C1", sum(values, [])).reshape(2, 3)
    np.testing.assert_array_equal(graph(tf.constant(values)), want)
    np.testing.assert_array_equal(graph(tf.constant("x")), want[0, 0])
    assert graph(tf.constant([], tf.string)).shape == (0,)
