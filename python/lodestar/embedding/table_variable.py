"""The Keras variable behind a table, which carries its gradient to the optimizer."""

import copy
import re
import warnings
import weakref
from collections.abc import Callable, Iterable, Mapping, MutableMapping
from typing import TYPE_CHECKING, Any, SupportsIndex

import keras
import numpy as np
import tensorflow as tf

from lodestar import _private
from lodestar._resource import SavedState
from lodestar.embedding import policies, table_store
from lodestar.embedding.dense_view import dense_view
from lodestar.embedding.eviction import OnEvict, check_on_evict
from lodestar.embedding.lookup_arguments import get_optimizer
from lodestar.embedding.slot_owner import SlotOwner
from lodestar.ops import lost_gradients
from lodestar.ops.compile_line import (
    awaits_first_step,
    compile_line,
    compiled_optimizer,
    trains_tables,
)

if TYPE_CHECKING:
    from lodestar.embedding.policies import Admission
    from lodestar.embedding.table_parts import TablePart
    from lodestar.embedding.workers import Workers

_PLAIN_OPTIMIZER = (
    "`{path}` is a dynamic embedding: its gradient is sparse over 64-bit ids, "
    "which this Keras optimizer cannot apply. Use the optimizer of the same "
    "name in lodestar.optimizers, or give the table its own optimizer "
    "(optimizer='adagrad'):\n{line}"
)
_PLAIN_LOSS_SCALING = (
    "`{path}` is a dynamic embedding, whose gradient is sparse over 64-bit "
    "ids. Under the mixed_float16 policy, `compile` puts Keras's "
    "LossScaleOptimizer around the optimizer, which would make the gradient "
    "dense. Use the optimizers of lodestar.optimizers instead:\n{line}"
)
_DENSE_GRADIENT = (
    "The gradient of a dynamic embedding is sparse over 64-bit ids and cannot "
    "be converted to a dense tensor, as tf.recompute_grad does: look ids up "
    "outside of it. In a custom loop, use the gradient's `values` and "
    "`indices`, and the `global_clipnorm` of lodestar.optimizers. Otherwise use "
    "an optimizer of lodestar.optimizers; the second line is for the "
    "mixed_float16 policy:"
    "\n{line}\n{scaled}"
)
_NOT_DENSE = (
    "`{path}` represents the rows of {table!r}, which are sparse over 64-bit "
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
    "rows. Pass jit_compile=False to model.compile, or set self.supports_jit = "
    "False in the layer that looks the table up."
)
_ONLY_WEIGHTS = (
    "`{path}` represents the rows of a table, which Keras does not count among "
    "the weights of a model: get_weights, set_weights and legacy .h5 files "
    "would lose them. Use model.save_weights('model.weights.h5') and "
    "load_weights, model.save('model.keras') or tf.train.Checkpoint, and "
    "lodestar.callbacks.EarlyStopping instead of "
    "keras.callbacks.EarlyStopping(restore_best_weights=True). The dense layers "
    "of the model have their own get_weights and set_weights."
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
    "which also clips, unscales and accumulates the gradients of "
    "tables:\n{line}"
)

# Placeholder for a table among the weights of a layer in Keras's files, which hold
# the table elsewhere. Copied weights have two dimensions.
_NO_ROWS = np.zeros([0], np.float32)

# Attribute of the raw variable that refers to its table. Gradient tapes report
# raw variables in `watched_variables()`.
_ATTRIBUTE = "_lodestar_table"


_NOT_FOLLOWED = (
    "{table!r} has {added} new rows from lookups under a gradient tape that no "
    "optimizer followed. Without `training`, a lookup under a tape counts as "
    "training and adds new ids. Pass training=False to the lookup, layer or "
    "model to only look at gradients, or training=True to keep the rows. This "
    "warning appears once per table."
)


def _scope_name(name: str) -> str:
    """Returns `name` in a form that a SavedModel accepts for a variable."""
    name = re.sub("[^A-Za-z0-9_.-]", "_", name)
    return name if name[:1].isalnum() else f"table{name}"


