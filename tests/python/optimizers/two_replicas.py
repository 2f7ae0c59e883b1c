"""One strategy of two replicas for all tests of a process.

TensorFlow numbers the collectives of each `MirroredStrategy` from the same
first key. Where two strategies of the same devices exist in one process, the
second one's first sum is refused, because its shape is not that of the first
one's.
"""

import functools

import tensorflow as tf


@functools.cache
def two_replicas():
    return tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
