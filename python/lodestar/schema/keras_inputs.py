"""Keras model inputs that carry the schema of the data."""

import base64
import weakref
import zlib
from typing import Any

import keras

from lodestar.schema.column import Column

_KINDS = ("sparse", "dense", "one_hot")


def schema_class() -> Any:
    """Returns the Schema class, whose module imports this one."""
    return keras.saving.get_registered_object("lodestar>Schema")


class _Carried:
    """A schema shared by several inputs."""

    def __init__(self, schema: Any, packed: str | None = None):
        self.schema = schema
        self._packed = packed

    @property
    def packed(self) -> str:
        """Content of the schema file, compressed as ASCII.

        A model may use any of the inputs, so each one stores the whole schema.
        """
        if self._packed is None:
            content = zlib.compress(self.schema.yaml().encode(), 9)
            self._packed = base64.b85encode(content).decode()
            _carried[self._packed] = self
        return self._packed

    @classmethod
    def loaded(cls, packed: str) -> "_Carried":
        """Returns the schema of a config, one object for equal schemas."""
        found = _carried.get(packed)
        if found is None:
            text = zlib.decompress(base64.b85decode(packed)).decode()
            found = cls(schema_class().parse(text), packed)
            _carried[packed] = found
        return found


_carried: weakref.WeakValueDictionary[str, _Carried] = (
    weakref.WeakValueDictionary()
)


@keras.saving.register_keras_serializable(package="lodestar")
class ColumnInput(keras.layers.InputLayer):
    """The Keras model input of one column, made by `Schema.inputs`.

    The layer and its tensor have the name of the column, so that Keras finds the
    input in a dict of features. In a `.keras` file, each input stores the schema.

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
        """The Schema."""
        return self._carried.schema

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "column": self.column,
            "schema": self._carried.packed,
        }

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> "ColumnInput":
        config = dict(config)
        carried = _Carried.loaded(config.pop("schema"))
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
