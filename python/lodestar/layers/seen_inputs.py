"""Notices that ragged ids arrive dense, as they do in an export by Keras."""

import warnings
from typing import Any, TypeAlias

import keras
import tensorflow as tf

from lodestar import _private
from lodestar.ops import symbolic_build

# A shape without the batch.
_Sizes: TypeAlias = tuple[int | None, ...]


class SeenInputs:
    """The kinds of tensors that a layer was given.

    `model.export` and `tf.saved_model.save` trace a model with dense
    placeholders even where its inputs are ragged or sparse. The layer would
    then look up padding like any other id.
    """

    def __init__(self) -> None:
        # The shapes of symbolic inputs, from functional models.
        self._dense: set[tuple[str, _Sizes]] = set()
        self._not_dense: set[tuple[str, _Sizes]] = set()
        # The ranks of ragged and sparse tensors in calls.
        self._ranks: set[tuple[str, int]] = set()

    def see(self, name: str, x: Any) -> None:
        """Records `x`; warns if it is dense and was ragged or sparse before.

        Args:
            name: What to call it in the warning.
            x: An argument of the layer's call, symbolic or not.
        """
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
                "What fills short rows of a dense tensor is looked up like any "
                "other id and changes the scores. To export the model with "
                "ragged and sparse inputs, use lodestar.export.saved_model.",
                stacklevel=2,
            )

    def _is_padded(self, name: str, x: Any) -> bool:
        if not tf.is_symbolic_tensor(x) or x.shape.rank is None:
            return False
        sizes = tuple(x.shape[1:])
        if (name, sizes) in self._dense or _private.is_symbolic_build():
            return False
        if (name, sizes) in self._not_dense:
            return True
        # Rows of a known size are not padded for each batch.
        return (name, x.shape.rank) in self._ranks and None in sizes
