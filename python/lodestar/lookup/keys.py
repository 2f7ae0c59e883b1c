"""Conversion and checks of the keys and ids of id tables."""

import os
from typing import Any

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from lodestar._checks import check_unmasked, convert
from lodestar._typing import AnyTensor, TensorLike
from lodestar.ops import id_table_ops, symbolic_build


def _is_initializer(keys: Any) -> bool:
    # A tf.lookup initializer; their common base class has no public name.
    return all(
        hasattr(keys, name)
        for name in ("initialize", "key_dtype", "value_dtype")
    )


def _from_initializer(initializer: Any) -> tuple[tf.Tensor, tf.Tensor]:
    """Returns the keys and int64 values of a `tf.lookup` initializer."""
    if initializer.value_dtype != tf.int64:
        raise TypeError(
            "The initializer's values must be int64, got "
            f"{initializer.value_dtype.name}."
        )
    # A named table would be shared with an earlier read of the same file.
    table = tf.lookup.StaticHashTable(
        initializer, -1, experimental_is_anonymous=True
    )
    keys, values = table.export()
    # The export is unordered. Sorting makes saved tables reproducible.
    order = tf.argsort(values, stable=True)
    return tf.gather(keys, order), tf.gather(values, order)


def as_keys(
    keys: AnyTensor | npt.ArrayLike, key_dtype: tf.DType | None
) -> AnyTensor:
    """Returns tensors unchanged, and other keys as a tensor of `key_dtype`.

    Raises:
        ValueError: Integers of Python or NumPy do not fit `key_dtype`.
    """
    if isinstance(keys, (tf.Tensor, tf.RaggedTensor, tf.SparseTensor)):
        return keys
    check_unmasked("keys", keys)
    of_numpy = isinstance(keys, (np.ndarray, np.generic))
    first = keys
    while isinstance(first, list | tuple) and first:
        first = first[0]
    # NumPy cannot join strings with bytes that are not ASCII.
    is_text = isinstance(first, str | bytes)
    if of_numpy or (isinstance(keys, int | list | tuple) and not is_text):
        # TensorFlow would wrap a number that does not fit.
        array = np.asarray(keys)
        if array.dtype.kind in "iu":
            if key_dtype is None:
                key_dtype = tf.as_dtype(array.dtype) if of_numpy else tf.int64
            if key_dtype.is_integer and array.size > 0:
                for key in (int(array.min()), int(array.max())):
                    if not key_dtype.min <= key <= key_dtype.max:
                        raise ValueError(
                            f"The key {key} does not fit `key_dtype` "
                            f"{key_dtype.name}."
                        )
                return tf.constant(array, key_dtype)
    return convert("keys", keys, key_dtype)


def refuse_keys(keys: AnyTensor, wanted: tf.DType, message: str) -> AnyTensor:
    """Raises TypeError. For floats in a graph, the graph raises when it runs."""
    if tf.executing_eagerly() or not keys.dtype.is_floating:
        raise TypeError(message)
    return symbolic_build.refuse_when_run(keys, wanted, message)


def _cast_keys(keys: tf.Tensor, key_dtype: tf.DType) -> tf.Tensor:
    """Casts integer keys. Raises ValueError if one does not fit."""
    cast = tf.cast(keys, key_dtype)
    wrong = tf.boolean_mask(keys, tf.cast(cast, keys.dtype) != keys)
    if tf.size(wrong) > 0:
        raise ValueError(
            f"The key {int(wrong[0])} does not fit `key_dtype` {key_dtype.name}."
        )
    return cast


def contents(
    keys: Any, values: TensorLike | None, key_dtype: Any
) -> tuple[tf.Tensor, tf.Tensor]:
    """Returns keys `[N]` and int64 values `[N]`."""
    if _is_initializer(keys):
        if values is not None:
            raise ValueError(
                "`values` must be None if `keys` is an initializer."
            )
        keys, values = _from_initializer(keys)
    if keys is None or isinstance(keys, str | bytes | os.PathLike):
        raise TypeError(
            f"`keys` must be a list of strings or integers, got {keys!r}. To read "
            "a file, call IdTable.from_file(path)."
        )
    key_dtype = None if key_dtype is None else tf.as_dtype(key_dtype)
    keys = as_keys(keys, key_dtype)
    if key_dtype is None and 0 in keys.shape and keys.dtype.is_floating:
        raise ValueError(
            "`key_dtype` must be given if `keys` is empty, such as tf.string or "
            "tf.int64."
        )
    key_dtype = key_dtype or keys.dtype
    if key_dtype not in id_table_ops.KEY_DTYPES:
        raise TypeError(
            "`keys` must have the dtype string or an integer dtype, got "
            f"{key_dtype.name}."
        )
    if keys.dtype != key_dtype:
        if keys.shape.num_elements() == 0:
            keys = tf.zeros(keys.shape, key_dtype)
        elif keys.dtype.is_integer and key_dtype.is_integer:
            keys = _cast_keys(keys, key_dtype)
        else:
            raise TypeError(
                f"`keys` have dtype {keys.dtype.name}, but `key_dtype` is "
                f"{key_dtype.name}."
            )
    if keys.shape.rank != 1:
        raise ValueError(f"`keys` must have rank 1, got shape {keys.shape}.")
    if values is None:
        values = tf.range(tf.size(keys, out_type=tf.int64))
    ids = int64_values(values)
    if ids.shape != keys.shape:
        raise ValueError(
            f"`values` must have the shape of `keys`, {keys.shape}, got "
            f"{ids.shape}."
        )
    return keys, ids


def int64_values(values: TensorLike) -> tf.Tensor:
    """Returns ids as an int64 tensor. Raises TypeError unless they are integers."""
    values = convert("values", values, tf.int64)
    if not values.dtype.is_integer:
        raise TypeError(f"`values` must be integers, got {values.dtype.name}.")
    return tf.cast(values, tf.int64)
