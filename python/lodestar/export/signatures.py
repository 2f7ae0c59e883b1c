"""What a served model takes and gives: names, types, plain tensors.

The inputs of a Keras model by name, as the plain tensors that a serving
signature must consist of, and the way back.
"""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import keras
import tensorflow as tf

from lodestar import _private
from lodestar._checks import check_choice
from lodestar.data.schema import Column, ColumnInput, Schema, model_schema
from lodestar.export import input_parts
from lodestar.export.examples import ExampleForm
from lodestar.export.input_parts import argument_names
from lodestar.export.padded import check_padding, padded_parts

SIGNATURES = ("ragged", "values_and_lengths", "examples", "padded")
Specs = dict[str, tf.TypeSpec]


class ModelInputs(NamedTuple):
    """The inputs of a model by name.

    Attributes:
        specs: Name -> type, the first axis of unknown size.
        pack: Name -> tensor to what the model is called with.
        columns: Name -> column, of the inputs that the model's schema declares.
        schema: The schema of the model, or None.
    """

    specs: Specs
    pack: Callable[[Mapping[str, Any]], Any]
    columns: Mapping[str, Column] = {}
    schema: Schema | None = None


class Argument(NamedTuple):
    """A tensor of a signature.

    Attributes:
        input: Name of the input that it belongs to; None: to all.
        part: Which part of it, `""`: all.
    """

    input: str | None
    part: str


class PlainTensors(NamedTuple):
    """Inputs as plain tensors.

    Attributes:
        specs: Argument name -> type.
        arguments: Argument name -> what it is.
        unflatten: Argument name -> tensor to input name -> tensor.
        flatten: The inverse, eagerly. Raises ValueError where there is none.
        padding: Input name -> what fills its rows, where they are padded.
    """

    specs: Specs
    arguments: dict[str, Argument]
    unflatten: Callable[[Mapping[str, Any]], dict[str, Any]]
    flatten: Callable[[Mapping[str, Any]], dict[str, tf.Tensor]]
    padding: dict[str, Any]


def model_inputs(
    model: keras.Model, inputs: Mapping[str, tf.TypeSpec] | None = None
) -> ModelInputs:
    """The inputs of `model`, or those given for a subclassed one.

    Those of a subclassed model with a schema are the columns of the schema.

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
    schema = model_schema.schema_or_none(model)
    if structure is None and schema is not None:
        structure = schema.inputs()
    if structure is None:
        raise ValueError(
            f"the inputs of `model`, a {type(model).__name__}, are not known; "
            "give them: export.save(..., inputs={'ids': "
            "tf.RaggedTensorSpec([None, None], tf.int64)}), or set its attribute "
            "`schema`."
        )
    if isinstance(structure, Mapping) and all(
        isinstance(t, keras.KerasTensor) for t in structure.values()
    ):
        names = argument_names(structure)
        specs = {k: _spec(t, names[k]) for k, t in structure.items()}
        columns = _columns(structure, schema)
        return ModelInputs(specs, dict, columns, schema)
    tensors = keras.tree.flatten(structure)
    in_order = [t.name for t in tensors]
    arguments = argument_names(in_order)
    specs = {
        n: _spec(t, arguments[n])
        for n, t in zip(in_order, tensors, strict=True)
    }
    return ModelInputs(
        specs,
        lambda features: keras.tree.pack_sequence_as(
            structure, [features[name] for name in in_order]
        ),
        _columns(dict(zip(in_order, tensors, strict=True)), schema),
        schema,
    )


def _columns(
    tensors: Mapping[str, keras.KerasTensor], schema: Schema | None
) -> dict[str, Column]:
    """Name -> column, of the inputs that were made by `Schema.inputs`."""
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
        # Ragged down to the last axis of unknown length.
        rank = max(axis for axis, size in enumerate(shape) if size is None)
        return tf.RaggedTensorSpec(
            shape, tensor.dtype, ragged_rank=max(rank, 1)
        )
    if tensor.sparse:
        return tf.SparseTensorSpec(shape, tensor.dtype)
    return tf.TensorSpec(shape, tensor.dtype, name=name)


def named_outputs(outputs: Any) -> dict[str, Any]:
    """`outputs` of a model: a dict as it is, others as `output_0`, ...

    Raises:
        ValueError: One is no tensor.
    """
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
                f"the output {name!r} of `model` is a "
                f"{type(output).__name__}; wanted a tensor, or a dict or list "
                "of tensors for all outputs."
            )
    return named


def plain_tensors(
    specs: Specs,
    signature: str,
    padding_id: Any = None,
    columns: Mapping[str, Column] = {},
) -> PlainTensors:
    """Inputs as the plain tensors that `signature` takes; see `save`.

    Args:
        specs: The inputs.
        signature: As of `save`.
        padding_id: As of `save`.
        columns: Name -> column, as whose values `examples` hold an input.

    Raises:
        ValueError: Another `signature`, a `padding_id` that does not go with
            it, or an input that has no such form.
    """
    check_choice("signature", signature, SIGNATURES)
    if signature != "padded" and padding_id is not None:
        raise ValueError(
            f"`padding_id`={padding_id!r} is given with "
            f"`signature`={signature!r}; it goes with 'padded' only."
        )
    if signature == "examples":
        return _one_tensor_of_examples(ExampleForm(specs, columns))
    padding = {}
    if signature == "padded":
        padding = check_padding(padding_id, specs)

    def parts_of(name: str, spec: tf.TypeSpec) -> Any:
        if not isinstance(spec, tf.RaggedTensorSpec):
            return input_parts.plain_parts(spec)
        if signature == "padded":
            return padded_parts(name, spec, padding[name])
        if signature == "ragged":
            return input_parts.row_splits_parts(spec)
        return input_parts.lengths_parts(spec)

    parts: dict[Any, Any] = {
        name: parts_of(name, spec) for name, spec in specs.items()
    }
    names = argument_names(specs)
    # Inputs that are one tensor keep their names before parts get theirs.
    flat = {
        names[name]: Argument(name, "")
        for name in specs
        if "" in parts[name].specs
    }
    for name in specs:
        for part in parts[name].specs:
            if part:
                argument = input_parts.unused(f"{names[name]}_{part}", flat)
                flat[argument] = Argument(name, part)
    arguments_of: dict[Any, list[str]] = {name: [] for name in specs}
    for argument, (owner, _) in flat.items():
        arguments_of[owner].append(argument)

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

    return PlainTensors(
        {
            argument: tf.TensorSpec(spec.shape, spec.dtype, name=argument)
            for argument, (name, part) in flat.items()
            for spec in (parts[name].specs[part],)
        },
        flat,
        unflatten,
        flatten,
        padding,
    )


def _one_tensor_of_examples(form: ExampleForm) -> PlainTensors:
    return PlainTensors(
        {"examples": tf.TensorSpec([None], tf.string, name="examples")},
        {"examples": Argument(None, "serialized tf.Example")},
        lambda tensors: form.parse(tensors["examples"]),
        lambda inputs: {"examples": form.serialize(inputs)},
        {},
    )
