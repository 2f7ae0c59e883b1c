"""Schemas stored with Keras models and SavedModels."""

import os
from typing import Any, TypeGuard

import keras
import tensorflow as tf

from lodestar import _private
from lodestar._typing import Model, StrPath
from lodestar.schema.keras_inputs import ColumnInput, schema_class

# Path in a SavedModel folder. TensorFlow does not touch assets.extra, and it
# is copied along with the folder.
FILE_NAME = os.path.join("assets.extra", "schema.yaml")


def schema_of(model: Any) -> Any:
    """Returns the schema of a model; see `Schema.of`."""
    found = schema_or_none(model)
    if found is None:
        raise ValueError(
            f"{_described(model)} has no schema. Build a functional model on "
            "`schema.inputs()`, or set the attribute `schema` of a subclassed "
            "model: model.schema = dataset.schema."
        )
    return found


def is_model(x: Any) -> TypeGuard[Model]:
    """Returns whether `x` is a Keras model or a loaded SavedModel."""
    return isinstance(x, keras.Model) or hasattr(x, "schema_yaml")


def is_saved_model(path: StrPath) -> bool:
    """Returns whether `path` is a SavedModel folder."""
    pb = os.path.join(os.fspath(path), "saved_model.pb")
    return bool(tf.io.gfile.exists(pb))


def schema_of_saved_model(path: StrPath) -> Any:
    """Returns the schema of a SavedModel; raises ValueError without one."""
    file = os.path.join(os.fspath(path), FILE_NAME)
    if not tf.io.gfile.exists(file):
        raise ValueError(
            f"The SavedModel {os.fspath(path)!r} has no schema file "
            f"{FILE_NAME}. Export a model that is built on "
            "`schema.inputs()` with lodestar.export.save."
        )
    return schema_class().load(file)


def write(schema: Any, folder: str) -> None:
    """Writes a schema into a SavedModel folder."""
    path = os.path.join(folder, FILE_NAME)
    tf.io.gfile.makedirs(os.path.dirname(path))
    with tf.io.gfile.GFile(path, "w") as file:
        file.write(schema.yaml())


def as_function(schema: Any) -> tf.types.experimental.PolymorphicFunction:
    """Returns an exportable function that returns the schema as YAML.

    A loaded model keeps its schema even if its folder is replaced.
    """
    text = schema.yaml()
    return tf.function(lambda: tf.constant(text), input_signature=[])


def schema_or_none(model: Any) -> Any:
    """Returns the schema of a model, or None."""
    own = getattr(model, "schema", None)
    if isinstance(own, schema_class()):
        return own
    if hasattr(model, "schema_yaml"):
        return schema_class().parse(model.schema_yaml().numpy().decode())
    found: list[Any] = []
    for tensor in _inputs(model):
        layer = _private.layer_of(tensor)
        schema = layer.schema if isinstance(layer, ColumnInput) else None
        if schema is not None and not any(schema is x for x in found):
            found.append(schema)
    for schema in found[1:]:
        if schema != found[0]:
            raise ValueError(
                f"{_described(model)} has inputs of different schemas:\n"
                f"{found[0]}\n\n{schema}\nMake all inputs by one call of "
                "`schema.inputs()`."
            )
    return found[0] if found else None


def _inputs(model: Any) -> list[Any]:
    try:
        return list(model.inputs or ())
    except AttributeError:  # a subclassed or unbuilt model
        return []


def _described(model: Any) -> str:
    name = getattr(model, "name", None)
    named = f" {name!r}" if isinstance(name, str) else ""
    return f"The {type(model).__name__}{named}"
