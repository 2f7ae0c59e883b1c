"""Converts ids to int64 tensors, dense, ragged or sparse."""

from collections.abc import Iterator
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from lodestar._checks import after, assert_true, check_unmasked
from lodestar._typing import AnyTensor
from lodestar.ops import symbolic_build
from lodestar.ops.flat_values import flat_values, map_flat
from lodestar.ops.id_hash import fingerprint

# The largest integer below which each dtype is exact.
_EXACT = {
    tf.float16: 2**11 - 1,
    tf.bfloat16: 2**8 - 1,
    tf.float32: 2**24 - 1,
    tf.float64: 2**53 - 1,
}
# Ops that move ids without changing them.
_MOVES = (
    *("ConcatV2", "ExpandDims", "GatherV2", "Identity", "IdentityN", "Pack"),
    *("Reshape", "Slice", "Split", "Squeeze", "StridedSlice", "Transpose"),
    *("Unpack", "EnsureShape"),
)
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


def check_casts(ids: AnyTensor, name: str = "ids") -> AnyTensor:
    """Returns `ids`, after checking the floats and strings that a graph casts to them.

    Keras casts its inputs to the dtype of an Input before any layer sees them, which
    turns NaN into the smallest integer. A graph shows the cast; an eager tensor does
    not.

    Raises:
        ValueError: Strings were cast.
        tf.errors.InvalidArgumentError: When the graph runs: a float is NaN, or
            too large to be an exact integer.
    """
    if tf.executing_eagerly():
        return ids
    return map_flat(lambda flat: _check_casts(flat, name), ids)


def _check_casts(ids: tf.Tensor, name: str) -> tf.Tensor:
    checks = []
    for source, cast in _casts(ids):
        if source.dtype == tf.string:
            raise ValueError(
                f"`{name}` has dtype {cast.dtype.name}, but strings were "
                "given, which Keras cannot cast to the dtype of an Input. "
                "Declare it as keras.Input(shape, dtype='string'): layers "
                "hash strings to ids."
            )
        if source.dtype in _EXACT:
            checks.append(_check_cast(source, cast.dtype, name))
    return after(checks, ids)


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


def float_source(ids: Any) -> tf.DType | None:
    """Returns the dtype of floats that a graph casts to `ids`, or None."""
    if not isinstance(ids, (tf.Tensor, tf.RaggedTensor, tf.SparseTensor)):
        return None
    for source, _ in _casts(flat_values(ids)):
        if source.dtype.is_floating:
            return source.dtype
    return None


def _casts(ids: tf.Tensor) -> Iterator[tuple[tf.Tensor, tf.Tensor]]:
    """Yields the (source, result) of each cast to integers."""
    found = [ids]
    while found:
        tensor = found.pop()
        if not tf.is_symbolic_tensor(tensor):
            continue
        op = tensor.op
        if op.type in _MOVES:
            found.extend(op.inputs)
        elif op.type == "Cast":
            (source,) = op.inputs
            if source.dtype.is_integer:
                found.append(source)
            else:
                yield source, tensor


def _check_cast(floats: tf.Tensor, dtype: tf.DType, name: str) -> Any:
    limit = _EXACT[floats.dtype]
    low, high = max(-limit, dtype.min), min(limit, dtype.max)
    holds = tf.logical_and(
        floats >= tf.cast(low, floats.dtype),
        floats <= tf.cast(high, floats.dtype),
    )
    message = (
        f"`{name}` was cast from {floats.dtype.name} to {dtype.name}, as Keras "
        "casts to the dtype of an Input, and has NaN or a number outside of "
        f"[{low}, {high}], the range in which that cast is exact. Pass ids as "
        "integers without missing values, e.g. "
        'frame["id"].fillna(0).astype("int64").'
    )
    return assert_true(tf.reduce_all(holds), [message, floats])


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
