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
