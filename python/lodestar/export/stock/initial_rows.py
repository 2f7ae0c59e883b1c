"""The first value of a row, by stock ops, bit for bit that of the table's op.

The arithmetic is that of RowInitializer in tf_ops/core/row_initializer.cc.
"""

import numpy as np
import tensorflow as tf

from lodestar.embedding import ids as ids_lib
from lodestar.embedding.initializers import InitializerAttrs

_GAMMA = 0x9E3779B97F4A7C15
_CONSTANTS = {"zeros": 0.0, "ones": 1.0}


class InitialRows:
    """What an id's row starts with.

    Args:
        attrs: The initializer.
        seed: Of the table, as it is, which may be that of a restored one.
        salt: Its init_salt.
        dim: Numbers in a row.
        dtype: Of rows.
        what: Whose rows they are, for errors.

    Raises:
        ValueError: An initializer that has no stand-in.
    """

    def __init__(
        self,
        attrs: InitializerAttrs,
        seed: int,
        salt: int,
        dim: int,
        dtype: tf.DType,
        what: str,
    ):
        if attrs.kind not in (*_CONSTANTS, "constant", "uniform"):
            raise ValueError(
                f"{what} has missing='initial' and the initializer "
                f"{attrs.kind!r}, whose values stock TensorFlow ops do not "
                "reproduce bit for bit; wanted zeros, ones, constant or "
                "uniform, or another `missing`."
            )
        self._attrs = attrs
        self._dim = dim
        self._dtype = dtype
        gamma = _signed(seed + _GAMMA)
        self._key = ids_lib.mix64(ids_lib.mix64(gamma) ^ salt)
        columns = range(1, dim + 1)
        self._steps = [_signed(column * _GAMMA) for column in columns]

    def draw(self, ids: tf.Tensor) -> tf.Tensor:
        """Returns the rows `[M, dim]` of int64 `ids` `[M]`."""
        kind, a, b = self._attrs
        a, b = np.float32(a), np.float32(b)
        if kind != "uniform":
            value = np.float32(_CONSTANTS.get(kind, a))
            rows = tf.fill([tf.size(ids), self._dim], value)
            return tf.cast(rows, self._dtype)
        base = ids_lib.mixed(
            tf.bitwise.bitwise_xor(ids_lib.mixed(ids), self._key)
        )
        steps = tf.constant(self._steps, tf.int64)
        words = ids_lib.mixed(base[:, tf.newaxis] + steps)
        upper = tf.bitwise.right_shift(
            tf.bitcast(words, tf.uint64), tf.constant(40, tf.uint64)
        )
        unit = tf.cast(tf.bitcast(upper, tf.int64), tf.float32) * 2.0**-24
        return tf.cast(a + unit * (b - a), self._dtype)


def _signed(word: int) -> int:
    """The low 64 bits of `word` as a signed integer."""
    word &= (1 << 64) - 1
    return word - (1 << 64) if word >> 63 else word
