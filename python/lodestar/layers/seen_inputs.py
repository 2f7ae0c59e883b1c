"""Detects inputs that differ from those a layer was built on."""

import warnings
from typing import Any, TypeAlias

import keras
import tensorflow as tf

from lodestar import _private
from lodestar.embedding.ids import float_source
from lodestar.ops import symbolic_build
from lodestar.ops.flat_values import flat_values

# A shape without the batch dimension.
_Sizes: TypeAlias = tuple[int | None, ...]


class SeenInputs:
    """Records the kinds of tensors that a layer was called on.

    `model.export` and `tf.saved_model.save` trace a model with dense
    placeholders even if its inputs are ragged or sparse. The layer would
    then look up padding like any other id.

    A functional model casts inputs to the declared dtype, so floats (for
    example, from a table that was read without the model's schema) become ids
    before a layer sees them. Only a graph reveals the cast.
    """

    def __init__(self) -> None:
        # Shapes of symbolic inputs, from functional models.
        self._dense: set[tuple[str, _Sizes]] = set()
        self._not_dense: set[tuple[str, _Sizes]] = set()
        # Ranks of ragged and sparse tensors in calls.
        self._ranks: set[tuple[str, int]] = set()
        # The layers and operations that produced the symbolic inputs, by name.
        self._sources: dict[str, set[Any]] = {}
        self._warned_of_floats = False

    def see(self, name: str, x: Any, *, padding: bool = False) -> None:
        """Records `x`; warns if it is dense and was ragged or sparse before.

        Warns once if the input of a model cast `x` from floats, and raises
        ValueError if the schema of the model declares ids there. `name` is the
        name of the input in messages; `padding` tells whether the layer has a
        padding id.
        """
        if isinstance(x, keras.KerasTensor):
            source = _private.layer_of(x)
            if source is not None:
                self._sources.setdefault(name, set()).add(source)
        elif tf.is_symbolic_tensor(flat_values(x)):
            self._check_floats(name, x)
        if not padding:
            self._see_kind(name, x)

    def _check_floats(self, name: str, x: Any) -> None:
        sources = self._sources.get(name, set())
        if _private.is_symbolic_build() or not sources:
            return
        # A cast after another layer is the model's own.
        if not all(isinstance(s, keras.layers.InputLayer) for s in sources):
            return
        dtype = float_source(x)
        if dtype is None:
            return
        # A ColumnInput of `Schema.inputs` has a column.
        columns = [getattr(s, "column", None) for s in sources]
        if None not in columns:
            named = " and ".join(sorted({repr(column) for column in columns}))
            raise ValueError(
                f"{name} are the column {named}, which the schema of the model "
                f"declares as ids, but the data has {dtype.name}, which Keras "
                "cast to integers. Read the data with the schema of the "
                "model: lodestar.data.open_dataset(data, schema=model)."
            )
        if not self._warned_of_floats:
            self._warned_of_floats = True
            warnings.warn(
                f"{name} were cast from {dtype.name} to integers, because Keras "
                "casts data to the dtype of an Input. If these are not ids, "
                "the lookup is meaningless. Pass integers, or build the model "
                "on `schema.inputs()` and read all data with the schema: "
                "lodestar.data.open_dataset(data, schema=schema).",
                stacklevel=3,
            )

    def _see_kind(self, name: str, x: Any) -> None:
        if isinstance(x, keras.KerasTensor):
            not_dense = x.sparse or getattr(x, "ragged", False)
            shapes = self._not_dense if not_dense else self._dense
            shapes.add((name, tuple(x.shape[1:])))
        elif isinstance(x, (tf.RaggedTensor, tf.SparseTensor)):
            if x.shape.rank is not None:
                self._ranks.add((name, x.shape.rank))
        elif self._is_padded(name, x):
            warnings.warn(
                f"{name} are ragged or sparse in the model, but dense, of shape "
                f"{x.shape}, in the function "
                f"'{symbolic_build.traced_function()}', which is being traced. "
                "The padding of a dense tensor is looked up like any "
                "other id and changes the scores. To export the model with "
                "ragged and sparse inputs, use lodestar.export.save.",
                stacklevel=3,
            )

    def _is_padded(self, name: str, x: Any) -> bool:
        if not tf.is_symbolic_tensor(x) or x.shape.rank is None:
            return False
        sizes = tuple(x.shape[1:])
        if (name, sizes) in self._dense or _private.is_symbolic_build():
            return False
        if (name, sizes) in self._not_dense:
            return True
        # An axis of static size is not padded per batch.
        return (name, x.shape.rank) in self._ranks and None in sizes
