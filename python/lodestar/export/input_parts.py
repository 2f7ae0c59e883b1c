"""Splits the inputs of a model into the plain tensors of a signature."""

import keyword
import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import tensorflow as tf


class InputParts(NamedTuple):
    """One input as plain tensors.

    Attributes:
        specs: Suffix of the argument's name -> type; `""` for an input that is
            a single tensor.
        join: Converts tensors of the parts to the input.
        split: Converts the input to tensors of the parts, eagerly.
    """

    specs: dict[str, tf.TensorSpec]
    join: Callable[[Sequence[tf.Tensor]], Any]
    split: Callable[[Any], Sequence[tf.Tensor]]


def plain_parts(spec: tf.TypeSpec) -> InputParts:
    """Returns a dense input unchanged, or a sparse one as its three tensors."""
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


def ragged_parts(spec: tf.RaggedTensorSpec, signature: str) -> InputParts:
    """Returns a ragged input as values and row splits or lengths."""
    build: Callable[[tf.Tensor, Sequence[tf.Tensor]], tf.RaggedTensor]
    if signature == "ragged":
        name, build = "row_splits", tf.RaggedTensor.from_nested_row_splits
    else:
        name, build = "lengths", tf.RaggedTensor.from_nested_row_lengths

    def split(x: Any) -> list[tf.Tensor]:
        partitions = x.nested_row_splits
        if signature != "ragged":
            partitions = x.nested_row_lengths()
        return [x.flat_values, *(tf.cast(p, tf.int64) for p in partitions)]

    rank = spec.ragged_rank
    values = tf.TensorSpec([None, *spec.shape[rank + 1 :]], spec.dtype)
    specs = {"values": values} | dict.fromkeys(
        numbered(name, rank), tf.TensorSpec([None], tf.int64)
    )
    return InputParts(specs, lambda parts: build(parts[0], parts[1:]), split)


def numbered(name: str, count: int) -> list[str]:
    """Returns `[name]` if `count` is 1, else `name_0`, `name_1`, ..."""
    if count == 1:
        return [name]
    return [f"{name}_{axis}" for axis in range(count)]


def argument_names(names: Iterable[str]) -> dict[str, str]:
    """Returns name -> unique argument name that TensorFlow accepts.

    Characters other than ASCII letters, digits and `_` become `_`. Reserved
    words of Python get a trailing `_`.
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
    """Returns `name` with as many trailing `_` as make it unique."""
    taken = set(taken)
    while name in taken:
        name += "_"
    return name
