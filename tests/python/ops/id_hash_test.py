"""Tests of the hashes of ids and strings."""

import numpy as np
import pytest
import tensorflow as tf

from lodestar.ops import id_hash

IDS = np.array([-(2**63), -1, 0, 1, 12345678901234567, 2**63 - 1])


def test_mix64_has_frozen_values():
    # SplitMix64 seeded with 0: its first outputs are mix64(k * golden gamma).
    golden = 0x9E3779B97F4A7C15
    outputs = [id_hash.mix64(golden * k) & (2**64 - 1) for k in (1, 2, 3)]
    assert outputs == [
        0xE220A8397B1DCDAF,
        0x6E789E6AA1B965F4,
        0x06C45D188009454F,
    ]


@pytest.mark.parametrize("graph", [False, True])
def test_salted_equals_the_scalar_form(graph):
    function = lambda x: id_hash.salted(x, "left")  # noqa: E731
    got = (tf.function(function) if graph else function)(tf.constant(IDS))
    want = [id_hash.salted_id(int(i), "left") for i in IDS]
    assert got.numpy().tolist() == want
    assert want != [id_hash.salted_id(int(i), "right") for i in IDS]
    assert len(set(want)) == len(IDS)


def test_stable_hash_is_the_same_everywhere():
    assert -(2**63) <= id_hash.stable_hash("") < 2**63
    assert id_hash.stable_hash("user") == 7173623408806911919


@pytest.mark.parametrize("graph", [False, True])
def test_parts_of_ids_are_frozen(graph):
    # The same values as in tests/core/base/id_parts_test.cc.
    ids = tf.constant([-(2**63), -1, 0, 1, 2, 3, 2**63 - 1], tf.int64)
    function = tf.function(id_hash.part_of_id) if graph else id_hash.part_of_id
    assert function(ids, 1).numpy().tolist() == [0] * 7
    assert function(ids, 7).numpy().tolist() == [2, 4, 6, 5, 1, 5, 3]
    assert function(ids, 1000).numpy().tolist() == [
        410, 646, 883, 749, 254, 815, 557,
    ]  # fmt: skip
    assert function(ids[None, :, None], 7).shape == (1, 7, 1)
    assert function(ids[:0], 7).shape == 0


def test_there_may_be_as_many_parts_as_an_op_takes():
    most = 2**31 - 1
    parts = id_hash.part_of_id(tf.range(1000, dtype=tf.int64), most).numpy()
    assert parts.min() >= 0
    assert most / 2 < parts.max() < most
