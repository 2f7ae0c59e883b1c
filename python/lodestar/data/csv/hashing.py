"""Ids of text values: a 64-bit hash of (column, value)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import tensorflow as tf


def hash_ids(column: str, values: Sequence[str]) -> np.ndarray:
    r"""Returns the ids of a column's text values.

    The id is FarmHash's Fingerprint64 of the UTF-8 text `column + "\x00" +
    value`, its 64 bits read as int64. The hash never changes between releases
    or machines, equal values of different columns get different ids, and a
    serving graph computes the same ids with stock ops, see `hash_ids_tensor`.

    Args:
        column: The column's name.
        values: N strings.

    Returns:
        int64 `[N]`.
    """
    if len(values) == 0:
        return np.zeros(0, np.int64)
    prefix = column.encode() + b"\x00"
    keys = [prefix + value.encode() for value in values]
    with tf.device("CPU:0"):
        words = tf.fingerprint(tf.constant(keys))
    return words.numpy().view("<i8").reshape(-1).astype(np.int64)


def hash_ids_tensor(column: str, values: tf.Tensor) -> tf.Tensor:
    """As `hash_ids` for a string tensor of any shape, in a graph; int64."""
    values = tf.convert_to_tensor(values, tf.string)
    keys = tf.strings.join(
        [column.encode() + b"\x00", tf.reshape(values, [-1])]
    )
    words = tf.fingerprint(keys)
    return tf.reshape(tf.bitcast(words, tf.int64), tf.shape(values))
