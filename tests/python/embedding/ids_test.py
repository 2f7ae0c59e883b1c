"""Tests of id conversion, fingerprints and salts."""

import numpy as np
import pytest
import tensorflow as tf

import lodestar  # noqa: F401
from lodestar.embedding import ids as ids_lib

IDS = np.array([-(2**63), -1, 0, 1, 12345678901234567, 2**63 - 1])


def test_mix64_has_frozen_values():
    # SplitMix64 seeded with 0: its first outputs are mix64(k * golden gamma).
    golden = 0x9E3779B97F4A7C15
    outputs = [ids_lib.mix64(golden * k) & (2**64 - 1) for k in (1, 2, 3)]
    assert outputs == [
        0xE220A8397B1DCDAF,
        0x6E789E6AA1B965F4,
        0x06C45D188009454F,
    ]


@pytest.mark.parametrize("graph", [False, True])
def test_salted_equals_the_scalar_form(graph):
    function = lambda x: ids_lib.salted(x, "left")  # noqa: E731
    got = (tf.function(function) if graph else function)(tf.constant(IDS))
    want = [ids_lib.salted_id(int(i), "left") for i in IDS]
    assert got.numpy().tolist() == want
    assert want != [ids_lib.salted_id(int(i), "right") for i in IDS]
    assert len(set(want)) == len(IDS)


def test_stable_hash_is_the_same_everywhere():
    assert -(2**63) <= ids_lib.stable_hash("") < 2**63
    assert ids_lib.stable_hash("user") == 7173623408806911919


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
