"""What a graph did to ids before a lookup, which is mostly the work of Keras.

A functional model converts its inputs to the dtype and kind of each `keras.Input`
before a layer sees them: it casts floats to integers, wraps integers of more bits, and
fills the rows of a SparseTensor with zeros. Only a graph shows this; an eager tensor
does not tell where it comes from.
"""

from collections.abc import Iterator
from typing import Any

import tensorflow as tf

from lodestar import _private
from lodestar._checks import after, assert_true
from lodestar._typing import AnyTensor
from lodestar.ops import symbolic_build
from lodestar.ops.flat_values import flat_values, map_flat

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
# Ops that fill rows, with the places of the ids and of the filler in their inputs.
_FILLS = {"SparseToDense": (2, 3), "RaggedTensorToTensor": (1, 2)}


def check_casts(ids: AnyTensor, name: str = "ids") -> AnyTensor:
    """Returns `ids`. Checks the tensors that a graph cast to them.

    Raises:
        ValueError: Strings were cast.
        tf.errors.InvalidArgumentError: When the graph runs: a float is NaN, or too
            large to be an exact integer, or the dtype of a cast does not hold an
            integer.
    """
    if tf.executing_eagerly():
        return ids
    _refuse_strings(ids, f"`{name}`")
    return map_flat(lambda flat: _check_casts(flat, name), ids)


def _refuse_strings(ids: AnyTensor, what: str) -> None:
    for op in _before(ids):
        if op.type == "Cast" and op.inputs[0].dtype == tf.string:
            raise ValueError(
                f"{what} has dtype {op.outputs[0].dtype.name}, but strings were "
                "given, which Keras cannot cast to the dtype of an Input. "
                "Declare it as keras.Input(shape, dtype='string'): layers "
                "hash strings to ids."
            )


def refuse_casts(ids: AnyTensor, what: str, columns: str = "") -> None:
    """Refuses inputs of a model that Keras cast to other values.

    Args:
        ids: Integers in a graph, which hold inputs of a functional model.
        what: What the ids are, for messages.
        columns: The columns that the schema of the model declares as these ids.

    Raises:
        ValueError: Keras cast floats or strings, or integers to a dtype that does
            not hold all values of theirs.
    """
    _refuse_strings(ids, what)
    if _private.is_symbolic_build():
        return
    for op in _before(ids):
        if op.type != "Cast":
            continue
        (source,), (result,) = op.inputs, op.outputs
        if (
            source.dtype.is_floating
            and not symbolic_build.is_default_signature()
        ):
            raise ValueError(_floats_message(op, what, columns))
        if not _holds(result.dtype, source.dtype):
            raise ValueError(
                f"{what} are {source.dtype.name} in the data, but Keras cast "
                f"them to {result.dtype.name}, the dtype of the keras.Input, "
                "which wraps integers that do not fit. Declare the input as "
                'keras.Input(shape, dtype="int64"), or pass '
                f"{result.dtype.name} ids."
            )


def _floats_message(op: tf.Operation, what: str, columns: str) -> str:
    (source,), (result,) = op.inputs, op.outputs
    if columns:
        return (
            f"{what} are the column {columns}, which the schema of the model "
            f"declares as ids, but the data has {source.dtype.name}, which "
            "Keras cast to integers. Read the data with the schema of the "
            "model: lodestar.data.open_dataset(data, schema=model)."
        )
    return (
        f"{what} must be integers, but the data has {source.dtype.name}, which "
        f"Keras cast to {result.dtype.name}, the dtype of the keras.Input. Pass "
        "ids as integers without missing values, e.g. "
        'frame["id"].fillna(0).astype("int64"), or build the model on '
        "`schema.inputs()` and read all data with the schema: "
        "lodestar.data.open_dataset(data, schema=schema). To export a subclassed "
        "model, pass its `input_signature`."
    )


def refuse_cut_weights(weights: Any, what: str) -> None:
    """Raises ValueError if Keras cast `weights` to integers that differ from them.

    Requires: they hold inputs of a functional model. `what` names them in the message.
    """
    if _private.is_symbolic_build():
        return
    for op in _before(weights):
        if op.type != "Cast" or not op.outputs[0].dtype.is_integer:
            continue
        (source,), (result,) = op.inputs, op.outputs
        if source.dtype.is_floating or not _holds(result.dtype, source.dtype):
            raise ValueError(
                f"{what} are {source.dtype.name} in the data, but Keras cast "
                f"them to {result.dtype.name}, the dtype of the keras.Input, "
                "which changes them. Declare the input as "
                f'keras.Input(shape, dtype="{source.dtype.name}").'
            )


