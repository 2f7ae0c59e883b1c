"""The trainable variable that carries a table's gradient to the optimizer."""

import copy
import re
import weakref
from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from lodestar import _private
from lodestar.embedding.lookup_arguments import get_optimizer
from lodestar.embedding.slot_owner import SlotOwner
from lodestar.ops import lost_gradients
from lodestar.ops.compile_line import compile_line, wrappers

_PLAIN_OPTIMIZER = (
    "`{path}` is a dynamic embedding: its gradient is sparse over 64-bit ids, "
    "and the optimizer would apply it to a variable without rows. Wrap the "
    "optimizer:\n{line}"
)
_PLAIN_LOSS_SCALING = (
    "`{path}` is a dynamic embedding, whose gradient is sparse over 64-bit "
    "ids. Under the mixed_float16 policy compile puts Keras's "
    "LossScaleOptimizer around the optimizer, which would make the gradient "
    "dense. Wrap the optimizer:\n{line}"
)
_DENSE_GRADIENT = (
    "The gradient of a dynamic embedding is sparse over 64-bit ids, and cannot "
    "be made a dense tensor, as an optimizer or a loop here does. In a loop "
    "of your own, use its `values` and `indices`, and "
    "lodestar.optimizers.clip_by_global_norm. Wrap the optimizer, under the "
    "mixed_float16 policy by the second line:\n{line}\n{scaled}"
)
_ONLY_WEIGHTS = (
    "`{path}` stands for the rows of a table, which Keras does not count among "
    "the weights of a model: get_weights, set_weights and legacy .h5 files "
    "would lose them. Use model.save_weights('model.weights.h5') and "
    "load_weights, model.save('model.keras') or tf.train.Checkpoint, and in "
    "place of keras.callbacks.EarlyStopping(restore_best_weights=True) "
    "lodestar.callbacks.EarlyStopping. The dense layers of the model have a "
    "get_weights and set_weights of their own."
)

# What a hook is in Keras's files, beside its table; weights that are copied
# without the rows have the shape of the hook.
_IN_FILES = np.zeros([0], np.float32)

# Where a hook is found again from the raw variable behind it: gradient tapes
# report raw variables in `watched_variables()`.
_ATTRIBUTE = "_lodestar_hook"


def _none() -> None:
    """Stands for a weak reference to nothing."""
    return None  # without which AutoGraph cannot convert this


