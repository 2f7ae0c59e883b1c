"""lodestar.lookup.HasherSpec: names, keys and specs of TensorFlow."""

import collections

import numpy as np
import pytest
import tensorflow as tf

from lodestar.lookup import HasherSpec, IdTable, IdTableWithHashBuckets

KEYS = tf.constant(["x", "y", "z"])


def buckets(spec):
    return IdTableWithHashBuckets(None, 99, spec)[KEYS].numpy().tolist()


@pytest.mark.parametrize("name", ["fasthash", "legacy"])
def test_a_name_is_the_spec_without_a_key(name):
    assert HasherSpec(name) == HasherSpec(name, None)
    assert buckets(name) == buckets(HasherSpec(name))
    table = IdTable.from_tensor(["a"], 99, hasher_spec=name)
    assert table[KEYS].numpy().tolist() == [1 + i for i in buckets(name)]


def test_keys_are_two_integers_of_any_kind():
    spec = HasherSpec("stronghash", key=np.array([5, 2**63 + 1], np.uint64))
    assert spec == HasherSpec("stronghash", [5, 2**63 + 1])
    assert hash(spec) == hash(HasherSpec("stronghash", (5, 2**63 + 1)))
    assert buckets(spec) != buckets("fasthash")


def test_a_spec_of_tensorflow():
    # The types of tf.lookup have no public name.
    spec = collections.namedtuple("HasherSpec", ["hasher", "key"])
    assert buckets(spec("fasthash", None)) == buckets("fasthash")
    assert buckets(spec("stronghash", [1, 2])) == buckets(
        HasherSpec("stronghash", [1, 2])
    )


@pytest.mark.parametrize("key", [None, [1], [1, 2, 3], ["a", "b"], [1.0, 2.0]])
def test_other_keys_are_refused(key):
    with pytest.raises(ValueError, match="`key` of the hash 'stronghash' must"):
        HasherSpec("stronghash", key)


def test_a_key_that_the_hash_does_not_take_is_refused():
    with pytest.raises(ValueError, match="must be None for the hash 'legacy'"):
        HasherSpec("legacy", [1, 2])
    with pytest.raises(ValueError, match="one of fasthash, legacy, stronghash"):
        HasherSpec("md5")
