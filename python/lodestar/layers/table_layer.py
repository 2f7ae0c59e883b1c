"""Base class of layers that own tables."""

import contextlib
import copy
from collections.abc import Mapping, MutableMapping
from typing import Any, NoReturn, Self

import keras
import numpy as np
import tensorflow as tf

from lodestar import _bases
from lodestar._checks import check_unmasked
from lodestar._typing import DTypePolicy
from lodestar.embedding import table_store
from lodestar.embedding.embedding_variable import EmbeddingVariable
from lodestar.embedding.table_variable import as_table
from lodestar.layers.cloning import register_layer
from lodestar.layers.feature import Feature
from lodestar.layers.seen_inputs import SeenInputs

_KEY = "own_weight_{}"


class KeyLayer(_bases.Layer):
    """A layer that looks up ids or keys."""

    def __init__(self, **options: Any):
        super().__init__(autocast=False, **options)
        self.supports_jit = False
        self._seen = SeenInputs()

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Calls the layer; rejects masked arrays, whose mask Keras would drop."""
        for x in keras.tree.flatten((args, kwargs)):
            check_unmasked("inputs", x)
        scope: contextlib.AbstractContextManager[Any]
        scope = contextlib.nullcontext()
        # Layers are often named after columns, such as `_id` of MongoDB, but the
        # outermost scope of a graph must not begin with an underscore.
        if not self.name[:1].isalnum() and not tf.get_current_name_scope():
            scope = tf.name_scope("layer")
        with scope:
            return super().__call__(*args, **kwargs)


class TableLayer(KeyLayer):
    """A layer with tables, which are saved together with its other weights."""

    def __init__(
        self, trainable: bool, dtype: DTypePolicy | None, name: str | None
    ):
        super().__init__(trainable=trainable, dtype=dtype, name=name)
        self.supports_masking = True

    def _see_ids(self, name: str, ids: Any, feature: Feature) -> None:
        """Checks that a call passes ids as the model declares them."""
        feature._check_kind(ids, name)
        self._seen.see(
            f"`{name}` of the layer '{self.name}'",
            ids,
            padding=feature.padding_id,
        )

    def _see_weights(self, name: str, weights: Any) -> None:
        self._seen.see_weights(f"`{name}` of the layer '{self.name}'", weights)

    def _tables_by_prefix(self) -> dict[str, EmbeddingVariable]:
        """Returns the tables by the prefix of their names in Keras files."""
        raise NotImplementedError

    @property
    def trainable(self) -> bool:
        """Whether the layer is trained. Setting it also sets it for its tables."""
        return bool(keras.layers.Layer.trainable.fget(self))

    @trainable.setter
    def trainable(self, value: bool) -> None:
        keras.layers.Layer.trainable.fset(self, value)
        # Keras does not find tables that were frozen when the layer got them.
        self._set_trainable_of_tables(bool(value))

    def _hold_tables(self) -> None:
        """Registers this layer with its tables; freezes them if it is frozen."""
        for table in self._tables_by_prefix().values():
            register_layer(self, table)
        if not self.trainable:
            self._set_trainable_of_tables(False)

    def _set_trainable_of_tables(self, value: bool) -> None:
        for table in self._tables_by_prefix().values():
            table.trainable = value

    def set_weights(self, weights: Any) -> NoReturn:
        """Raises RuntimeError, because arrays have no ids."""
        raise RuntimeError(
            f"set_weights cannot set the rows of the layer '{self.name}': a "
            "list of arrays has no ids. Use `table.insert_or_assign(ids, rows)`, "
            "or `table.load_rows(other.export())` for rows of another table; "
            "`model.load_weights` reads what `model.save_weights` wrote."
        )

    def get_config(self) -> dict[str, Any]:
        config = super().get_config()
        config.pop("autocast", None)
        return config

    def save_own_variables(self, store: MutableMapping[str, Any]) -> None:
        """Writes the tables to a `.keras` or `.weights.h5` file."""
        for prefix, table in self._tables_by_prefix().items():
            table._keep_in(store)
            table_store.save_table(table, store, prefix)
        for i, weight in enumerate(self._own_weights()):
            store[_KEY.format(i)] = keras.ops.convert_to_numpy(weight)

    def load_own_variables(self, store: Mapping[str, Any]) -> None:
        """Reads the output of `save_own_variables`.

        Raises ValueError if tables or weights differ in number, shape or dtype.
        """
        tables = self._tables_by_prefix()
        table_store.load_tables(list(tables.values()), store, list(tables))
        for table in tables.values():
            table._keep_in(store)
        self._load_own_weights(store)

    def _own_weights(self) -> list[keras.Variable]:
        store: dict[str, Any] = {}
        super().save_own_variables(store)
        return [v for v in store.values() if as_table(v) is None]

    def _load_own_weights(self, store: Mapping[str, Any]) -> None:
        weights = self._own_weights()
        saved: list[np.ndarray] = []
        while _KEY.format(len(saved)) in store.keys():
            saved.append(np.asarray(store[_KEY.format(len(saved))]))
        shapes = [value.shape for value in saved]
        expected = [tuple(weight.shape) for weight in weights]
        if shapes != expected:
            raise ValueError(
                f"The other weights of the layer `{self.name}` must have shapes "
                f"{expected}, got {shapes} in the file."
            )
        for weight, value in zip(weights, saved, strict=True):
            weight.assign(value)

    def _copy_through_file(self, memo: dict[int, Any]) -> Self:
        """Returns a deep copy made by Keras, with everything the layer saves."""
        reduced: Any = self.__reduce__()
        make, arguments = reduced
        copied: Self = make(*copy.deepcopy(arguments))
        memo[id(self)] = copied
        return copied