class HookVariable(keras.Variable, _private.KerasSaveable):
    """Trainable variable of shape `[0, D]`; its gradient holds rows and ids.

    It has no elements, so it adds no parameters, and an optimizer that builds
    state for it builds empty state. Keras assigns the gradient itself to a
    variable whose `overwrite_with_gradient` is true; an optimizer that does
    not know about hooks therefore ends up in `assign`, which refuses it while
    the step is traced. The wrapper optimizer takes hooks out before that.

    It has no values to read or write either: what copies the weights of a
    model and not the rest, as `get_weights`, gets an error in place of an
    empty array. Keras's files, which look at the attributes of layers for
    each `KerasSaveable`, get the table from it.
    """

    def __init__(self, table: Any, name: str, row_optimizer: Any = None):
        # Weak: the table owns the hook, and gigabytes of rows must not wait
        # for the cycle collector.
        self._table = weakref.ref(table)
        if row_optimizer is not None:
            row_optimizer = get_optimizer("optimizer", row_optimizer)
        self.row_optimizer: keras.optimizers.Optimizer | None = row_optimizer
        self.slots = SlotOwner()
        self.in_layer = False  # that writes the table to Keras's files
        # Whether a model, or anybody, has asked the table for the hook.
        self.claimed = False
        self.wrapper: Callable[[], Any] = _none  # that takes the gradients
        self.model: Callable[[], Any] = _none  # that looks rows up
        self._recorded = False  # in a look-up
        self._scaled_by_keras = False
        super().__init__(
            initializer="zeros",
            shape=(0, table.dim),
            dtype=table.dtype.name,
            trainable=True,
            autocast=False,
            # What a SavedModel may call a variable.
            name=re.sub(r"^[^A-Za-z0-9]|[^A-Za-z0-9_.-]", "_", name),
        )

    @property
    def table(self) -> Any:
        """The EmbeddingVariable that this hook belongs to."""
        table = self._table()
        if table is None:
            raise RuntimeError(
                f"The EmbeddingVariable of the hook `{self.path}` is gone: "
                "keep the variable, or the layer that owns it, referenced."
            )
        return table

    def __copy__(self) -> "HookVariable":
        return self  # a table has one

    def __deepcopy__(self, memo: dict[int, Any]) -> "HookVariable":
        table = copy.deepcopy(self.table, memo)
        if id(self) not in memo:  # the copy of the table is made just now
            optimizer = copy.deepcopy(self.row_optimizer, memo)
            with tf.init_scope():
                hook = HookVariable(table, self.name, optimizer)
            hook.trainable = self.trainable
            memo[id(self)] = hook
        return memo[id(self)]

    # Keras calls this when the value is made, which is later than __init__
    # for a layer that is built in a stateless scope.
    def _initialize(self, value: Any) -> None:
        try:
            super()._initialize(value)
        except ValueError as error:  # of a function that is traced again
            raise ValueError(
                f"{self.table!r} is made inside a tf.function, or a function "
                "of a dataset, which would make another one each time that it "
                "is traced. Make it outside, or once."
            ) from error
        setattr(self._value, _ATTRIBUTE, weakref.ref(self))
        self.table.track_hook_value(self._value)

    @property
    def overwrite_with_gradient(self) -> bool:
        """Always true; see the class.

        Raises:
            RuntimeError: As `record`; the step has begun.
        """
        # Keras asks when it builds an optimizer's slots, in the first step or
        # before it: the last that is heard of Keras's loss scaling before it
        # makes gradients dense.
        if self.wrapper() is None:
            policy = keras.config.dtype_policy()
            self._scaled_by_keras |= policy.compute_dtype == "float16"
            if self._scaled_by_keras and self._recorded:
                self._refuse_loss_scaling()
        return True

    def manage(self, wrapper: keras.optimizers.Optimizer) -> None:
        """Says that `wrapper` takes this hook's gradients."""
        self.claimed = True
        self.wrapper = weakref.ref(wrapper)

    def record(self) -> None:
        """Says that a gradient tape records a look-up.

        Raises:
            RuntimeError: Keras's own optimizer and loss scaling wait for the
                gradient, and no wrapper does.
        """
        self._recorded = True
        model = _private.model_that_is_called()
        self.model = _none if model is None else weakref.ref(model)
        lost_gradients.record(self)
        if self._scaled_by_keras and self.wrapper() is None:
            # A wrapper that is not built may be the one to take it.
            if all(wrapper.built for wrapper in wrappers):
                self._refuse_loss_scaling()

    def _refuse_loss_scaling(self) -> None:
        line = compile_line(self.model(), scaled=True)
        raise RuntimeError(
            _PLAIN_LOSS_SCALING.format(path=self.path, line=line)
        )

    def assign(self, value: Any) -> Any:
        """Refuses gradients of plain optimizers, and weights without rows.

        Raises:
            RuntimeError: Always.
        """
        if isinstance(value, tf.IndexedSlices):
            line = compile_line(self.model())
            raise RuntimeError(
                _PLAIN_OPTIMIZER.format(path=self.path, line=line)
            )
        if getattr(value, "shape", None) == _IN_FILES.shape:
            return value
        raise RuntimeError(_ONLY_WEIGHTS.format(path=self.path))

    # What Keras has a checkpoint call; it would assign a variable of several
    # replicas.
    def _restore_from_tensors(self, restored_tensors: Any) -> Any:
        return self.value

    # Keras reads the weights of a model in these two ways, where it saves or
    # copies nothing else of it.

    def numpy(self) -> Any:
        """Refuses to be saved or copied without the table's rows.

        Raises:
            RuntimeError: Always.
        """
        raise RuntimeError(_ONLY_WEIGHTS.format(path=self.path))

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        if _private.writes_legacy_file() or not _private.walks_hooks():
            return self.numpy()
        return _IN_FILES

    # Keras's files walk the attributes of layers, and come to hooks, too.

    def save_own_variables(self, store: Any) -> None:
        """Writes the table, where a layer holds its hook and not the table."""
        self.table.save_own_variables(store)

    def load_own_variables(self, store: Any) -> None:
        self.table.load_own_variables(store, by_hook=True)

    def __dir__(self) -> list[str]:
        # The table leads back here, and the optimizer is its layer's.
        hidden = ("table", "row_optimizer")
        return [name for name in super().__dir__() if name not in hidden]

    def _obj_type(self) -> str:
        return "Layer"

    __reduce__ = object.__reduce__  # Keras's own copies through a file


def _refuse_to_make_dense(value: tf.IndexedSlices, *_: Any, **__: Any) -> Any:
    """Says what to do, where TensorFlow would fail on -1 rows."""
    shape = value.dense_shape
    static = None if shape is None else tf.get_static_value(shape)
    if static is not None and len(static) == 2 and static[0] == -1:
        raise RuntimeError(
            _DENSE_GRADIENT.format(
                line=compile_line(), scaled=compile_line(scaled=True)
            )
        )
    return NotImplemented


# Before TensorFlow's own, of priority 100, which gets all other slices.
tf.register_tensor_conversion_function(
    tf.IndexedSlices, _refuse_to_make_dense, priority=50
)


def as_hook(variable: Any) -> HookVariable | None:
    """Returns the hook that `variable` is or is the value of, or None."""
    if isinstance(variable, HookVariable):
        return variable
    reference = getattr(variable, _ATTRIBUTE, None)
    return None if reference is None else reference()
