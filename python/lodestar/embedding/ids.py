"""Ids as users have them -> int64 tensors, dense, ragged or sparse."""

from typing import Any

import keras
import numpy as np
import tensorflow as tf

from lodestar._checks import check_unmasked
from lodestar._typing import AnyTensor
from lodestar.ops import symbolic_build
from lodestar.ops.flat_values import map_flat
from lodestar.ops.id_hash import fingerprint

_WIDENED = (tf.int8, tf.int16, tf.int32, tf.uint8, tf.uint16, tf.uint32)


def _to_tensor(ids: Any, name: str) -> AnyTensor:
    if isinstance(ids, (tf.RaggedTensor, tf.SparseTensor)) or tf.is_tensor(ids):
        return ids
    if isinstance(ids, keras.KerasTensor):
        raise ValueError(
            f"`{name}` is symbolic, which a layer takes: "
            "lodestar.layers.DynamicEmbedding(table=...)."
        )
    check_unmasked(name, ids)
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
) -> AnyTensor:
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
        return symbolic_build.refuse_when_run(ids, tf.int64, message)
    raise ValueError(f"`{name}` has dtype {dtype.name}, wanted integers.")


def to_dense_int64(ids: Any, what: str) -> tf.Tensor:
    """As `to_int64`, of dense ids only; errors say that `what` takes no others."""
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
    check_unmasked(name, values)
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
