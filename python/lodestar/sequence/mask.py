"""Lengths as a mask."""

import tensorflow as tf

from lodestar._checks import as_int64
from lodestar._typing import TensorLike
from lodestar.ragged.padding import as_maxlen


def mask(
    lengths: TensorLike,
    maxlen: TensorLike | None = None,
    dtype: tf.DType = tf.int64,
    *,
    name: str | None = None,
) -> tf.Tensor:
    """Returns 1 for the first steps of each sequence and 0 for what follows.

    The semantics of Paddle's `sequence_mask`; TensorFlow's
    `tf.sequence_mask` but for the default dtype and the checks.

    >>> mask([2, 0], 3).numpy()
    array([[1, 1, 0],
           [0, 0, 0]])

    Args:
        lengths: int64 or int32, of any shape. One below 0 is as 0.
        maxlen: Steps of the mask, 0 or more, a number or an int64 or int32
            scalar; None is the greatest length. Lengths may exceed it.
        dtype: Of the mask; bool gives True and False.
        name: A name for the op.

    Returns:
        The shape of `lengths` and a dimension of `maxlen`. No gradient.

    Raises:
        TypeError: lengths or a `maxlen` tensor that are no int64 or int32.
        ValueError: a `maxlen` that is a number, but no integer of 0 or more;
            one that is no scalar.
    """
    lengths = as_int64("lengths", lengths)
    if maxlen is not None:
        maxlen = as_maxlen(maxlen)
    with tf.name_scope(name or "sequence_mask"):
        return tf.sequence_mask(lengths, maxlen, dtype)
