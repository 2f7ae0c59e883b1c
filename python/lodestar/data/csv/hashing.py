"""Ids of text values: a 64-bit hash of (column, value)."""

from collections.abc import Sequence

import numpy as np
import tensorflow as tf

from lodestar import string_ids


def hash_ids(column: str, values: Sequence[str]) -> np.ndarray:
    """Returns the ids of a column's text values.

    They are those of `lodestar.hash_ids(values, column=column)`, and a serving
    graph computes them with stock ops, see `hash_ids_tensor`.

    Args:
        column: The column's name.
        values: N strings.

    Returns:
        int64 `[N]`.
    """
    with tf.device("CPU:0"):
        strings = tf.constant(list(values), tf.string, [len(values)])
        return string_ids.hash_ids(strings, column=column).numpy()


def hash_ids_tensor(column: str, values: tf.Tensor) -> tf.Tensor:
    """As `hash_ids` for a string tensor of any shape, in a graph; int64."""
    return string_ids.hash_ids(values, column=column)
