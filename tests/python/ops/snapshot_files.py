"""Damages snapshot files, and draws random arguments for their ops."""

import pathlib

import numpy as np
import tensorflow as tf
from random_arguments import MAX, MIN


def flipped(path, at):
    """Flips a bit of byte `at` of the file `path`."""
    data = bytearray(pathlib.Path(path).read_bytes())
    data[at] ^= 1
    pathlib.Path(path).write_bytes(data)


def random_text(rng, paths):
    """Returns a path that exists, or one that does not."""
    return paths[rng.integers(len(paths))]


def random_input(rng, dtype, paths):
    """Returns a tensor for an argument of an op."""
    shape = [(), (), (), (1,), (2,), (0,), (1, 1)][rng.integers(7)]
    size = int(np.prod(shape))
    if dtype == tf.string:
        values = [random_text(rng, paths) for _ in range(size)]
    else:
        drawn = [MIN, -1, 0, 15, 16, 16, 16, 24, 2**40, MAX]
        values = [drawn[rng.integers(len(drawn))] for _ in range(size)]
    return tf.reshape(tf.constant(values, dtype, [size]), shape)
