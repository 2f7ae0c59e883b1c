"""lodestar.sequence.expand and expand_as against NumPy, gradients and errors."""

import numpy as np
import tensorflow as tf

from lodestar import LoDTensor
from lodestar.sequence import expand, expand_as


def lod(lengths, values=None):
    """Returns a LoDTensor of these lengths, a list a level."""
    if values is None:
        values = np.zeros(sum(lengths[-1]), np.float32)
    return LoDTensor.from_lengths(values, lengths)


def lengths_of(x):
    return [level.numpy().tolist() for level in x.lengths()]


def test_paddles_examples():
    x = lod([[2, 2]], ["a", "b", "c", "d"])
    y = lod([[2, 2], [3, 3, 1, 1]])
    out = expand(x, y, ref_level=0)
    assert isinstance(out, LoDTensor)
    assert out.values.numpy().tolist() == list(map(str.encode, "ababcdcd"))
    assert lengths_of(out) == [[2, 2, 2, 2]]
    out = expand(tf.constant(["a", "b", "c"]), lod([[2, 0, 3]]))
    assert out.numpy().tolist() == list(map(str.encode, "aaccc"))
    out = expand_as(tf.constant(["a", "b", "c", "d"]), lod([[3, 3, 1, 1]]))
    assert out.values.numpy().tolist() == list(map(str.encode, "aaabbbcd"))
    assert lengths_of(out) == [[3, 3, 1, 1]]
