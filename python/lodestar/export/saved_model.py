"""SavedModels whose signatures keep ragged features ragged."""

import os
from collections.abc import Mapping
from typing import Any

import keras
import tensorflow as tf

from lodestar.embedding.hook_variable import as_hook
from lodestar.embedding.saved_state import without_optimizer_slots
from lodestar.export import signatures
from lodestar.export.folder import whole_folder

_SIGNATURES = ("ragged", "values_and_lengths")


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
    specs, pack = signatures.model_inputs(model, inputs)

    def serve(features: Mapping[str, Any]) -> dict[str, Any]:
        return signatures.named_outputs(model(pack(features), training=False))

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
    plain = signatures.plain_tensors(specs, signature)

    @tf.function
    def serving_default(**tensors: Any) -> dict[str, Any]:
        return serve(plain.unflatten(tensors))

    with whole_folder(path) as partial, without_optimizer_slots():
        tf.saved_model.save(
            module,
            partial,
            signatures={
                "serving_default": serving_default.get_concrete_function(
                    **plain.specs
                )
            },
        )
