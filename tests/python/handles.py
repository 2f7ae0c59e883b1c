"""Handles that do not keep their resources alive."""

import tensorflow as tf


def weak(handle):
    """Returns a handle that finds the resource by its name, as another process does."""
    return tf.io.parse_tensor(tf.io.serialize_tensor(handle), tf.resource)
