"""The inputs and outputs of a served model, and their plain tensors."""

import operator
from collections.abc import Callable, Mapping
from typing import Any, Literal, NamedTuple, TypeAlias, get_args

import keras
import tensorflow as tf

from lodestar import _private
from lodestar._checks import check_choice
from lodestar.export import input_parts
from lodestar.export.examples import ExampleForm
from lodestar.export.input_parts import argument_names
from lodestar.export.padded import check_padding, padded_parts
from lodestar.schema import Column, ColumnInput, Schema, model_schema

Signature: TypeAlias = Literal[
    "ragged", "values_and_lengths", "examples", "padded"
]
SIGNATURES: tuple[Signature, ...] = get_args(Signature)
Specs = dict[str, tf.TypeSpec]


class ModelInputs(NamedTuple):
    """The inputs of a model by name.

    Attributes:
        specs: Name -> type with a first axis of unknown size.
        pack: Converts name -> tensor to the argument of the model.
        columns: Name -> column of an input that the model's schema declares.
        schema: Schema of the model, or None.
        given: Whether the caller passed `specs`.
    """

    specs: Specs
    pack: Callable[[Mapping[str, Any]], Any]
    columns: Mapping[str, Column] = {}
    schema: Schema | None = None
    given: bool = False


class Argument(NamedTuple):
    """A tensor of a signature.

    Attributes:
        input: Name of its input; None if it holds all inputs.
        part: Part of the input; `""` for all of it.
    """

    input: str | None
    part: str


class PlainTensors(NamedTuple):
    """Inputs as plain tensors.

    Attributes:
        specs: Argument name -> type.
        arguments: Argument name -> the part of an input that it holds.
        unflatten: Converts argument name -> tensor to input name -> tensor.
        flatten: Inverts `unflatten`, eagerly. Raises ValueError if an input
            cannot be encoded.
        padding: Name of a padded input -> its padding.
    """

    specs: Specs
    arguments: dict[str, Argument]
    unflatten: Callable[[Mapping[str, Any]], dict[str, Any]]
    flatten: Callable[[Mapping[str, Any]], dict[str, tf.Tensor]]
    padding: dict[str, Any]


def model_inputs(
    model: keras.Model, inputs: Mapping[str, tf.TypeSpec] | None = None
) -> ModelInputs:
    """Returns the inputs of `model`, or `inputs` of a subclassed model.

    A subclassed model with a schema has the schema's columns as inputs.
    """
    if inputs is not None:
        specs = dict(inputs)
        if len(specs) == 1:
            return ModelInputs(specs, operator.itemgetter(*specs), given=True)
        return ModelInputs(specs, dict, given=True)
    structure = _input_of(model)
    schema = model_schema.schema_or_none(model)
    if structure is None and schema is not None:
        structure = schema.inputs()
    if structure is None:
        raise ValueError(
            f"The inputs of `model`, a {type(model).__name__}, are unknown. Pass "
            "them: export.save(..., inputs={'ids': "
            "tf.RaggedTensorSpec([None, None], tf.int64)}), or set its attribute "
            "`schema`."
        )
    flat = isinstance(structure, Mapping) and all(
        isinstance(t, keras.KerasTensor) for t in structure.values()
    )
    in_order = keras.tree.flatten(structure)
    tensors = dict(structure) if flat else {t.name: t for t in in_order}

    def pack(features: Mapping[str, Any]) -> Any:
        if flat:
            return dict(features)
        values = [features[t.name] for t in in_order]
        return keras.tree.pack_sequence_as(structure, values)

    arguments = argument_names(tensors)
    specs = {n: _spec(t, arguments[n]) for n, t in tensors.items()}
    return ModelInputs(specs, pack, _columns(tensors, schema), schema)


def _input_of(model: keras.Model) -> Any:
    """Returns the KerasTensors that a model was built with, or None."""
    for name in ("input", "inputs"):  # A Sequential has only a list of one.
        found = getattr(model, name, None)
        if found is not None:
            return found[0] if name == "inputs" else found
    return None