def refuse_filler(ids: AnyTensor, what: str, option: str, padding: Any) -> None:
    """Refuses inputs of a model that have rows which Keras filled.

    Args:
        ids: Integers or strings in a graph, which hold inputs of a functional model.
        what: What the ids are, for messages.
        option: The argument that declares padding, for messages.
        padding: Its value, an integer or a string, or None.

    Raises:
        ValueError: The filler is not `padding`.
    """
    if isinstance(padding, str):
        padding = padding.encode(errors="surrogateescape")
    for op in _before(ids):
        if op.type not in _FILLS:
            continue
        source, filler = (op.inputs[i] for i in _FILLS[op.type])
        found = tf.get_static_value(filler)
        value: Any = None if found is None else found.item()
        if value is None:  # unknown, but Keras fills with these
            value = b"" if source.dtype == tf.string else 0
        if value == padding:
            continue
        kind = "sparse" if op.type == "SparseToDense" else "ragged"
        shown = tf.compat.as_str_any(value) if value == b"" else value
        raise ValueError(
            f"{what} are {kind} in the data, but Keras made them dense for a "
            f"keras.Input of another kind and filled short rows with {shown!r}, "
            "which would be looked up like any other id. Convert the data with "
            "tf.RaggedTensor.from_sparse for an Input with ragged=True (as those "
            "of `schema.inputs()`), declare the Input with sparse=True, or pass "
            f"`{option}`={shown!r} to the layer."
        )


def _holds(dtype: tf.DType, other: tf.DType) -> bool:
    """Whether integers of `dtype` represent all ids of the dtype `other`.

    64 bits hold every id, since uint64 ids are read as the int64 with their bits.
    """
    if not other.is_integer or dtype.size == 8:
        return True
    return dtype.min <= other.min and other.max <= dtype.max


def _before(ids: Any) -> Iterator[tf.Operation]:
    """Yields the casts and fills of a graph from which `ids` were made."""
    tensors, seen = [flat_values(ids)], set()
    while tensors:
        tensor = tensors.pop()
        if not tf.is_symbolic_tensor(tensor) or tensor.op.name in seen:
            continue
        op = tensor.op
        seen.add(op.name)
        if op.type in _MOVES:
            tensors.extend(op.inputs)
        elif op.type in _FILLS:
            yield op
            tensors.append(op.inputs[_FILLS[op.type][0]])
        elif op.type == "Cast":
            yield op
            # Floats and strings were no ids before their cast.
            if op.inputs[0].dtype.is_integer:
                tensors.append(op.inputs[0])


def _check_casts(ids: tf.Tensor, name: str) -> tf.Tensor:
    checks = []
    for op in _before(ids):
        if op.type != "Cast":
            continue
        (source,), (result,) = op.inputs, op.outputs
        if source.dtype in _EXACT:
            checks.append(_check_floats(source, result.dtype, name))
        elif not _holds(result.dtype, source.dtype):
            checks.append(_check_integers(source, result, name))
    return after(checks, ids)


def _check_floats(floats: tf.Tensor, dtype: tf.DType, name: str) -> Any:
    limit = _EXACT[floats.dtype]
    low, high = max(-limit, dtype.min), min(limit, dtype.max)
    holds = tf.logical_and(
        floats >= tf.cast(low, floats.dtype),
        floats <= tf.cast(high, floats.dtype),
    )
    message = (
        f"`{name}` was cast from {floats.dtype.name} to {dtype.name}, and has NaN "
        f"or a number outside of [{low}, {high}], the range in which that cast is "
        "exact. Pass ids as integers without missing values, e.g. "
        'frame["id"].fillna(0).astype("int64").'
    )
    return assert_true(tf.reduce_all(holds), [message, floats])


def _check_integers(source: tf.Tensor, result: tf.Tensor, name: str) -> Any:
    dtype = result.dtype
    same = tf.equal(tf.cast(result, source.dtype), source)
    # The other integer of the same bits may have another sign.
    same = tf.logical_and(same, tf.equal(source < 0, result < 0))
    message = (
        f"`{name}` was cast from {source.dtype.name} to {dtype.name}, and has an "
        f"integer outside of [{dtype.min}, {dtype.max}], which that cast wraps. "
        "Keep ids as int64."
    )
    return assert_true(tf.reduce_all(same), [message, source])
