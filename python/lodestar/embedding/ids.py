"""Ids as users have them -> int64 tensors, dense, ragged or sparse."""

import hashlib
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from lodestar.ops.flat_values import map_flat

IdTensor = tf.Tensor | tf.RaggedTensor | tf.SparseTensor

_WIDENED = (tf.int8, tf.int16, tf.int32, tf.uint8, tf.uint16, tf.uint32)
_MASK = (1 << 64) - 1


def _to_tensor(ids: Any, name: str) -> IdTensor:
    if isinstance(ids, (tf.RaggedTensor, tf.SparseTensor)) or tf.is_tensor(ids):
        return ids
    if isinstance(ids, keras.KerasTensor):
        raise ValueError(
            f"`{name}` is symbolic, which a layer takes: "
            "lodestar.layers.DynamicEmbedding(table=...)."
        )
    # Through NumPy, which makes Python integers int64; TensorFlow would choose
    # int32, or fail for what does not fit it.
    try:
        array = np.asarray(ids)
    except ValueError:  # lists of different lengths
        array = np.asarray(None)
    except NotImplementedError:  # a list of a graph's tensors
        return tf.convert_to_tensor(ids)
    if array.dtype == object:
        raise ValueError(
            f"`{name}`, a {type(ids).__name__}, is no array of 64-bit integers; "
            f"wanted one, or tf.ragged.constant({name}) of lists of different "
            "lengths."
        )
    if array.size == 0 and not isinstance(ids, np.ndarray):
        array = array.astype(np.int64)  # [] has no dtype of its own
    return tf.convert_to_tensor(array)


def float_ids_message(dtype: tf.DType, name: str) -> str:
    """The text for ids of a floating-point type, which cannot hold all ids."""
    return (
        f"`{name}` has dtype {tf.as_dtype(dtype).name}, wanted integers (or "
        "strings in a layer): a float cannot hold a 64-bit id. Give the input "
        "an integer dtype, e.g. keras.Input(shape, dtype='int64')."
    )


def to_int64(
    ids: Any,
    *,
    strings: bool = False,
    column: str | None = None,
    name: str = "ids",
) -> IdTensor:
    """Returns `ids` as int64.

    Args:
        ids: Integers, dense, ragged or sparse. uint64 keeps its bits; the
            others keep their values.
        strings: Whether strings are taken, by their 64-bit fingerprint.
        column: That of strings is of `column`, a zero byte and the string.
        name: What to call `ids` in an error.

    Raises:
        ValueError: Another dtype. In a graph, floating-point ids fail when the
            graph runs instead: Keras traces a subclassed model with float
            inputs in every export, where an exception would be swallowed and
            its tables left out.
    """
    ids = _to_tensor(ids, name)
    dtype = ids.dtype
    if dtype == tf.int64:
        return ids
    if dtype in _WIDENED:
        return map_flat(lambda x: tf.cast(x, tf.int64), ids)
    if dtype == tf.uint64:
        return map_flat(lambda x: tf.bitcast(x, tf.int64), ids)
    if dtype == tf.string and strings:
        return map_flat(lambda flat: fingerprint(flat, column), ids)
    if dtype.is_floating:
        message = float_ids_message(dtype, name)
        if tf.executing_eagerly():
            raise ValueError(message)
        check = tf.debugging.Assert(tf.constant(False), [message])
        with tf.control_dependencies([check]):
            return map_flat(lambda x: tf.cast(x, tf.int64), ids)
    raise ValueError(f"`{name}` has dtype {dtype.name}, wanted integers.")


def to_dense_int64(ids: Any, what: str) -> tf.Tensor:
    """As `to_int64`, of dense ids only.

    Args:
        ids: As of `to_int64`.
        what: What takes no others, for the error.
    """
    ids = to_int64(ids)
    if isinstance(ids, (tf.RaggedTensor, tf.SparseTensor)):
        raise ValueError(
            f"`ids` is a {type(ids).__name__} of shape {ids.shape}; {what} "
            "takes a dense tensor."
        )
    return ids


def to_numbers(values: Any, name: str, dtype: tf.DType) -> tf.Tensor:
    """Returns `values`, which an error calls `name`, cast to `dtype`.

    Raises:
        ValueError: They are no numbers.
    """
    try:
        values = tf.convert_to_tensor(values)
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"`{name}`, a {type(values).__name__}, is no array of numbers: "
            f"{error}"
        ) from error
    if not (values.dtype.is_floating or values.dtype.is_integer):
        raise ValueError(
            f"`{name}` has dtype {values.dtype.name}, wanted numbers."
        )
    return tf.cast(values, dtype)


def fingerprint(strings: tf.Tensor, column: str | None = None) -> tf.Tensor:
    """The 64-bit fingerprint (FarmHash64) of each string, as int64."""
    flat = tf.reshape(strings, [-1])
    if column is not None:
        flat = tf.strings.join([column.encode() + b"\0", flat])
    ids = tf.bitcast(tf.fingerprint(flat), tf.int64)
    return tf.ensure_shape(tf.reshape(ids, tf.shape(strings)), strings.shape)


def stable_hash(text: str) -> int:
    """A 64-bit hash of `text` as a signed integer, the same everywhere."""
    digest = hashlib.blake2b(text.encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little", signed=True)


def mix64(value: int) -> int:
    """SplitMix64's finalizer on a signed 64-bit integer (core/hash.h)."""
    x = value & _MASK
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & _MASK
    x ^= x >> 31
    return x - (1 << 64) if x >> 63 else x


def salted_id(value: int, salt: str) -> int:
    """As `salted` for one id."""
    return mix64(value ^ stable_hash(salt))


def salted(ids: tf.Tensor, salt: str) -> tf.Tensor:
    """Returns mix64(id xor hash(salt)), by stock ops: a bijection of all ids.

    Args:
        ids: int64, any shape.
        salt: Ids of different salts do not collide in a shared table.
    """
    return mixed(tf.bitwise.bitwise_xor(ids, stable_hash(salt)))


def mixed(ids: tf.Tensor) -> tf.Tensor:
    """Returns `mix64` of int64 `ids` of any shape, by stock ops."""
    bits = tf.bitwise
    x = tf.bitcast(ids, tf.uint64)

    def step(x: tf.Tensor, shift: int) -> tf.Tensor:
        return bits.bitwise_xor(
            x, bits.right_shift(x, tf.constant(shift, tf.uint64))
        )

    def times(x: tf.Tensor, factor: int) -> tf.Tensor:
        # In int64, which TensorFlow multiplies on every device; the low 64
        # bits of a product do not depend on the sign.
        signed = factor - (1 << 64) if factor >> 63 else factor
        product = tf.bitcast(x, tf.int64) * tf.constant(signed, tf.int64)
        return tf.bitcast(product, tf.uint64)

    x = times(step(x, 30), 0xBF58476D1CE4E5B9)
    x = times(step(x, 27), 0x94D049BB133111EB)
    return tf.bitcast(step(x, 31), tf.int64)
