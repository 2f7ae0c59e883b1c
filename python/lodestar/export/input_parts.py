"""The inputs of a model as the plain tensors that a signature consists of."""

import keyword
import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import tensorflow as tf


class InputParts(NamedTuple):
    """One input as plain tensors.

    Attributes:
        specs: Part -> type; what an argument's name ends in, `""` for an input
            that is one tensor as it is.
        join: Tensors of the parts -> the input.
        split: The input -> tensors of the parts, eagerly.
    """

    specs: dict[str, tf.TensorSpec]
    join: Callable[[Sequence[tf.Tensor]], Any]
    split: Callable[[Any], Sequence[tf.Tensor]]


def plain_parts(spec: tf.TypeSpec) -> InputParts:
    """A dense input as it is; a sparse one as its three tensors."""
    if not isinstance(spec, tf.SparseTensorSpec):
        return InputParts({"": spec}, lambda parts: parts[0], lambda x: [x])
    rank = spec.shape.rank
    return InputParts(
        {
            "indices": tf.TensorSpec([None, rank], tf.int64),
            "values": tf.TensorSpec([None], spec.dtype),
            "dense_shape": tf.TensorSpec([rank], tf.int64),
        },
        lambda parts: tf.SparseTensor(*parts),
        lambda x: [x.indices, x.values, x.dense_shape],
    )


def row_splits_parts(spec: tf.RaggedTensorSpec) -> InputParts:
    """A ragged input as all its values in order and where rows begin."""
    return _ragged_parts(
        spec,
        "row_splits",
        tf.RaggedTensor.from_nested_row_splits,
        lambda x: x.nested_row_splits,
    )


def lengths_parts(spec: tf.RaggedTensorSpec) -> InputParts:
    """A ragged input as all its values in order and the lengths of rows."""
    return _ragged_parts(
        spec,
        "lengths",
        tf.RaggedTensor.from_nested_row_lengths,
        lambda x: x.nested_row_lengths(),
    )


def _ragged_parts(
    spec: tf.RaggedTensorSpec,
    name: str,
    build: Callable[[tf.Tensor, Sequence[tf.Tensor]], tf.RaggedTensor],
    partitions: Callable[[tf.RaggedTensor], Iterable[tf.Tensor]],
) -> InputParts:
    rank = spec.ragged_rank
    specs = {
        "values": tf.TensorSpec([None, *spec.shape[rank + 1 :]], spec.dtype)
    }
    for part in numbered(name, rank):
        specs[part] = tf.TensorSpec([None], tf.int64)
    return InputParts(
        specs,
        lambda parts: build(parts[0], parts[1:]),
        lambda x: [
            x.flat_values,
            *(tf.cast(p, tf.int64) for p in partitions(x)),
        ],
    )


def numbered(name: str, count: int) -> list[str]:
    """`[name]` if there is one, else `name_0`, `name_1`, ..."""
    if count == 1:
        return [name]
    return [f"{name}_{axis}" for axis in range(count)]


def argument_names(names: Iterable[str]) -> dict[str, str]:
    """Returns name -> a distinct name that TensorFlow takes for an argument.

    Characters other than ASCII letters, digits and `_` become `_`. Names that
    Python reserves get one behind them.
    """
    arguments: dict[str, str] = {}
    reserved = (*keyword.kwlist, "self")
    for name in names:
        argument = re.sub(r"[^A-Za-z0-9_]", "_", name)
        if not argument[:1].isalpha():
            argument = "x" + argument
        arguments[name] = unused(argument, (*arguments.values(), *reserved))
    return arguments


def unused(name: str, taken: Iterable[str]) -> str:
    """`name`, with as many `_` behind it as make it differ from all others."""
    taken = set(taken)
    while name in taken:
        name += "_"
    return name
