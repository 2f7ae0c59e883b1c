"""Tests of id conversion."""

import pytest
import tensorflow as tf

import lodestar  # noqa: F401
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