def _none() -> None:
    """A weak reference to nothing."""
    return None  # AutoGraph requires a return statement


class _Hook(_private.Saved, tf.Module):
    """Stands in checkpoints for the variable without elements of a SavedModel.

    A loaded SavedModel thus restores all its objects from a checkpoint.
    """

    def __init__(self) -> None:
        super().__init__(name="hook")

    def _tensors_to_save(self) -> dict[str, tf.Tensor]:
        return {}

    def _restore_tensors(self, saved: Mapping[str, tf.Tensor]) -> None:
        del saved

    def _capture_for_checkpoint(self, captures: Any) -> None:
        del captures


class _TableType(tf.types.experimental.TraceType):
    """The trace type of a table, which a tf.function receives as it is."""

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
    """A table as a Keras variable.

    Its value, of shape `[0, D]`, has no elements. Lookups read the value, so its
    gradient is the gradient of the table, with rows and ids. Keras assigns the gradient
    of a variable with `overwrite_with_gradient` to the variable, so an optimizer
    that does not know tables ends up in `assign`. `assign` refuses it while the step
    is traced, unless the table has its own optimizer. The optimizers of
    lodestar.optimizers handle tables before that.

    Readers of `layer.weights` get:

    | reader | gets |
    |---|---|
    | `shape`, as `summary` and `count_params` | `[rows, D]` |
    | TensorFlow, Keras and NumPy functions and operators | `dense_view(table)` |
    | the same under a gradient tape or in a graph | RuntimeError |
    | `get_weights`, legacy `.h5` files: copies for `assign` | RuntimeError |
    | Keras's other files | a placeholder; the file has the table |
    | `value` and `handle`, for tapes and exports | `[0, D]` |
    """

    # Set by lodestar.optimizers to its `wrap`.
    _wrap_optimizer: Callable[[Any], Any]
    output_dim: int
    _row_dtype: tf.DType
    _eviction: tuple[policies.Eviction, ...]
    _on_evict: OnEvict | None

    if TYPE_CHECKING:  # EmbeddingVariable, the only subclass, defines these.
        admission: Admission | None

        @property
        def _workers(self) -> Workers | None: ...
        @property
        def devices(self) -> tuple[str, ...] | None: ...
        @property
        def _parts(self) -> tuple[TablePart, ...]: ...

    def __init__(self, name: str, optimizer: Any = None):
        if optimizer is not None:
            optimizer = self._wrap_optimizer(
                get_optimizer("optimizer", optimizer)
            )
        # Keras's files refer to it by this attribute name.
        self.optimizer: keras.optimizers.Optimizer | None = optimizer
        self._slots = SlotOwner()
        self._hook = _Hook()
        self._table_name = name
        self._make_variable()
        self._finish()

    @property
    def on_evict(self) -> OnEvict | None:
        """Function that `evict` calls with the ids and rows it removed, or None."""
        return self._on_evict

    @on_evict.setter
    def on_evict(self, on_evict: OnEvict | None) -> None:
        self._on_evict = check_on_evict(on_evict, self._eviction)

    def __copy__(self) -> "TableVariable":
        return self  # a shallow copy would share everything

    def __deepcopy__(self, memo: dict[int, Any]) -> "TableVariable":
        memo[id(self)] = copied = object.__new__(type(self))
        for name in (
            *("output_dim", "_row_dtype", "_table_name", "_on_evict"),
            "_placement",
        ):
            setattr(copied, name, getattr(self, name))
        copied._make_variable()
        made: dict[str, Any] = vars(copied)
        for name, value in _private.copied_attributes(self).items():
            if name not in made:
                made[name] = copy.deepcopy(value, memo)
        copied.trainable = self.trainable
        copied._finish()
        return copied

    def __reduce_ex__(self, protocol: SupportsIndex) -> Any:
        raise TypeError(
            f"{self!r} cannot be pickled: its rows are outside of Python. Save it "
            "with tf.train.Checkpoint or lodestar.snapshot, or pickle the Keras "
            "model that holds it."
        )

    def _finish(self) -> None:
        """Registers the complete table or copy with others."""
        lost_gradients.record(self)
        if self.optimizer is not None:
            self.optimizer._build_for_table(self)

    def _make_variable(self) -> None:
        """Initializes the state that copies do not inherit."""
        # Whether the gradient was ever requested.
        self._claimed = False
        # The layers of Lodestar that look rows up in it.
        self._layers: weakref.WeakSet[Any] = weakref.WeakSet()
        # Weak references to the optimizer for the gradients and the calling model.
        self._wrapper: Callable[[], Any] = _none
        self._model: Callable[[], Any] = _none
        self._recorded = False  # whether a tape ever recorded a lookup
        # Rows before an eager lookup that inferred training from a tape, until
        # an optimizer follows; whether an optimizer or a warning ever followed.
        self._rows_before: int | None = None
        self._settled = False
        self._scaled_by_keras = False
        # Whether a lookup could not tell if it was in training, and only read.
        self._untold = False
        # The store of `_keep_in`, which is gone when the file is complete.
        self._file: weakref.ref[Any] | None = None
        # Type checkers see no __init__ in the first base.
        make: Any = _private.Variable.__init__
        # A path of two parts, like a layer's weight.
        with tf.init_scope(), keras.name_scope(_scope_name(self._table_name)):
            try:
                make(
                    self,
                    initializer="zeros",
                    shape=(0, self.output_dim),
                    dtype=self._row_dtype.name,
                    trainable=True,
                    autocast=False,
                    name="embeddings",
                )
            except ValueError as error:  # a function is traced again
                raise ValueError(
                    f"{self!r} is made inside a tf.function or a dataset "
                    "function, which would make a new one on every trace. Make "
                    "it outside, or only once."
                ) from error

    @property
    def name(self) -> str:
        """Name of the table."""
        return self._table_name

    @property
    def shape(self) -> tf.TensorShape:
        """The number of rows and the embedding dimension."""
        with tf.init_scope():
            return tf.TensorShape([int(self._count()), self.output_dim])

    def _count(self) -> tf.Tensor:
        raise NotImplementedError

    # By identity; Keras compares values.
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
        children: dict[str, Any] = {"hook": self._hook}
        if self.optimizer is not None:
            children["optimizer"] = self.optimizer
        return children

    @property
    def trainable(self) -> bool:
        """Whether optimizers train the rows; settable.

        If False, lookups do not count or add ids either, even in training. Compile the
        model again after a change, as with other Keras variables.
        """
        return bool(keras.Variable.trainable.fget(self))

    @trainable.setter
    def trainable(self, value: bool) -> None:
        keras.Variable.trainable.fset(self, value)

    @property
    def handle(self) -> tf.Tensor:
        """Handle of the value. Reading it requests the gradient."""
        self._claimed = True
        return super().handle

    @property
    def overwrite_with_gradient(self) -> bool:
        """Always True, so that Keras assigns the gradient."""
        # Keras reads this when it builds an optimizer's slots, in or before the
        # first step. It is the last chance to detect its loss scaling, which
        # makes gradients dense.
        if self._wrapper() is None:
            policy = keras.config.dtype_policy()
            self._scaled_by_keras |= policy.compute_dtype == "float16"
            if self._scaled_by_keras and self._recorded:
                self._refuse_loss_scaling()
        # With this option Keras makes the gradient dense and does not assign it.
        self._check_plain(["gradient_accumulation_steps"])
        return True

    def _infer_training(self) -> bool:
        """Returns the default of `training`: whether a gradient tape records.

        Warns once if lookups with this default have added rows and no optimizer has
        followed.
        """
        training = _private.tape_is_recording()
        if not training:
            self._untold |= _private.tape_may_record()
            self._check_followed()
        elif (
            not self._settled
            and self._rows_before is None
            and self.trainable
            and tf.executing_eagerly()
        ):
            self._rows_before = int(self._count())
        return training

    def _trains(self, training: bool | None) -> bool:
        """Whether a lookup counts and adds ids; None infers `training`.

        Nothing adds rows to a frozen table, or to a table of a frozen model.
        """
        if training is None:
            training = self._infer_training()
        if not (training and self.trainable):
            return False
        model = _private.model_that_is_called()
        return model is None or bool(model.trainable)

    def _follow(self) -> None:
        """Records that an optimizer applies gradients to the table."""
        if self._rows_before is not None:
            self._rows_before = None
            # A custom loop, which may accumulate gradients between later calls.
            self._settled = True

    def _check_followed(self) -> None:
        """Warns if lookups added rows and no optimizer followed.

        Call before the content of the table is read.
        """
        if not tf.executing_eagerly() or _private.tape_is_recording():
            return
        lost_gradients.warn_of_lost(self)
        before = self._rows_before
        if before is None or awaits_first_step(self._model()):
            return
        self._rows_before = None
        added = int(self._count()) - before
        if added > 0:
            self._settled = True
            warnings.warn(
                _NOT_FOLLOWED.format(table=self, added=added),
                stacklevel=3,
            )

    def _manage(self, wrapper: keras.optimizers.Optimizer) -> None:
        """Records that `wrapper`, which trains tables, handles the gradients."""
        self._claimed = True
        self._wrapper = weakref.ref(wrapper)

    def _record(self) -> None:
        """Records that a tape records a lookup; raises if loss scaling loses it."""
        self._recorded = True
        lost_gradients.record(self)
        if self._scaled_by_keras and self._wrapper() is None:
            if not awaits_first_step(self._model()):
                self._refuse_loss_scaling()

    def _refuse_loss_scaling(self) -> None:
        line = compile_line(self._model(), scaled=True)
        raise RuntimeError(
            _PLAIN_LOSS_SCALING.format(path=self.path, line=line)
        )

    def assign(self, value: Any) -> Any:
        """Trains the table with its own optimizer; refuses everything else.

        A plain Keras optimizer calls this with the gradient.

        Raises:
            RuntimeError: The table has no optimizer of its own, the calling
                optimizer has an option that cannot apply here, or `value` is not a
                gradient.
        """
        if isinstance(value, tf.IndexedSlices):
            self._train(value)
            return value
        if getattr(value, "shape", None) == _NO_ROWS.shape:
            return value
        raise RuntimeError(_ONLY_WEIGHTS.format(path=self.path))

    def _train(self, gradient: tf.IndexedSlices) -> None:
        if self.optimizer is None:
            line = compile_line(self._model())
            raise RuntimeError(
                _PLAIN_OPTIMIZER.format(path=self.path, line=line)
            )
        self._check_plain(_NOT_FOR_OWN)
        self.optimizer.apply([gradient], [self])

    def _check_plain(self, options: Iterable[str]) -> None:
        """Raises if the running or the model's optimizer sets one of `options`."""
        optimizer = _private.applying_optimizer()
        if optimizer is None:
            optimizer = compiled_optimizer(self._model())
        if optimizer is None or trains_tables(optimizer):
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
                    line=compile_line(self._model()),
                )
            )

    def _meet_model(self) -> None:
        """Checks the model and the running `fit` whose call looks rows up."""
        model = _private.model_that_is_called()
        self._model = _none if model is None else weakref.ref(model)
        if model is None:
            return
        if not tf.executing_eagerly() and model.jit_compile:
            raise RuntimeError(_NO_XLA.format(table=self))

    def __tf_tensor__(self, dtype: Any = None, name: Any = None) -> tf.Tensor:
        # A graph would freeze the rows of the trace, or have no gradient.
        if not tf.executing_eagerly() or _private.tape_may_record():
            raise RuntimeError(_NOT_DENSE.format(path=self.path, table=self))
        return tf.convert_to_tensor(dense_view(self), dtype, name=name)

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        if _private.file_may_lack_tables():
            return self.numpy()
        # Keras's files ask for an array of each weight of a layer, in the same way
        # as anyone else.
        return _NO_ROWS

    def __array_function__(
        self, function: Any, types: Any, args: Any, kwargs: Any
    ) -> Any:
        return function(*_with_rows(args), **_with_rows(kwargs))

    def __array_ufunc__(
        self, ufunc: Any, method: str, *inputs: Any, **kwargs: Any
    ) -> Any:
        return getattr(ufunc, method)(*_with_rows(inputs), **_with_rows(kwargs))

    def numpy(self) -> Any:
        """Raises RuntimeError instead of copying the rows, as `get_weights` would."""
        raise RuntimeError(_ONLY_WEIGHTS.format(path=self.path))

    def _keep_in(self, store: Any) -> None:
        """Records that a Keras file was written with, or loaded into, the table.

        A layer of Lodestar calls this; Keras then finds the table as an attribute.
        `store` is the same object for everything in a file.
        """
        try:
            self._file = weakref.ref(store)
        except TypeError:  # a dict
            self._file = None

    def _is_known_to(self, store: Any) -> bool:
        """Whether `_keep_in(store)` was called."""
        return self._file is not None and self._file() is store

    def save_own_variables(self, store: MutableMapping[str, Any]) -> None:
        """Writes the table to a Keras file."""
        if not self._is_known_to(store):
            self._keep_in(store)
            table_store.save_table(self, store)

    def load_own_variables(self, store: Mapping[str, Any]) -> None:
        """Loads what `save_own_variables` wrote."""
        if table_store.holds_table(store) or not self._is_known_to(store):
            table_store.load_table(self, store)
            self._keep_in(store)


