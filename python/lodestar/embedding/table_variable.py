"""The trainable variable that carries a table's gradient to the optimizer."""

import contextlib
import copy
import functools
import re
import warnings
import weakref
from collections.abc import Callable, Iterable, Mapping
from typing import Any, SupportsIndex

import keras
import numpy as np
import tensorflow as tf

from lodestar import _frames, _private
from lodestar._resource import SavedState
from lodestar.embedding import table_store
from lodestar.embedding.dense_view import dense_view
from lodestar.embedding.fit_callbacks import refuse_callbacks
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
    "must skip tables: `if not isinstance(v, lodestar.EmbeddingVariable)`. To "
    "look at the rows, call table.export() outside of the tape and the "
    "tf.function."
)
_NO_XLA = (
    "{table!r} is looked up in a step that XLA compiles, which cannot look up "
    "rows. Pass jit_compile=False to model.compile."
)
_NO_CONFIG = (
    "keras.saving.serialize_keras_object makes no config of {table!r}: Keras "
    "takes a variable for its values. In a get_config of your own use "
    "table.get_config(), and in from_config "
    "lodestar.EmbeddingVariable.from_config(config)."
)
_NOT_WALKED = (
    "{table!r} is a variable of '{layer}', but in none of its attributes, nor in "
    "a list, tuple or dict there, which are all that Keras's files look into: "
    "they would lose its rows. Make it an attribute."
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

# Stands for a table among the weights of a layer in Keras's files, which hold the
# table itself elsewhere. Weights that are copied have two dimensions instead.
_IN_FILES = np.zeros([0], np.float32)

# Where a table is found again from the raw variable behind it: gradient tapes
# report raw variables in `watched_variables()`.
_ATTRIBUTE = "_lodestar_table"


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
    return name if name[:1].isalnum() else f"table{name}"


def _none() -> None:
    """Stands for a weak reference to nothing."""
    return None  # without which AutoGraph cannot convert this


@functools.cache
def _names_of_layers() -> frozenset[str]:
    return frozenset(dir(keras.layers.Layer()))


def _holds(layer: Any, table: Any) -> bool:
    """Whether Keras's files come to `table` from an attribute of `layer`."""
    for name in {*dir(layer)} - _names_of_layers():
        with contextlib.suppress(Exception):  # of a property, as Keras does
            if _contains(getattr(layer, name), table):
                return True
    return False


def _contains(value: Any, table: Any) -> bool:
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list | tuple):
        return any(_contains(part, table) for part in value)
    return value is table


class _FormerChild(_private.Saved, tf.Module):
    """What older checkpoints hold below a table: a variable without elements."""

    def __init__(self) -> None:
        super().__init__(name="former_child")

    def _tensors_to_save(self) -> dict[str, tf.Tensor]:
        return {}

    def _restore_tensors(self, saved: Mapping[str, tf.Tensor]) -> None:
        del saved

    def _capture_for_checkpoint(self, captures: Any) -> None:
        del captures


class _TableType(tf.types.experimental.TraceType):
    """A table as an argument of a tf.function, which takes it as it is."""

    def __init__(self, table: "TableVariable"):
        self._table = weakref.ref(table)

    def is_subtype_of(self, other: Any) -> bool:
        return self == other

    def most_specific_common_supertype(
        self, others: Any
    ) -> "_TableType | None":
        return self if all(self == other for other in others) else None

    def placeholder_value(self, placeholder_context: Any) -> Any:
        return self._table()

    def __eq__(self, other: Any) -> bool:
        return isinstance(other, _TableType) and self._table == other._table

    def __hash__(self) -> int:
        return hash(self._table)


