"""Initial values of rows with plain ops, bit for bit as the table's op.

Repeats the arithmetic of RowInitializer in tf_ops/core/rows/row_initializer.cc.
"""

import numpy as np
import tensorflow as tf

from lodestar.embedding.initializers import InitializerAttrs
from lodestar.ops import id_hash

_GAMMA = 0x9E3779B97F4A7C15
# P(Z < -2) of a normal Z.
_BELOW_MINUS_TWO = 0.022750131948179195


class InitialRows:
    """The initial values of rows, for the seed and salt of a table's content."""

    def __init__(
        self,
        attrs: InitializerAttrs,
        seed: int,
        salt: int,
        dim: int,
        dtype: tf.DType,
    ):
        self._attrs = attrs
        self._dim = dim
        self._dtype = dtype
        gamma = _signed(seed + _GAMMA)
        self._key = id_hash.mix64(id_hash.mix64(gamma) ^ salt)
        columns = range(1, dim + 1)
        self._steps = [_signed(column * _GAMMA) for column in columns]

    def draw(self, ids: tf.Tensor) -> tf.Tensor:
        """Returns the rows `[M, dim]` of int64 `ids` `[M]`."""
        kind, *numbers = self._attrs
        a, b = map(np.float32, numbers)
        if kind in ("zeros", "ones", "constant"):
            value = {"zeros": np.float32(0), "ones": np.float32(1)}.get(kind, a)
            rows = tf.fill([tf.size(ids), self._dim], value)
        elif kind == "uniform":
            unit = tf.cast(self._words(ids, 40), tf.float32) * 2.0**-24
            rows = a + unit * (b - a)
        else:
            # The middle of one of 2^52 cells, so never 0 or 1.
            p = (tf.cast(self._words(ids, 12), tf.float64) + 0.5) * 2.0**-52
            if kind == "truncated_normal":
                p = _BELOW_MINUS_TWO + p * (1.0 - 2.0 * _BELOW_MINUS_TWO)
            rows = float(a) + float(b) * _inverse_normal(p)
            rows = tf.cast(rows, tf.float32)
        return tf.cast(rows, self._dtype)

    def _words(self, ids: tf.Tensor, shift: int) -> tf.Tensor:
        """Returns a random word per value, shifted right, as int64."""
        base = id_hash.mixed(
            tf.bitwise.bitwise_xor(id_hash.mixed(ids), self._key)
        )
        steps = tf.constant(self._steps, tf.int64)
        words = id_hash.mixed(base[:, tf.newaxis] + steps)
        return tf.bitcast(
            tf.bitwise.right_shift(
                tf.bitcast(words, tf.uint64), tf.constant(shift, tf.uint64)
            ),
            tf.int64,
        )


def _polynomial(x: tf.Tensor, *coefficients: float) -> tf.Tensor:
    """Evaluates a polynomial; the highest power is first."""
    result = coefficients[0] * x
    for coefficient in coefficients[1:-1]:
        result = (result + coefficient) * x
    return result + coefficients[-1]


def _log(x: tf.Tensor) -> tf.Tensor:
    bits = tf.bitcast(x, tf.int64)
    exponent = tf.bitwise.right_shift(bits, tf.constant(52, tf.int64)) - 1023
    mantissa = tf.bitwise.bitwise_and(bits, 0x000FFFFFFFFFFFFF)
    m = tf.bitcast(
        tf.bitwise.bitwise_or(mantissa, 0x3FF0000000000000), tf.float64
    )
    large = m > 1.4142135623730951
    m = tf.where(large, m * 0.5, m)
    exponent += tf.cast(large, tf.int64)
    t = (m - 1.0) / (m + 1.0)
    t2 = t * t
    odd = (1.0 / 11, 1.0 / 9, 1.0 / 7, 1.0 / 5, 1.0 / 3, 1.0)
    series = _polynomial(t2, *odd)
    return tf.cast(exponent, tf.float64) * 0.6931471805599453 + 2.0 * t * series


def _inverse_normal(p: tf.Tensor) -> tf.Tensor:
    q = p - 0.5
    r = 0.180625 - q * q
    middle = (
        q
        * _polynomial(
            r, 5.9109374720e01, 1.5929113202e02, 5.0434271938e01, 3.3871327179
        )
        / _polynomial(r, 6.7187563600e01, 7.8757757664e01, 1.7895169469e01, 1.0)
    )
    r = tf.sqrt(-_log(tf.where(q < 0, p, 1.0 - p)))
    near, far = r - 1.6, r - 5.0
    tail = tf.where(
        r <= 5.0,
        _polynomial(
            near, 1.7023821103e-01, 1.3067284816, 2.7568153900, 1.4234372777
        )
        / _polynomial(near, 1.2021132975e-01, 7.3700164250e-01, 1.0),
        _polynomial(
            far, 1.7337203997e-02, 4.2868294337e-01, 3.0812263860, 6.6579051150
        )
        / _polynomial(far, 1.2258202635e-02, 2.4197894225e-01, 1.0),
    )
    tail = tf.where(q < 0, -tail, tail)
    return tf.where(tf.abs(q) <= 0.425, middle, tail)


def _signed(word: int) -> int:
    """The low 64 bits of `word` as a signed integer."""
    word &= (1 << 64) - 1
    return word - (1 << 64) if word >> 63 else word