def _with_rows(arguments: Any) -> Any:
    """Returns arguments of a NumPy function with the rows of tables."""
    return keras.tree.map_structure(
        lambda x: (
            tf.convert_to_tensor(x).numpy()
            if isinstance(x, TableVariable)
            else x
        ),
        arguments,
    )


# Keras's own operators read `value`.
_OPERATORS = (
    *("abs", "add", "floordiv", "ge", "gt", "le", "lt", "matmul"),
    *("mod", "mul", "neg", "pow", "radd", "rfloordiv", "rmatmul", "rmod"),
    *("rmul", "rpow", "rsub", "rtruediv", "sub", "truediv"),
)


def _on_rows(name: str) -> Callable[..., Any]:
    return lambda self, *operands: getattr(tf.convert_to_tensor(self), name)(
        *operands
    )


for _name in _OPERATORS:
    setattr(TableVariable, f"__{_name}__", _on_rows(f"__{_name}__"))


def _refuse_to_make_dense(value: tf.IndexedSlices, *_: Any, **__: Any) -> Any:
    """Raises where TensorFlow would fail on -1 rows."""
    shape = value.dense_shape
    static = None if shape is None else tf.get_static_value(shape)
    if static is not None and len(static) == 2 and static[0] == -1:
        lost_gradients.refuse_loops("A table")
        raise RuntimeError(
            _DENSE_GRADIENT.format(
                line=compile_line(), scaled=compile_line(scaled=True)
            )
        )
    return NotImplemented


# Runs before TensorFlow's own conversion, which has priority 100.
tf.register_tensor_conversion_function(
    tf.IndexedSlices, _refuse_to_make_dense, priority=50
)


def as_table(variable: Any) -> TableVariable | None:
    """Returns the table that `variable` is or is the value of, or None."""
    if isinstance(variable, TableVariable):
        return variable
    reference = getattr(variable, _ATTRIBUTE, None)
    return None if reference is None else reference()


def with_tables(variables: Iterable[Any]) -> list[Any]:
    """Returns variables, with tables in place of their values."""
    pairs = [(variable, as_table(variable)) for variable in variables]
    return [v if table is None else table for v, table in pairs]
