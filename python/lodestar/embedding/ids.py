"""Converts ids to int64 tensors, dense, ragged or sparse."""

from typing import Any

import keras
import numpy as np
import tensorflow as tf

from lodestar import _private
from lodestar._checks import after, assert_true, check_unmasked
from lodestar._typing import AnyTensor
from lodestar.ops import symbolic_build
from lodestar.ops.flat_values import map_flat
from lodestar.ops.id_hash import fingerprint
from lodestar.ops.input_casts import check_casts

_WIDENED = (tf.int8, tf.int16, tf.int32, tf.uint8, tf.uint16, tf.uint32)


def _to_tensor(ids: Any, name: str) -> AnyTensor:
    if isinstance(ids, (tf.RaggedTensor, tf.SparseTensor)) or tf.is_tensor(ids):
        return ids
    if isinstance(ids, keras.KerasTensor):
        raise ValueError(
            f"`{name}` is symbolic. Look it up with a layer, such as "
            "lodestar.layers.DynamicEmbedding(table=...)."
        )
    check_unmasked(name, ids)
    # NumPy makes Python integers int64; TensorFlow would choose int32, or fail
    # for integers that do not fit.
    try:
        array = np.asarray(ids)
    except ValueError:  # lists of different lengths
        array = np.asarray(None)
    except NotImplementedError:  # a list of a graph's tensors
        return tf.convert_to_tensor(ids)
    if array.dtype == object:
        raise ValueError(
            f"`{name}`, a {type(ids).__name__}, is not an array of 64-bit "
            f"integers. Use tf.ragged.constant({name}) for lists of different "
            "lengths."
        )
    if array.size == 0 and not isinstance(ids, np.ndarray):
        array = array.astype(np.int64)  # [] has no dtype of its own
    return tf.convert_to_tensor(array)


def float_ids_message(dtype: tf.DType, name: str) -> str:
    """Returns the error for floating-point ids, which are not exact."""
    return (
        f"`{name}` has dtype {tf.as_dtype(dtype).name}, but must be integers (or "
        "strings in a layer): a float cannot hold a 64-bit id. Give the input "
        "an integer dtype, e.g. keras.Input(shape, dtype='int64')."
    )


def float_input_message(x: Any, name: str, wanted: str = "int64") -> str:
    """Returns the error for a symbolic float `x`, with the line that declares it."""
    if not isinstance(_private.layer_of(x), keras.layers.InputLayer):
        return float_ids_message(x.dtype, name)
    declared = f"keras.Input({tuple(x.shape[1:])}, dtype={wanted!r})"
    return (
        f"`{name}` is an input of dtype {x.dtype}, but must be integers or "
        "strings: a float cannot hold a 64-bit id. float32 is the default of "
        "keras.Input, and the dtype of the input that keras.Sequential makes if "
        f"it has none. Declare the input: keras.Sequential([{declared}, ...]), or "
        f"{declared} in a functional model."
    )


def check_range(
    ids: AnyTensor, low: int, high: int, padding_id: int | None, name: str
) -> AnyTensor:
    """Returns int64 `ids`, which must be padding or in `range(low, high)`.

    Raises:
        tf.errors.InvalidArgumentError: When the graph runs: some are not (names
            `name` and the first of them).
    """

    def check(flat: tf.Tensor) -> tf.Tensor:
        # `high` may be 2^63.
        outside = tf.logical_or(flat < low, flat > high - 1)
        if padding_id is not None:
            outside = tf.logical_and(outside, flat != padding_id)

        def refuse() -> tf.Tensor:
            message = f"The ids of {name} must be in [{low}, {high}), got"
            wrong = tf.boolean_mask(flat, outside)
            return after(assert_true(False, [message, wrong]), flat)

        # Finding the wrong ids takes longer than finding that there are some.
        return tf.cond(tf.reduce_any(outside), refuse, lambda: flat)

    return map_flat(check, ids)


def to_int64(
    ids: Any,
    *,
    strings: bool = False,
    column: str | None = None,
    name: str = "ids",
) -> AnyTensor:
    """Returns `ids` as int64.

    Args:
        ids: Integers, dense, ragged or sparse. uint64 keeps its bits; other
            dtypes keep their values.
        strings: Whether strings are accepted, by their 64-bit fingerprint.
        column: If given, strings are fingerprinted as `column`, a zero byte and
            the string.
        name: Name of `ids` in errors.

    Raises:
        ValueError: Unsupported dtype. In a graph, floating-point ids fail when
            the graph runs instead: Keras traces a subclassed model with float
            inputs in every export and swallows exceptions, which would leave
            out its tables.
    """
    ids = _to_tensor(ids, name)
    dtype = ids.dtype
    if dtype.is_integer:
        ids = check_casts(ids, name)
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
    raise ValueError(f"`{name}` has dtype {dtype.name}, but must be integers.")


def to_dense_int64(ids: Any, what: str) -> tf.Tensor:
    """As `to_int64`, for dense ids only; errors name `what`."""
    ids = to_int64(ids)
    if isinstance(ids, (tf.RaggedTensor, tf.SparseTensor)):
        raise ValueError(
            f"`ids` is a {type(ids).__name__} of shape {ids.shape}, but {what} "
            "takes a dense tensor."
        )
    return ids


def to_numbers(values: Any, name: str, dtype: tf.DType) -> tf.Tensor:
    """Returns `values` cast to `dtype`; ValueError unless they are numbers."""
    check_unmasked(name, values)
    try:
        values = tf.convert_to_tensor(values)
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"`{name}`, a {type(values).__name__}, is not an array of numbers: "
            f"{error}"
        ) from error
    if not (values.dtype.is_floating or values.dtype.is_integer):
        raise ValueError(
            f"`{name}` has dtype {values.dtype.name}, but must be numbers."
        )
    return tf.cast(values, dtype)
