"""One strategy of two replicas for all tests of a process.

TensorFlow numbers the collectives of each `MirroredStrategy` from the same
first key. If a process has two strategies of the same devices, the second one's
first sum fails, because its shape differs from the first one's.
"""

import functools

import tensorflow as tf


@functools.cache
def two_replicas():
    return tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
