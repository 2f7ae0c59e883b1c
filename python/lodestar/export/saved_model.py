"""SavedModels whose signatures keep ragged features ragged."""

import os
import re
import uuid
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import keras
import tensorflow as tf

from lodestar.embedding.embedding_variable import without_optimizer_slots
from lodestar.embedding.hook_variable import as_hook

_SIGNATURES = ("ragged", "values_and_lengths")
_Specs = dict[str, tf.TypeSpec]


def saved_model(
    model: keras.Model,
    path: str | os.PathLike,
    signature: str = "ragged",
    *,
    inputs: Mapping[str, tf.TypeSpec] | None = None,
) -> None:
    """Writes `model` for inference, with the tables it reads.

    `model.export` gives a ragged model a dense signature, whose padding would
    become ids. Here `keras.Input(..., ragged=True)` keeps its type. Tables are
    written without optimizer slots. The folder appears, or is replaced, when
    all of it is written.

    Loading needs the op library, `import lodestar`, and none of the code that
    made the model:

    >>> import lodestar
    >>> loaded = tf.saved_model.load(path)
    >>> loaded.serve({"ids": tf.ragged.constant([[1, 2], [3]], tf.int64)})
    >>> loaded.signatures["serving_default"](
    ...     ids_values=tf.constant([1, 2, 3], tf.int64),
    ...     ids_row_splits=tf.constant([0, 2, 3], tf.int64))

    Args:
        model: A built Keras model.
        path: Folder to write.
        signature: How `serving_default`, whose inputs must be plain tensors,
            takes a ragged input `x`: `"ragged"`: as `x_values`, all values in
            order, and `x_row_splits`; `"values_and_lengths"`: as `x_values`
            and `x_lengths`. With several ragged axes `x_row_splits_0`, ...,
            outermost first. `serve` takes RaggedTensors in both. Where a name
            is no identifier, its characters that are not become `_` here, but
            not for `serve`.
        inputs: Name -> tf.TypeSpec, for a subclassed model, which is then
            called with a dict (with the one value if `inputs` has one entry);
            default: the inputs of a functional or sequential model.

    Outputs keep their names where the model returns a dict; otherwise they
    are `output_0`, `output_1`, ...

    Raises:
        ValueError: Another `signature`, or the inputs are not known.
    """
    if signature not in _SIGNATURES:
        raise ValueError(f"`signature`={signature!r} is not in {_SIGNATURES}.")
    specs, pack = _inputs(model, inputs)

    def serve(features: Mapping[str, Any]) -> dict[str, Any]:
        return _named_outputs(model(pack(features), training=False))

    module = tf.Module()
    module.serve = tf.function(serve, input_signature=[specs])
    # Hooks come with their tables.
    module.model_variables = [
        v.value for v in model.variables if as_hook(v) is None
    ]
    # What the graph reads besides variables: embedding variables, id tables,
    # the look-up tables of Keras's own layers.
    module.model_resources = [
        child
        for child in tf.train.TrackableView(model).descendants()
        if isinstance(child, tf.saved_model.experimental.TrackableResource)
    ]
    flat_specs, unflatten = _plain_tensors(specs, signature)

    @tf.function
    def serving_default(**tensors: Any) -> dict[str, Any]:
        return serve(unflatten(tensors))

    path = os.fspath(path)
    unique = uuid.uuid4().hex[:8]
    partial = f"{path.rstrip('/')}.partial-{unique}"
    replaced = f"{path.rstrip('/')}.replaced-{unique}"
    try:
        with without_optimizer_slots():
            tf.saved_model.save(
                module,
                partial,
                signatures={
                    "serving_default": serving_default.get_concrete_function(
                        **flat_specs
                    )
                },
            )
        if tf.io.gfile.exists(path):
            tf.io.gfile.rename(path, replaced)
        tf.io.gfile.rename(partial, path)
    finally:
        for leftover in (partial, replaced):
            if tf.io.gfile.exists(leftover):
                tf.io.gfile.rmtree(leftover)


def _inputs(
    model: keras.Model, inputs: Mapping[str, tf.TypeSpec] | None
) -> tuple[_Specs, Callable[[Mapping[str, Any]], Any]]:
    """Specs by name, and name -> tensor back to what the model takes."""
    if inputs is not None:
        specs = dict(inputs)
        if len(specs) == 1:
            (name,) = specs
            return specs, lambda features: features[name]
        return specs, dict
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
        names = _argument_names(structure)
        specs = {k: _spec(t, names[k]) for k, t in structure.items()}
        return specs, dict
    tensors = keras.tree.flatten(structure)
    names = [t.name for t in tensors]
    arguments = _argument_names(names)
    specs = {
        n: _spec(t, arguments[n]) for n, t in zip(names, tensors, strict=True)
    }
    return specs, lambda features: keras.tree.pack_sequence_as(
        structure, [features[name] for name in names]
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


def _named_outputs(outputs: Any) -> dict[str, Any]:
    if isinstance(outputs, Mapping):
        return dict(outputs)
    return {
        f"output_{i}": x
        for i, x in enumerate(
            outputs if isinstance(outputs, (list, tuple)) else [outputs]
        )
    }


def _plain_tensors(
    specs: _Specs, signature: str
) -> tuple[_Specs, Callable[[Mapping[str, Any]], dict[str, Any]]]:
    """Specs with each ragged one as plain tensors, and the way back."""
    suffix, build = {
        "ragged": ("row_splits", tf.RaggedTensor.from_nested_row_splits),
        "values_and_lengths": (
            "lengths",
            tf.RaggedTensor.from_nested_row_lengths,
        ),
    }[signature]
    flat: _Specs = {}
    parts: dict[str, list[str]] = {}
    for name, argument in _argument_names(specs).items():
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

    return flat, unflatten


def _argument_names(names: Iterable[str]) -> dict[str, str]:
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