def _columns(
    tensors: Mapping[str, keras.KerasTensor], schema: Schema | None
) -> dict[str, Column]:
    """Returns name -> column of the inputs that `Schema.inputs` created."""
    if schema is None:
        return {}
    layers = {name: _private.layer_of(x) for name, x in tensors.items()}
    return {
        name: schema[layer.column]
        for name, layer in layers.items()
        if isinstance(layer, ColumnInput)
    }


def _spec(tensor: keras.KerasTensor, name: str) -> tf.TypeSpec:
    shape = (None, *tensor.shape[1:])
    if getattr(tensor, "ragged", False):
        # The last axis of unknown length is the innermost ragged one.
        rank = max(axis for axis, size in enumerate(shape) if size is None)
        return tf.RaggedTensorSpec(
            shape, tensor.dtype, ragged_rank=max(rank, 1)
        )
    if tensor.sparse:
        return tf.SparseTensorSpec(shape, tensor.dtype)
    return tf.TensorSpec(shape, tensor.dtype, name=name)


def named_outputs(outputs: Any) -> dict[str, Any]:
    """Returns the outputs of a model by name, `output_0`, ... by default."""
    if isinstance(outputs, Mapping):
        named = dict(outputs)
    else:
        if not isinstance(outputs, (list, tuple)):
            outputs = [outputs]
        named = {f"output_{i}": x for i, x in enumerate(outputs)}
    for name, output in named.items():
        if not (
            tf.is_tensor(output)
            or isinstance(output, tf.experimental.ExtensionType)
        ):
            raise ValueError(
                f"The output {name!r} of `model` must be a tensor, got a "
                f"{type(output).__name__}. A model returns a tensor, or a dict "
                "or list of tensors."
            )
    return named


def plain_tensors(
    specs: Specs,
    signature: str,
    padding_id: Any = None,
    columns: Mapping[str, Column] = {},
) -> PlainTensors:
    """Returns the plain tensors that a signature takes; see `save`.

    `columns` maps inputs to the columns whose features `"examples"` hold.
    """
    check_choice("signature", signature, SIGNATURES)
    padded = signature == "padded"
    if padding_id is not None and not padded:
        raise ValueError(
            f"`padding_id`={padding_id!r} requires signature='padded', got "
            f"{signature!r}."
        )
    if signature == "examples":
        form = ExampleForm(specs, columns)
        return PlainTensors(
            {"examples": tf.TensorSpec([None], tf.string, name="examples")},
            {"examples": Argument(None, "serialized tf.Example")},
            lambda tensors: form.parse(tensors["examples"]),
            lambda inputs: {"examples": form.serialize(inputs)},
            {},
        )
    padding = check_padding(padding_id, specs) if padded else {}

    def parts_of(name: str, spec: tf.TypeSpec) -> Any:
        if not isinstance(spec, tf.RaggedTensorSpec):
            return input_parts.plain_parts(spec)
        if padded:
            return padded_parts(name, spec, padding[name])
        return input_parts.ragged_parts(spec, signature)

    parts: dict[Any, Any] = {
        name: parts_of(name, spec) for name, spec in specs.items()
    }
    names = argument_names(specs)
    # Inputs of one tensor keep their names, so parts are named afterwards.
    flat = {names[n]: Argument(n, "") for n in specs if "" in parts[n].specs}
    for name in specs:
        for part in parts[name].specs:
            if part:
                argument = input_parts.unused(f"{names[name]}_{part}", flat)
                flat[argument] = Argument(name, part)
    arguments_of = {
        name: [a for a, (owner, _) in flat.items() if owner == name]
        for name in specs
    }

    def unflatten(tensors: Mapping[str, Any]) -> dict[str, Any]:
        return {
            name: parts[name].join([tensors[a] for a in arguments])
            for name, arguments in arguments_of.items()
        }

    def flatten(inputs: Mapping[str, Any]) -> dict[str, tf.Tensor]:
        return {
            argument: tensor
            for name, arguments in arguments_of.items()
            for argument, tensor in zip(
                arguments, parts[name].split(inputs[name]), strict=True
            )
        }

    flat_specs = {
        argument: tf.TensorSpec(spec.shape, spec.dtype, name=argument)
        for argument, (name, part) in flat.items()
        for spec in (parts[name].specs[part],)
    }
    return PlainTensors(flat_specs, flat, unflatten, flatten, padding)