class TableVariable(SavedState, _private.Variable):
    """A table as Keras sees it: a variable, found wherever Keras finds them.

    The value, of shape `[0, D]`, has no elements. Lookups read it, so that its
    gradient is that of the table, and holds rows and ids. Keras assigns the
    gradient itself to a variable whose `overwrite_with_gradient` is true; an
    optimizer that does not know about tables therefore ends up in `assign`,
    which refuses it while the step is traced, unless the table has an
    optimizer of its own. The optimizers of lodestar.optimizers take tables out
    before that.

    What a reader of `layer.weights` gets:

    | reader | gets |
    |---|---|
    | `shape`, as `summary` and `count_params` | `[rows, D]` |
    | TensorFlow, Keras and NumPy functions and operators | `dense_view(table)` |
    | the same under a gradient tape or in a graph | RuntimeError |
    | `get_weights`, legacy `.h5` files: copies for `assign` | RuntimeError |
    | Keras's other files | a placeholder; the file has the table |
    | `value` and `handle`, for tapes and exports | `[0, D]` |
    """

    # `lodestar.optimizers.wrap`, which that package sets.
    wrap_optimizer: Callable[[Any], Any]
    output_dim: int
    row_dtype: tf.DType

    def __init__(self, name: str, optimizer: Any = None):
        if optimizer is not None:
            optimizer = self.wrap_optimizer(
                get_optimizer("optimizer", optimizer)
            )
            # It trains this table alone, so no other table waits for it.
            table_optimizers.discard(optimizer)
        # Keras's files hold it by this attribute.
        self.optimizer: keras.optimizers.Optimizer | None = optimizer
        self.slots = SlotOwner()
        self._former_child = _FormerChild()
        self._table_name = name
        self._make_variable()
        self._finish()

    def __copy__(self) -> "TableVariable":
        return self  # the rows, and who trains them, would be shared

    def __deepcopy__(self, memo: dict[int, Any]) -> "TableVariable":
        memo[id(self)] = copied = object.__new__(type(self))
        for name in ("output_dim", "row_dtype", "_table_name"):
            setattr(copied, name, getattr(self, name))
        copied._make_variable()
        made: dict[str, Any] = vars(copied)  # type: ignore[assignment]
        for name, value in _private.copied_attributes(self).items():
            if name not in made:
                made[name] = copy.deepcopy(value, memo)
        copied.trainable = self.trainable
        copied._finish()
        return copied

    def __reduce_ex__(self, protocol: SupportsIndex) -> Any:
        raise TypeError(
            f"{self!r} cannot be pickled: its rows are not Python's. Save it "
            "with tf.train.Checkpoint or lodestar.snapshot, or pickle the Keras "
            "model that holds it."
        )

    def _finish(self) -> None:
        """Tells others of the table, or of a copy, that is complete."""
        lost_gradients.record(self)
        if self.optimizer is not None:
            self.optimizer.build_for_table(self)

    def _make_variable(self) -> None:
        """Makes what is the table's own, and no copy of it takes over."""
        # Whether anybody has asked for the gradient.
        self.claimed = False
        self.wrapper: Callable[[], Any] = _none  # that takes the gradients
        self.model: Callable[[], Any] = _none  # that looks rows up
        self._recorded = False  # in a lookup
        # Rows before an eager lookup that took a recording tape for training,
        # until an optimizer follows; whether one ever did, or a warning.
        self._rows_before: int | None = None
        self._settled = False
        self._scaled_by_keras = False
        # Whether a lookup was taken for reading, for want of knowing better.
        self.untold = False
        self._file: weakref.ref[Any] | None = None  # that holds the table
        # Its first base has none, as far as type checkers see.
        make: Any = _private.Variable.__init__
        # A path of two parts, as that of a weight of a layer.
        with tf.init_scope(), keras.name_scope(_scope_name(self._table_name)):
            try:
                make(
                    self,
                    initializer="zeros",
                    shape=(0, self.output_dim),
                    dtype=self.row_dtype.name,
                    trainable=True,
                    autocast=False,
                    name="embeddings",
                )
            except ValueError as error:  # of a function that is traced again
                raise ValueError(
                    f"{self!r} is made inside a tf.function, or a function of "
                    "a dataset, which would make another one each time that it "
                    "is traced. Make it outside, or once."
                ) from error

    @property
    def name(self) -> str:
        """Name of the table."""
        return self._table_name

    @property
    def shape(self) -> tf.TensorShape:
        """Number of rows, and numbers in a row."""
        with tf.init_scope():
            return tf.TensorShape([int(self._count()), self.output_dim])

    def _count(self) -> tf.Tensor:
        """The number of rows."""
        raise NotImplementedError

    # A table is one object; what Keras compares is values.
    __eq__ = object.__eq__
    __ne__ = object.__ne__
    __hash__ = object.__hash__

    def __tf_tracing_type__(self, context: Any) -> _TableType:
        return _TableType(self)

    def __getitem__(self, key: Any) -> Any:
        raise TypeError(
            f"{self!r} is not subscriptable: its rows have ids, not positions. "
            "Use table.lookup(ids)."
        )

    def _value_made(self, value: tf.Variable) -> None:
        setattr(value, _ATTRIBUTE, weakref.ref(self))

    def _saved_children(self, save_type: str) -> dict[str, Any]:
        children: dict[str, Any] = {"hook": self._former_child}
        if self.optimizer is not None:
            children["optimizer"] = self.optimizer
        return children

    @property
    def trainable(self) -> bool:
        """Whether optimizers train the rows; settable.

        If False, lookups that do not say whether they train add no ids either.
        """
        layer = _frames.layer_that_tracks()
        if layer is not None:
            # Keras asks no variable whether XLA can compile a model.
            layer.supports_jit = False
        return bool(keras.Variable.trainable.fget(self))

    @trainable.setter
    def trainable(self, value: bool) -> None:
        keras.Variable.trainable.fset(self, value)

    @property
    def handle(self) -> tf.Tensor:
        """Handle of the value: what asks for the gradient reads it."""
        self.claimed = True
        return super().handle

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
            self.untold |= _private.tape_may_record()
            self.check_followed()
        elif (
            not self._settled
            and self._rows_before is None
            and self.trainable
            and tf.executing_eagerly()
        ):
            self._rows_before = int(self._count())
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
        added = int(self._count()) - before
        if added > 0:
            self._settled = True
            warnings.warn(
                _NOT_FOLLOWED.format(table=self, added=added),
                stacklevel=3,
            )

    def manage(self, wrapper: keras.optimizers.Optimizer) -> None:
        """Records that `wrapper`, which trains tables, takes the gradients."""
        self.claimed = True
        self.wrapper = weakref.ref(wrapper)

    def record(self) -> None:
        """Says that a gradient tape records a lookup.

        Raises:
            RuntimeError: Keras's own optimizer and loss scaling wait for the
                gradient, and no wrapper does.
        """
        self._recorded = True
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
        if self.optimizer is None:
            line = compile_line(self.model())
            raise RuntimeError(
                _PLAIN_OPTIMIZER.format(path=self.path, line=line)
            )
        self._check_plain(_NOT_FOR_OWN)
        self.optimizer.apply([gradient], [self])

    def _check_plain(self, options: Iterable[str]) -> None:
        """Refuses a plain optimizer, if one is running, that has an option."""
        for optimizer in _frames.running_optimizers():
            if getattr(optimizer, "trains_tables", False):
                return
            given = [
                f"{option}={getattr(optimizer, option)}"
                for option in options
                if getattr(optimizer, option, None)
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

    def meet_model(self) -> None:
        """Looks at the model whose call looks rows up, if there is one.

        Raises:
            RuntimeError: `fit` has begun with a callback that loses rows, or
                XLA compiles the step.
        """
        model = _private.model_that_is_called()
        self.model = _none if model is None else weakref.ref(model)
        if model is None:
            return
        refuse_callbacks()
        if not tf.executing_eagerly() and model.jit_compile:
            raise RuntimeError(_NO_XLA.format(table=self))

    def __tf_tensor__(self, dtype: Any = None, name: Any = None) -> tf.Tensor:
        # Read in a graph, the rows would be those of the time of the trace, or
        # have no gradient.
        if not tf.executing_eagerly() or _private.tape_may_record():
            raise RuntimeError(_NOT_DENSE.format(path=self.path, table=self))
        return tf.convert_to_tensor(dense_view(self), dtype, name=name)

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        layer = _frames.layer_in_file()
        if layer is not None and _private.files_hold_variables():
            if not _holds(layer, self):
                raise RuntimeError(
                    _NOT_WALKED.format(table=self, layer=layer.name)
                )
            return _IN_FILES
        if layer is not None or _private.writes_legacy_file():
            return self.numpy()
        if _frames.serializes_object():
            raise RuntimeError(_NO_CONFIG.format(table=self))
        return np.asarray(tf.convert_to_tensor(self).numpy(), dtype)

    def numpy(self) -> Any:
        """Refuses to be copied: this is what `get_weights` calls.

        Raises:
            RuntimeError: Always.
        """
        raise RuntimeError(_ONLY_WEIGHTS.format(path=self.path))

    # What Keras calls for `.keras` and `.weights.h5` files.

    def keep_in(self, store: Any) -> None:
        """Says that the table was written to a file of Keras, or read from it.

        A layer of Lodestar does so itself; then Keras comes to the table as an
        attribute. `store` is one object for all that a file holds.
        """
        try:
            self._file = weakref.ref(store)
        except TypeError:  # a dict
            self._file = None

    def is_known_to(self, store: Any) -> bool:
        """Whether `keep_in(store)` was called."""
        return self._file is not None and self._file() is store

    def is_in_file(self, store: Any) -> bool:
        """Whether the file that is written holds the table, as far as known."""
        model = _frames.model_in_file() or self.model()
        return self.is_known_to(store) or (
            model is not None and any(v is self for v in model.variables)
        )

    def save_own_variables(self, store: Any) -> None:
        """Writes the table."""
        if not self.is_known_to(store):
            self.keep_in(store)
            table_store.save_table(self, store)

    def load_own_variables(self, store: Any) -> None:
        """Reads what `save_own_variables` wrote.

        Raises:
            ValueError: The file has no such table, or a damaged one.
        """
        if table_store.holds_table(store) or not self.is_known_to(store):
            table_store.load_table(self, store)
            self.keep_in(store)


# Keras's own operators read `value`.
_OPERATORS = (
    *("abs", "add", "floordiv", "ge", "gt", "le", "lt", "matmul"),
    *("mod", "mul", "neg", "pow", "radd", "rfloordiv", "rmatmul", "rmod"),
    *("rmul", "rpow", "rsub", "rtruediv", "sub", "truediv"),
)


def _on_rows(name: str) -> Callable[..., Any]:
    def apply(self: TableVariable, *operands: Any) -> Any:
        return getattr(tf.convert_to_tensor(self), name)(*operands)

    return apply


for _name in _OPERATORS:
    setattr(TableVariable, f"__{_name}__", _on_rows(f"__{_name}__"))


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


def as_table(variable: Any) -> TableVariable | None:
    """Returns the table that `variable` is or is the value of, or None."""
    if isinstance(variable, TableVariable):
        return variable
    reference = getattr(variable, _ATTRIBUTE, None)
    return None if reference is None else reference()
