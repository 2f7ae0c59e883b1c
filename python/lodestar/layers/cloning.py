"""Copies of Keras models that are made from configs."""

import contextlib
import contextvars
import gc
from collections.abc import Iterator
from typing import Any

import keras

from lodestar.embedding.embedding_variable import EmbeddingVariable

_SHARED = (
    "The layers {layers} share the table '{table}'. Keras makes each layer from its "
    "config alone, so every layer would get a table of its own. Make the copy inside "
    "`with lodestar.layers.clone_scope():`, or copy the model with its rows by "
    "copy.deepcopy(model)."
)
# Any object that Keras can make from a config.
_PROBE: dict[str, Any] = {
    "module": "keras.initializers",
    "class_name": "Zeros",
    "config": {},
    "registered_name": None,
    "shared_object_id": -1,
}

# Whether layers were registered with tables since the last collection.
_has_new_layers = False
# Tables of the running scope by their marks.
_tables: contextvars.ContextVar[dict[int, EmbeddingVariable] | None] = (
    contextvars.ContextVar("lodestar_clone_scope", default=None)
)


@contextlib.contextmanager
def clone_scope() -> Iterator[None]:
    """Makes copies that come from configs keep shared tables and vocabularies.

    `keras.models.clone_model`, `keras.models.model_from_json` and `from_config` make
    each layer of a model from its config alone. In this scope, layers that share a
    table share one new, empty table in the copy, and the config of an `IdLookup`
    contains its vocabulary. Without the scope, a layer whose table other layers share
    raises ValueError, and a copied `IdLookup` has no vocabulary.

    Use one scope for each copy. `.keras` files, `copy.deepcopy` and `pickle` work
    without it.

    >>> with lodestar.layers.clone_scope():
    ...     clone = keras.models.clone_model(model)
    """
    token = _tables.set({})
    try:
        yield
    finally:
        _tables.reset(token)


def in_clone_scope() -> bool:
    """Returns whether a `clone_scope` is active."""
    return _tables.get() is not None


def register_layer(layer: Any, table: EmbeddingVariable) -> None:
    """Lists `layer` among the layers that use `table`."""
    global _has_new_layers
    table._layers.add(layer)
    _has_new_layers = True


def _collect_deleted_layers() -> None:
    """Removes deleted layers from the lists of tables.

    Keras layers are parts of reference cycles, so deleted ones remain listed until a
    collection. That is slow, so one serves all configs until there are new layers.
    """
    global _has_new_layers
    if _has_new_layers:
        gc.collect()
        _has_new_layers = False


def serialize_table(table: EmbeddingVariable) -> dict[str, Any]:
    """Returns the Keras config of `table`, marked as one shared object.

    Keras marks an object that it serializes twice, but a layer's config is
    copied on its way into the file, so every config carries the mark.
    """
    if len(table._layers) > 1:
        _collect_deleted_layers()
    # Keras's own function would serialize the values of a variable.
    return {
        "module": type(table).__module__,
        "class_name": type(table).__name__,
        "config": table.get_config(),
        "registered_name": keras.saving.get_registered_name(type(table)),
        "shared_object_id": id(table),
        "layers": sorted(layer.name for layer in table._layers),
    }


def deserialize_table(config: dict[str, Any]) -> EmbeddingVariable:
    """Returns the table of a config, shared by all layers of a model.

    Raises:
        ValueError: Layers share the table, and nothing tells which other layers of
            the model are being made.
    """
    config = dict(config)
    mark = config.get("shared_object_id")
    layers = config.pop("layers", ())
    tables = _tables.get()
    if mark is None or _keras_shares_objects():
        return keras.saving.deserialize_keras_object(config)
    if tables is None:
        if len(layers) > 1:
            raise ValueError(
                _SHARED.format(
                    layers=" and ".join(map(repr, layers)),
                    table=config["config"].get("name"),
                )
            )
        return keras.saving.deserialize_keras_object(config)
    if mark not in tables:
        tables[mark] = keras.saving.deserialize_keras_object(config)
    return tables[mark]


def _keras_shares_objects() -> bool:
    """Whether Keras returns one object for all configs with the same mark.

    It does so while it loads a file.
    """
    first, second = map(keras.saving.deserialize_keras_object, [_PROBE] * 2)
    return first is second
