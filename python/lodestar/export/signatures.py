"""What a served model takes and gives: names, types, plain tensors.

The inputs of a Keras model by name, ragged ones as the plain tensors that a
serving signature must consist of, and the way back.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

import keras
import tensorflow as tf

Specs = dict[str, tf.TypeSpec]


class ModelInputs(NamedTuple):
    """The inputs of a model by name.

    Attributes:
        specs: Name -> type, the first axis of unknown size.
        pack: Name -> tensor to what the model is called with.
    """

    specs: Specs
    pack: Callable[[Mapping[str, Any]], Any]


class PlainTensors(NamedTuple):
    """Inputs as plain tensors.

    Attributes:
        specs: Argument name -> type.
        unflatten: Argument name -> tensor to input name -> tensor.
    """

    specs: Specs
    unflatten: Callable[[Mapping[str, Any]], dict[str, Any]]


def model_inputs(
    model: keras.Model, inputs: Mapping[str, tf.TypeSpec] | None = None
) -> ModelInputs:
    """The inputs of `model`, or those given for a subclassed one.

    Raises:
        ValueError: The inputs are not known.
    """
    if inputs is not None:
        specs = dict(inputs)
        if len(specs) == 1:
            (name,) = specs
            return ModelInputs(specs, lambda features: features[name])
        return ModelInputs(specs, dict)
    try:
        structure = model.input
    except AttributeError:
        structure = None
    if structure is None:
        raise ValueError(
            f"the inputs of `model`, a {type(model).__name__}, are not known; "
            "give them: saved_model(..., inputs={'ids': "
            "tf.RaggedTensorSpec([None, None], tf.int64)})."
        )
    if isinstance(structure, Mapping):
        names = argument_names(structure)
        specs = {k: _spec(t, names[k]) for k, t in structure.items()}
        return ModelInputs(specs, dict)
    tensors = keras.tree.flatten(structure)
    names = [t.name for t in tensors]
    arguments = argument_names(names)
    specs = {
        n: _spec(t, arguments[n]) for n, t in zip(names, tensors, strict=True)
    }
    return ModelInputs(
        specs,
        lambda features: keras.tree.pack_sequence_as(
            structure, [features[name] for name in names]
        ),
    )


def _spec(tensor: keras.KerasTensor, name: str) -> tf.TypeSpec:
    shape = (None, *tensor.shape[1:])
    if getattr(tensor, "ragged", False):
        # Ragged down to the last axis of unknown length.
        rank = max(axis for axis, size in enumerate(shape) if size is None)
        return tf.RaggedTensorSpec(
            shape, tensor.dtype, ragged_rank=max(rank, 1)
        )
    if tensor.sparse:
        return tf.SparseTensorSpec(shape, tensor.dtype)
    return tf.TensorSpec(shape, tensor.dtype, name=name)


def named_outputs(outputs: Any) -> dict[str, Any]:
    """`outputs` of a model: a dict as it is, others as `output_0`, ..."""
    if isinstance(outputs, Mapping):
        return dict(outputs)
    return {
        f"output_{i}": x
        for i, x in enumerate(
            outputs if isinstance(outputs, (list, tuple)) else [outputs]
        )
    }


def plain_tensors(specs: Specs, signature: str) -> PlainTensors:
    """`specs` with each ragged one as plain tensors.

    Args:
        specs: Name -> type.
        signature: `"ragged"` or `"values_and_lengths"`, as `saved_model`.
    """
    suffix, build = {
        "ragged": ("row_splits", tf.RaggedTensor.from_nested_row_splits),
        "values_and_lengths": (
            "lengths",
            tf.RaggedTensor.from_nested_row_lengths,
        ),
    }[signature]
    flat: Specs = {}
    parts: dict[str, list[str]] = {}
    for name, argument in argument_names(specs).items():
        spec = specs[name]
        if not isinstance(spec, tf.RaggedTensorSpec):
            parts[name] = [argument]
            if isinstance(spec, tf.TensorSpec):
                spec = tf.TensorSpec(spec.shape, spec.dtype, name=argument)
            flat[argument] = spec
            continue
        rank = spec.ragged_rank
        parts[name] = [f"{argument}_values"]
        parts[name] += (
            [f"{argument}_{suffix}"]
            if rank == 1
            else [f"{argument}_{suffix}_{axis}" for axis in range(rank)]
        )
        inner = spec.shape[rank + 1 :]
        values, *partitions = parts[name]
        flat[values] = tf.TensorSpec([None, *inner], spec.dtype, name=values)
        for part in partitions:
            flat[part] = tf.TensorSpec([None], tf.int64, name=part)

    def unflatten(tensors: Mapping[str, Any]) -> dict[str, Any]:
        features = {}
        for name, arguments in parts.items():
            values, *partitions = (tensors[part] for part in arguments)
            features[name] = build(values, partitions) if partitions else values
        return features

    return PlainTensors(flat, unflatten)


def argument_names(names: Iterable[str]) -> dict[str, str]:
    """Name -> what TensorFlow takes as the name of an argument, all different.

    What is no letter of ASCII, digit or `_` becomes `_`.
    """
    arguments: dict[str, str] = {}
    for name in names:
        argument = re.sub(r"[^A-Za-z0-9_]", "_", name)
        if not argument[:1].isalpha():
            argument = "x" + argument
        while argument in arguments.values():
            argument += "_"
        arguments[name] = argument
    return arguments
