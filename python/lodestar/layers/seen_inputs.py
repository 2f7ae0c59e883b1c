"""Detects inputs that differ from those a layer was built on."""

import warnings
from typing import Any, TypeAlias

import keras
import tensorflow as tf

from lodestar import _private
from lodestar.ops import input_casts, symbolic_build
from lodestar.ops.flat_values import flat_values

# A shape without the batch dimension.
_Sizes: TypeAlias = tuple[int | None, ...]


class SeenInputs:
    """Records the kinds of tensors that a layer was called on.

    `model.export` and `tf.saved_model.save` trace a model with dense
    placeholders even if its inputs are ragged or sparse. The layer would
    then look up padding like any other id.

    A functional model casts and fills its inputs as declared, so ids may have
    changed before a layer sees them; see `lodestar.ops.input_casts`.
    """

    def __init__(self) -> None:
        # Shapes of symbolic inputs, from functional models.
        self._dense: set[tuple[str, _Sizes]] = set()
        self._not_dense: set[tuple[str, _Sizes]] = set()
        # Ranks of ragged and sparse tensors in calls.
        self._ranks: set[tuple[str, int]] = set()
        # The layers and operations that produced the symbolic inputs, by name.
        self._sources: dict[str, set[Any]] = {}
        # Those that operations of the model have cast, or made dense.
        self._cast: set[str] = set()
        self._filled: set[str] = set()

    def see(
        self,
        name: str,
        x: Any,
        *,
        option: str = "padding_id",
        padding: int | str | bytes | None = None,
    ) -> None:
        """Records `x`; warns if it is dense and was ragged or sparse before.

        Args:
            name: Name of the input, for messages.
            x: The ids or keys.
            option: The argument of the layer that declares padding.
            padding: Its value.

        Raises:
            ValueError: In a graph: Keras cast `x` to other values, or filled its
                rows with anything but `padding`.
        """
        if isinstance(x, keras.KerasTensor):
            self._see_source(name, x)
        elif self._holds_inputs(name, x):
            if name not in self._cast:
                input_casts.refuse_casts(x, name, self._columns(name))
            if name not in self._filled:
                input_casts.refuse_filler(x, name, option, padding)
        if padding is None:
            self._see_kind(name, x)

    def see_weights(self, name: str, weights: Any) -> None:
        """Raises ValueError if Keras cast `weights`, called `name`, to integers."""
        if isinstance(weights, keras.KerasTensor):
            self._see_source(name, weights)
        elif self._holds_inputs(name, weights) and name not in self._cast:
            input_casts.refuse_cut_weights(weights, name)

    def _see_source(self, name: str, x: keras.KerasTensor) -> None:
        source = _private.layer_of(x)
        if source is not None:
            self._sources.setdefault(name, set()).add(source)
            if not _private.keeps_inputs(x, "dtype"):
                self._cast.add(name)
            if not _private.keeps_inputs(x, "ragged", "sparse"):
                self._filled.add(name)

    def _holds_inputs(self, name: str, x: Any) -> bool:
        """Returns whether `x` in a graph holds inputs of a functional model."""
        return name in self._sources and tf.is_symbolic_tensor(flat_values(x))

    def _columns(self, name: str) -> str:
        """Returns the columns of a schema that are the input `name`, if all are."""
        sources = self._sources.get(name, set())
        # A ColumnInput of `Schema.inputs` has a column.
        columns = [getattr(source, "column", None) for source in sources]
        if None in columns:
            return ""
        return " and ".join(sorted({repr(column) for column in columns}))

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
