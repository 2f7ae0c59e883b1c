"""A table as Keras sees it: found, frozen, saved and counted as a layer is."""

import weakref
from typing import Any

import keras
import tensorflow as tf

from lodestar.embedding import table_store
from lodestar.embedding.fit_callbacks import refuse_callbacks
from lodestar.embedding.hook_variable import HookVariable
from lodestar.ops import lost_gradients


class TrackedTable(keras.layers.Layer):
    """What makes a model that holds a table in an attribute train and save it.

    Keras finds variables, and what is written to its files, through layers
    alone: in attributes, and in lists, tuples and dicts of them.
    """

    def __new__(cls, *args: Any, **kwargs: Any) -> "TrackedTable":
        # Keras's own wraps methods that a table does not have, in cycles:
        # gigabytes of rows would wait for the cycle collector.
        return object.__new__(cls)

    def __init__(self, name: str, dtype: tf.DType):
        keras.layers.Layer.__init__(
            self, name=name.replace("/", "_"), dtype=dtype.name, autocast=False
        )
        self.name = name
        self._row_dtype = dtype
        self._file: weakref.ref[Any] | None = None
        self._kept = False
        self.supports_jit = False
        self.built = True

    def track_hook(self, hook: HookVariable) -> None:
        """Makes `hook` the variable that trains the rows."""
        # Not as an attribute of a layer: checkpoints would hold it twice.
        object.__setattr__(self, "_hook", hook)
        lost_gradients.record(hook)
        # Which Keras's files and checkpoints hold by its attribute.
        self.optimizer = hook.row_optimizer

    def track_hook_value(self, value: tf.Variable) -> None:
        """Makes the raw variable that saved lookups read part of saves."""
        self._track_trackable(value, "hook", overwrite=True)

    def _trackable_children(
        self, save_type: str = "checkpoint", **kwargs: Any
    ) -> dict[str, Any]:
        children = super()._trackable_children(save_type, **kwargs)
        if save_type == "checkpoint" and "hook" in children:
            # It saves nothing. TensorFlow cannot always restore the raw
            # variable, which has no elements.
            children["hook"] = self._hook
        return children

    @property
    def hook(self) -> HookVariable:
        """Trainable variable `[0, dim]` that carries the table's gradient."""
        self._hook.claimed = True
        return self._hook

    def hook_for_layer(self) -> HookVariable:
        """`hook`, which Keras may yet not find in the layer."""
        return self._hook

    @property
    def dtype(self) -> tf.DType:
        """Of the rows, and of what is looked up."""
        return self._row_dtype

    @property
    def trainable(self) -> bool:
        """Whether optimizers train the rows; settable.

        False, training look-ups that do not say so add no ids either.
        """
        return self._hook.trainable

    @trainable.setter
    def trainable(self, value: bool) -> None:
        self._hook.trainable = bool(value)

    @property
    def variables(self) -> list[HookVariable]:
        """`[hook]`."""
        # Asked by a layer that holds the table.
        self._hook.in_layer = True
        return [self.hook]

    @property
    def weights(self) -> list[HookVariable]:
        """`[hook]`."""
        return self.variables

    @property
    def trainable_variables(self) -> list[HookVariable]:
        """`[hook]`, or nothing where `trainable` is False."""
        return [self.hook] if self.trainable else []

    @property
    def metrics(self) -> list[keras.metrics.Metric]:
        """`[]`.

        Raises:
            RuntimeError: `fit` has begun with a callback that loses rows.
        """
        refuse_callbacks()
        return []

    def set_weights(self, weights: Any) -> None:
        """Refuses arrays, which do not say the ids of their rows.

        Raises:
            RuntimeError: Always.
        """
        raise RuntimeError(
            f"set_weights cannot set the rows of {self!r}: a list of arrays has "
            "no ids. Use `table.insert_or_assign(ids, rows)`, or "
            "`table.load_rows(other.export())` for rows of another table; "
            "`model.load_weights` reads what `model.save_weights` wrote."
        )

    def call(self, *args: Any, **kwargs: Any) -> Any:
        """Refuses: a table is no layer of a model.

        Raises:
            TypeError: Always.
        """
        raise TypeError(
            f"{self!r} is not called. Use its `lookup(ids)`, or the layer "
            "lodestar.layers.DynamicEmbedding(table=table)."
        )

    def compute_output_spec(self, *args: Any, **kwargs: Any) -> Any:
        return self.call()

    def keep_in(self, store: Any, kept: bool = True) -> None:
        """Says that who calls writes the table to a Keras file, or reads it.

        Keras comes to it several times: as the part of a layer that has
        written it, as an attribute, by its hook. `store` is one object for all that
        a file holds; with `kept` False the table was looked for in it.
        """
        try:
            self._file = weakref.ref(store)
        except TypeError:  # a dict
            self._file = None
        self._kept = kept

    def is_known_to(self, store: Any) -> bool:
        """Whether `keep_in(store)` was called."""
        return self._file is not None and self._file() is store

    def save_own_variables(self, store: Any) -> None:
        """Writes the table, for `.keras` and `.weights.h5` files."""
        if not self.is_known_to(store):
            self.keep_in(store)
            table_store.save_table(self, store)

    def load_own_variables(self, store: Any, by_hook: bool = False) -> None:
        """Reads what `save_own_variables` wrote.

        Raises:
            ValueError: The file has no such table, or a damaged one.
        """
        elsewhere = self.is_known_to(store) and (by_hook or self._kept)
        if elsewhere and not table_store.holds_table(store):
            return
        self.keep_in(store, kept=False)
        table_store.load_table(self, store)
        self._kept = True
