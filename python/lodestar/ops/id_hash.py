"""64-bit hashes of strings and ids."""

import hashlib
from typing import Any

import tensorflow as tf

from lodestar.ops.flat_values import map_flat

_MASK = (1 << 64) - 1
# SplitMix64's increment.
_GOLDEN_GAMMA = 0x9E3779B97F4A7C15


def fingerprint(strings: tf.Tensor, column: str | None = None) -> tf.Tensor:
    """Returns the 64-bit fingerprint (FarmHash64) of each string, as int64."""
    flat = tf.reshape(strings, [-1])
    if column is not None:
        flat = tf.strings.join([column.encode() + b"\0", flat])
    ids = tf.bitcast(tf.fingerprint(flat), tf.int64)
    return tf.ensure_shape(tf.reshape(ids, tf.shape(strings)), strings.shape)


def stable_hash(text: str) -> int:
    """Returns a 64-bit hash of `text`, a signed integer, equal on all machines."""
    digest = hashlib.blake2b(text.encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little", signed=True)


def mix64(value: int) -> int:
    """Applies SplitMix64's finalizer to an int64 (tf_ops/core/base/hash.h)."""
    x = value & _MASK
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & _MASK
    x ^= x >> 31
    return x - (1 << 64) if x >> 63 else x


def salted_id(value: int, salt: str) -> int:
    """Returns `salted` of one id."""
    return mix64(value ^ stable_hash(salt))


def salted(ids: Any, salt: str | None) -> Any:
    """Returns mix64(id xor hash(salt)) of int64 `ids`, dense, ragged or sparse.

    Uses plain TensorFlow ops. Returns `ids` if `salt` is None. It is a bijection, and
    ids with different salts do not collide in a table.
    """
    if salt is None:
        return ids
    word = stable_hash(salt)
    return map_flat(lambda x: mixed(tf.bitwise.bitwise_xor(x, word)), ids)


def mixed(ids: tf.Tensor) -> tf.Tensor:
    """Returns `mix64` of int64 `ids` of any shape, with plain TensorFlow ops."""
    bits = tf.bitwise
    x = tf.bitcast(ids, tf.uint64)

    def step(x: tf.Tensor, shift: int) -> tf.Tensor:
        return bits.bitwise_xor(
            x, bits.right_shift(x, tf.constant(shift, tf.uint64))
        )

    def times(x: tf.Tensor, factor: int) -> tf.Tensor:
        # TensorFlow multiplies int64 on every device. The low 64 bits of a
        # product do not depend on the sign.
        signed = factor - (1 << 64) if factor >> 63 else factor
        product = tf.bitcast(x, tf.int64) * tf.constant(signed, tf.int64)
        return tf.bitcast(product, tf.uint64)

    x = times(step(x, 30), 0xBF58476D1CE4E5B9)
    x = times(step(x, 27), 0x94D049BB133111EB)
    return tf.bitcast(step(x, 31), tf.int64)


def part_of_id(ids: tf.Tensor, num_parts: int) -> tf.Tensor:
    """Returns the part in [0, num_parts) that holds each int64 id.

    Uses plain TensorFlow ops; equal in all releases (tf_ops/core/base/id_parts.h).
    """
    word = mixed(mixed(ids) + tf.constant(_GOLDEN_GAMMA - (1 << 64), tf.int64))
    high = tf.bitwise.right_shift(
        tf.bitcast(word, tf.uint64), tf.constant(32, tf.uint64)
    )
    product = tf.bitcast(high, tf.int64) * tf.constant(num_parts, tf.int64)
    return tf.bitwise.right_shift(product, tf.constant(32, tf.int64))
