"""Keras model inputs that carry the schema of the data."""

import hashlib
import weakref
from typing import Any

import keras

from lodestar import _frames
from lodestar.data.schema.column import Column

_KINDS = ("sparse", "dense", "one_hot")


def schema_class() -> Any:
    """Returns the Schema class, whose module imports this one."""
    return keras.saving.get_registered_object("lodestar>Schema")


class _Carried:
    """A schema shared by several inputs; None before a loaded input stores it."""

    def __init__(
        self,
        schema: Any = None,
        key: str | None = None,
        text: str | None = None,
    ):
        self.schema = schema
        self._key = key
        self._text = text

    @property
    def text(self) -> str | None:
        """Content of the schema file."""
        if self._text is None and self.schema is not None:
            self._text = self.schema.yaml()
        return self._text

    @property
    def key(self) -> str:
        """A hash of the content, which links the inputs in a file."""
        if self._key is None:
            text = (self.text or "").encode()
            self._key = hashlib.blake2b(text, digest_size=8).hexdigest()
            _carried[self._key] = self
        return self._key

    @classmethod
    def loaded(cls, key: str, text: str | None) -> "_Carried":
        """Returns the shared schema for an input loaded from a file."""
        found = _carried.get(key)
        if found is None or text not in (None, found.text):
            schema = None if text is None else schema_class().parse(text)
            _carried[key] = found = cls(schema, key, text)
        return found


# By key. In a file, the input that stores the schema precedes the others.
_carried: weakref.WeakValueDictionary[str, _Carried] = (
    weakref.WeakValueDictionary()
)


@keras.saving.register_keras_serializable(package="lodestar")
class ColumnInput(keras.layers.InputLayer):
    """The Keras model input of one column, made by `Schema.inputs`.

    The layer and its tensor have the name of the column, so that Keras finds the
    input in a dict of features. In a `.keras` file, the first input of each model
    stores the schema.

    Args:
        column: Name of the column.
        carried: The schema.
        **options: `batch_shape`, `dtype`, `ragged` and `optional` of
            `keras.layers.InputLayer`.

    Attributes:
        column: Name of the column.
    """

    def __init__(
        self,
        column: str,
        carried: _Carried,
        **options: Any,
    ):
        tensor = keras.KerasTensor(
            options.pop("batch_shape"),
            dtype=options.pop("dtype"),
            sparse=options.pop("sparse", False),
            ragged=options.get("ragged", False),
            name=column,
        )
        options["name"] = column.replace("/", "_")
        super().__init__(input_tensor=tensor, **options)
        # Keras rejects a slash because of variable paths, but an input has no
        # variables.
        self.name = column
        self.column = column
        self._carried = carried

    @property
    def schema(self) -> Any:
        """The Schema; None if the model's file does not contain it."""
        return self._carried.schema

    def get_config(self) -> dict[str, Any]:
        config = {
            **super().get_config(),
            "column": self.column,
            "schema_key": self._carried.key,
        }
        if self._writes_schema():
            config["schema"] = self._carried.text
        return config

    def _writes_schema(self) -> bool:
        """Returns whether this input must store the schema for its model.

        A model may use any subset of the inputs, so no input can store it for all
        models.
        """
        model = _frames.model_that_makes_config()
        inputs = (
            operation
            for operation in getattr(model, "operations", ())
            if isinstance(operation, ColumnInput)
            and operation._carried is self._carried
        )
        return next(inputs, self) is self

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> "ColumnInput":
        config = dict(config)
        carried = _Carried.loaded(
            config.pop("schema_key"), config.pop("schema", None)
        )
        return cls(carried=carried, **config)


def inputs_of_schema(schema: Any) -> dict[str, keras.KerasTensor]:
    """Returns the inputs of a functional model; see `Schema.inputs`."""
    carried = _Carried(schema)
    used = [column for column in schema.used if column.kind in _KINDS]
    return {
        column.name: _input(column, carried)
        for column in sorted(used, key=lambda c: _KINDS.index(c.kind))
    }


def _input(column: Column, carried: _Carried) -> keras.KerasTensor:
    dtype = "float32" if column.dtype == "float" else "int64"
    shape: list[int | None] = [
        None if dim == -1 else dim for dim in column.shape
    ]
    if column.kind == "sparse":
        shape = [None] * column.depth
    elif column.kind == "one_hot":
        shape, dtype = [column.size], "float32"
    layer = ColumnInput(
        column.name,
        carried,
        batch_shape=(None, *shape),
        dtype=dtype,
        ragged=column.kind == "sparse",
    )
    return layer.output
