"""The trainable variable that carries a table's gradient to the optimizer."""

import copy
import re
import warnings
import weakref
from collections.abc import Callable, Iterable
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from lodestar import _private
from lodestar.embedding.dense_view import dense_view
from lodestar.embedding.lookup_arguments import get_optimizer
from lodestar.embedding.slot_owner import SlotOwner
from lodestar.ops import lost_gradients
from lodestar.ops.compile_line import compile_line, table_optimizers

_PLAIN_OPTIMIZER = (
    "`{path}` is a dynamic embedding: its gradient is sparse over 64-bit ids, "
    "which this Keras optimizer cannot apply. Use the optimizer of the same "
    "name in lodestar.optimizers, or give the table an optimizer of its own "
    "(optimizer='adagrad'):\n{line}"
)
_PLAIN_LOSS_SCALING = (
    "`{path}` is a dynamic embedding, whose gradient is sparse over 64-bit "
    "ids. Under the mixed_float16 policy compile puts Keras's "
    "LossScaleOptimizer around the optimizer, which would make the gradient "
    "dense. Name the optimizers of lodestar.optimizers yourself:\n{line}"
)
_DENSE_GRADIENT = (
    "The gradient of a dynamic embedding is sparse over 64-bit ids, and cannot "
    "be made a dense tensor, as an optimizer or a loop here does. In a loop "
    "of your own, use its `values` and `indices`, and "
    "lodestar.optimizers.clip_by_global_norm. Otherwise use an optimizer of "
    "lodestar.optimizers; the second line is for the mixed_float16 policy:"
    "\n{line}\n{scaled}"
)
_NOT_DENSE = (
    "`{path}` stands for the rows of {table!r}, which are sparse over 64-bit "
    "ids and cannot be read as a dense weight under a gradient tape or in a "
    "tf.function: a penalty on them would train nothing. Penalize the rows "
    "that the step looks up (tf.nn.l2_loss(rows)), or set `weight_decay` of "
    "the optimizer, which decays those rows. A loop over `trainable_variables` "
    "must skip tables: `if not hasattr(v, 'table')`. To look at the rows, call "
    "table.export() outside of the tape and the tf.function."
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

# Options by which a Keras optimizer acts on all gradients together.
_NOT_FOR_OWN = (
    "clipnorm",
    "clipvalue",
    "global_clipnorm",
    "gradient_accumulation_steps",
    "loss_scale_factor",
)
_NOT_HONORED = (
    "`{path}` is a dynamic embedding, to which {optimizer}({given}) cannot "
    "apply. Use the optimizer of the same name in lodestar.optimizers, "
    "which clips, unscales and accumulates the gradients of tables "
    "too:\n{line}"
)

# What a hook is in Keras's files, beside its table; weights that are copied
# without the rows have the shape of the hook.
_IN_FILES = np.zeros([0], np.float32)

# Where a hook is found again from the raw variable behind it: gradient tapes
# report raw variables in `watched_variables()`.
_ATTRIBUTE = "_lodestar_hook"


_NOT_FOLLOWED = (
    "{table!r} has {added} more rows after lookups under a gradient tape that "
    "no optimizer followed. Without `training`, a lookup under a tape is taken "
    "for training and adds unseen ids. Pass training=False to the lookup, layer "
    "or model to look at gradients only, or training=True if the rows are meant "
    "to stay. This is said once for each table."
)


def _scope_name(name: str) -> str:
    """Returns `name` as one that a SavedModel may give to a variable."""
    name = re.sub("[^A-Za-z0-9_.-]", "_", name)
    return name if name[0].isalnum() else f"table{name}"


def _none() -> None:
    """Stands for a weak reference to nothing."""
    return None  # without which AutoGraph cannot convert this


class HookVariable(keras.Variable, _private.KerasSaveable):
    """Trainable variable of shape `[0, D]`; its gradient holds rows and ids.

    It has no elements, so an optimizer that builds state for it builds empty
    state. Keras assigns the gradient itself to a
    variable whose `overwrite_with_gradient` is true; an optimizer that does
    not know about hooks therefore ends up in `assign`, which refuses it while
    the step is traced, unless the table has an optimizer of its own. The
    optimizers of lodestar.optimizers take hooks out before that.

    What a reader of `layer.weights` gets from it:

    | reader | gets |
    |---|---|
    | TensorFlow, Keras and NumPy functions and operators | `dense_view(table)` |
    | the same under a gradient tape or in a graph | RuntimeError |
    | `get_weights`, legacy `.h5` files: copies for `assign` | RuntimeError |
    | `summary` and `count_params` | `[rows, D]` as its shape |
    | Keras's other files | a placeholder; the file has the table |
    | `value` and `handle`, for tapes, checkpoints and exports | `[0, D]` |
    """

    # `lodestar.optimizers.wrap`, which that package sets.
    wrap_optimizer: Callable[[Any], Any]

    def __init__(self, table: Any, name: str, row_optimizer: Any = None):
        # Weak: the table owns the hook, and gigabytes of rows must not wait
        # for the cycle collector.
        self._table = weakref.ref(table)
        if row_optimizer is not None:
            row_optimizer = self.wrap_optimizer(
                get_optimizer("optimizer", row_optimizer)
            )
            # It trains this table alone, so no other table waits for it.
            table_optimizers.discard(row_optimizer)
        self.row_optimizer: keras.optimizers.Optimizer | None = row_optimizer
        self.slots = SlotOwner()
        self.in_layer = False  # that writes the table to Keras's files
        # Whether a model, or anybody, has asked the table for the hook.
        self.claimed = False
        self.wrapper: Callable[[], Any] = _none  # that takes the gradients
        self.model: Callable[[], Any] = _none  # that looks rows up
        self._recorded = False  # in a look-up
        # Rows before an eager lookup that took a recording tape for training,
        # until an optimizer follows; whether one ever did, or a warning.
        self._rows_before: int | None = None
        self._settled = False
        self._scaled_by_keras = False
        super().__init__(
            initializer="zeros",
            shape=(0, table.output_dim),
            dtype=table.dtype.name,
            trainable=True,
            autocast=False,
            name=_scope_name(name),
        )
        if self.row_optimizer is not None:
            self.row_optimizer.build_for_table(self)

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

    @property
    def shape(self) -> tf.TensorShape:
        """`[0, dim]`; `[rows, dim]` where Keras counts parameters."""
        table = self._table() if _private.counts_parameters() else None
        if table is None:
            return super().shape
        with tf.init_scope():
            return tf.TensorShape([int(table.size()), table.output_dim])

    def __copy__(self) -> "HookVariable":
        return self  # a table has one

    def __deepcopy__(self, memo: dict[int, Any]) -> "HookVariable":
        table = copy.deepcopy(self.table, memo)
        if id(self) not in memo:  # the copy of the table is made just now
            optimizer = copy.deepcopy(self.row_optimizer, memo)
            with tf.init_scope():
                hook = HookVariable(table, self.name, optimizer)
            hook.trainable = self.trainable
            hook.slots = self.slots.copy()
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
        # With this option Keras makes the gradient dense instead of assigning
        # it.
        self._check_plain(["gradient_accumulation_steps"])
        return True

    def infer_training(self) -> bool:
        """Returns what `training=None` means: whether a gradient tape records.

        Warns, once, if lookups that meant training this way have added rows and
        no optimizer has followed.
        """
        training = _private.tape_is_recording()
        if not training:
            self.check_followed()
        elif (
            not self._settled
            and self._rows_before is None
            and self.trainable
            and tf.executing_eagerly()
        ):
            self._rows_before = int(self.table.size())
        return training

    def follow(self) -> None:
        """Says that an optimizer applies gradients to the table."""
        if self._rows_before is not None:
            self._rows_before = None
            # A loop of the user's own, which may accumulate gradients between
            # any later calls.
            self._settled = True

    def check_followed(self) -> None:
        """Warns if rows were added by lookups that no optimizer followed.

        Call where somebody looks at what the table holds.
        """
        before = self._rows_before
        if (
            before is None
            or not tf.executing_eagerly()
            or _private.tape_is_recording()
            # One that may be about to make its first step.
            or not all(optimizer.built for optimizer in table_optimizers)
        ):
            return
        self._rows_before = None
        added = int(self.table.size()) - before
        if added > 0:
            self._settled = True
            warnings.warn(
                _NOT_FOLLOWED.format(table=self.table, added=added),
                stacklevel=3,
            )

    def manage(self, wrapper: keras.optimizers.Optimizer) -> None:
        """Records that `wrapper`, which trains tables, takes the gradients."""
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
            if all(optimizer.built for optimizer in table_optimizers):
                self._refuse_loss_scaling()

    def _refuse_loss_scaling(self) -> None:
        line = compile_line(self.model(), scaled=True)
        raise RuntimeError(
            _PLAIN_LOSS_SCALING.format(path=self.path, line=line)
        )

    def assign(self, value: Any) -> Any:
        """Trains the table by its own optimizer; refuses everything else.

        A plain Keras optimizer assigns the gradient of a variable whose
        `overwrite_with_gradient` is true to the variable.

        Raises:
            RuntimeError: The table has no optimizer of its own, the optimizer
                that assigns the gradient does something to it that cannot be
                honored here, or `value` is not a gradient.
        """
        if isinstance(value, tf.IndexedSlices):
            self._train(value)
            return value
        if getattr(value, "shape", None) == _IN_FILES.shape:
            return value
        raise RuntimeError(_ONLY_WEIGHTS.format(path=self.path))

    def _train(self, gradient: tf.IndexedSlices) -> None:
        if self.row_optimizer is None:
            line = compile_line(self.model())
            raise RuntimeError(
                _PLAIN_OPTIMIZER.format(path=self.path, line=line)
            )
        self._check_plain(_NOT_FOR_OWN)
        self.row_optimizer.apply([gradient], [self])

    def _check_plain(self, options: Iterable[str]) -> None:
        """Refuses a plain optimizer, if one is running, that has an option."""
        for optimizer in _private.running_optimizers():
            if getattr(optimizer, "takes_hooks", False):
                return
            given = [
                f"{option}={value}"
                for option in options
                if (value := getattr(optimizer, option, None))
            ]
            if given:
                raise RuntimeError(
                    _NOT_HONORED.format(
                        path=self.path,
                        optimizer=type(optimizer).__name__,
                        given=", ".join(given),
                        line=compile_line(self.model()),
                    )
                )

    # What Keras has a checkpoint call. It would assign a variable of several
    # replicas, and write a tensor without elements, which not all checkpoints
    # give back.
    def _serialize_to_tensors(self) -> dict[str, tf.Tensor]:
        return {}

    def _restore_from_tensors(self, restored_tensors: Any) -> Any:
        return self.value

    def _export_to_saved_model_graph(self, *_: Any, **__: Any) -> list[Any]:
        """Leaves the variable that saved lookups read to the table's part."""
        return []

    def _copy_trackable_to_cpu(self, object_map: Any) -> None:
        """Copies nothing for an asynchronous checkpoint: there is no content.

        Keras's own method makes a variable each time, which fails in the
        second save.
        """
        del object_map

    def __tf_tensor__(self, dtype: Any = None, name: Any = None) -> tf.Tensor:
        # Read in a graph, the rows would be those of the time of the trace, or
        # have no gradient.
        if not tf.executing_eagerly() or _private.tape_is_recording():
            raise RuntimeError(
                _NOT_DENSE.format(path=self.path, table=self.table)
            )
        return tf.convert_to_tensor(dense_view(self.table), dtype, name=name)

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        if _private.writes_legacy_file():
            return self.numpy()
        if _private.writes_file():
            return _IN_FILES if _private.walks_hooks() else self.numpy()
        return np.asarray(tf.convert_to_tensor(self).numpy(), dtype)

    def numpy(self) -> Any:
        """Refuses to be copied: this is what `get_weights` calls.

        Raises:
            RuntimeError: Always.
        """
        raise RuntimeError(_ONLY_WEIGHTS.format(path=self.path))

    def __repr__(self) -> str:
        return f"<HookVariable {self.path} of {self._table()!r}>"

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


# Keras's own operators read `value`.
_OPERATORS = (
    *("abs", "add", "floordiv", "ge", "getitem", "gt", "le", "lt", "matmul"),
    *("mod", "mul", "neg", "pow", "radd", "rfloordiv", "rmatmul", "rmod"),
    *("rmul", "rpow", "rsub", "rtruediv", "sub", "truediv"),
)


def _on_rows(name: str) -> Callable[..., Any]:
    def apply(self: HookVariable, *operands: Any) -> Any:
        return getattr(tf.convert_to_tensor(self), name)(*operands)

    return apply


for _name in _OPERATORS:
    setattr(HookVariable, f"__{_name}__", _on_rows(f"__{_name}__"))


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
