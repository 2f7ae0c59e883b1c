"""Runs a Keras optimizer's own `update_step` on the rows of a step.

This is for optimizers without a fused update. Rows and their slots are gathered
as `[U, dim]` tensors, updated by `update_step` like a dense variable and its slots,
and written back. Rows that another writer changed in between are not overwritten:
they are gathered and updated again. So every update applies to the row's current
value, and none is lost.
"""

import functools
import threading
import weakref
from collections.abc import Iterator
from typing import Any, NamedTuple

import keras
import numpy as np
import tensorflow as tf

from lodestar import _private
from lodestar._library import gen_ops
from lodestar._resource import SharedResource
from lodestar.embedding.devices import first_gpu
from lodestar.embedding.table_variable import TableVariable
from lodestar.optimizers import gradients as gradients_lib

_MAX_SLOTS = 4  # RowStore::kMaxSlots.
_PREFIX = "replay:"  # Marks names of unfused optimizers in tables and files.


class NotRowWiseError(Exception):
    """Tells why an optimizer cannot be applied to the rows of a step."""


class RowTensor(_private.VariableStandIn):
    """Stand-in for a variable with as many rows as a step has.

    An optimizer creates slots for it and updates it. Unlike a variable, it keeps
    nothing between steps and has a separate value in each thread.
    """

    constraint = None
    trainable = True

    def __init__(self, name: str, dim: int):
        self.name = self.path = name
        super().__init__(f"{name}_{id(self)}")
        self._outside_of_steps = tf.TensorSpec([None, dim], tf.float32)
        self._here = threading.local()

    @property
    def value(self) -> tf.Tensor | tf.TensorSpec:
        """The rows of this thread's step."""
        return getattr(self._here, "value", self._outside_of_steps)

    @value.setter
    def value(self, value: tf.Tensor | None) -> None:
        self._here.value = self._outside_of_steps if value is None else value

    @property
    def dtype(self) -> tf.DType:
        """The dtype in which the table is updated."""
        return self.value.dtype

    @property
    def shape(self) -> tf.TensorShape:
        """`[U, dim]`, with an unknown U if it varies between steps."""
        return self.value.shape

    def __tf_tensor__(self, dtype: Any = None, name: str | None = None) -> Any:
        return tf.convert_to_tensor(self.value, dtype=dtype, name=name)

    # Methods of variables; other attributes are the tensor's.

    def read_value(self) -> tf.Tensor:
        """Returns the rows."""
        return self.value

    def assign(self, value: Any, *_: Any, **__: Any) -> "RowTensor":
        """Sets the rows."""
        value = tf.convert_to_tensor(value, dtype=self.dtype)
        if not value.shape.is_compatible_with(self.shape):
            raise ValueError(
                f"`{self.name}` must be assigned a tensor of shape {self.shape}, "
                f"got {value.shape}."
            )
        self.value = value
        return self

    def assign_add(self, delta: Any, *_: Any, **__: Any) -> "RowTensor":
        """Adds to the rows."""
        return self.assign(self.value + tf.cast(delta, self.dtype))

    def assign_sub(self, delta: Any, *_: Any, **__: Any) -> "RowTensor":
        """Subtracts from the rows."""
        return self.assign(self.value - tf.cast(delta, self.dtype))

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(self.value, name)

    def __repr__(self) -> str:
        return f"<RowTensor {self.name!r} {self.value!r}>"


def _forward(name: str) -> Any:
    def operator(self: RowTensor, *args: Any) -> Any:
        return getattr(self.value, name)(*args)

    return operator


# Python looks up operators in the class, without __getattr__.
_BINARY = "add sub mul truediv floordiv mod pow matmul".split()
for _name in (
    [f"__{name}__" for name in _BINARY]
    + [f"__r{name}__" for name in _BINARY]
    + [f"__{name}__" for name in "neg abs getitem lt le gt ge".split()]
):
    setattr(RowTensor, _name, _forward(_name))


class UnfusedUpdate(NamedTuple):
    """One step of an unfused optimizer on one table."""

    unfused: "UnfusedOptimizer"
    learning_rate: tf.Tensor
    weight_decay: float | None

    @property
    def optimizer(self) -> str:
        """The name of the optimizer in the table."""
        return self.unfused.name

    @property
    def slot_names(self) -> list[str]:
        """The names of the optimizer slots."""
        return self.unfused.slot_names


class UnfusedOptimizer:
    """A copy of an optimizer whose slots are in one table.

    In each step, the copy has the current iterations, learning rate and attributes
    of the original, but no variables. Raises NotRowWiseError if the optimizer has
    state other than slots with one number per number of a row, has more slots than a
    row can have, or updates a row depending on other rows.
    """

    def __init__(
        self, optimizer: keras.optimizers.Optimizer, table: TableVariable
    ):
        self._original = optimizer
        self._table = weakref.ref(table)
        self._dim = table.output_dim
        self._rows = RowTensor(table.name, self._dim)
        self._slots: list[RowTensor] = []
        self.slot_names: list[str] = []
        self.slot_inits: list[float] = []
        registered = keras.saving.get_registered_name(
            getattr(optimizer, "wrapped_class", type(optimizer))
        )
        self.name = _PREFIX + registered
        with tf.init_scope():
            self._copy = self._make_copy()
            self._check_copy()
            self._probe()

    @property
    def table(self) -> TableVariable | None:
        """The table, or None once it is deleted."""
        return self._table()

    def _make_copy(self) -> keras.optimizers.Optimizer:
        original, outer = self._original, self
        # `wrapped_class` of an optimizer from `wrap` does not know tables.
        original_class = getattr(original, "wrapped_class", type(original))

        class Copy(original_class):  # type: ignore[misc, valid-type]
            """The optimizer, with its slots in the table."""

            @property
            def iterations(self) -> Any:
                return original.iterations

            @property
            def learning_rate(self) -> Any:
                return original.learning_rate

            def add_variable_from_reference(
                self,
                reference_variable: Any,
                name: str | None = None,
                initializer: Any = "zeros",
            ) -> RowTensor:
                if reference_variable is not outer._rows:
                    raise NotRowWiseError(
                        f"it creates a slot `{name}` for {reference_variable}, "
                        "which is not one of the variables that it is built for"
                    )
                return outer._add_slot(name or "var", initializer)

            def add_variable(
                self,
                shape: Any,
                initializer: Any = "zeros",
                *_: Any,
                name: str | None = None,
                **__: Any,
            ) -> RowTensor:
                if tuple(shape) != tuple(outer._rows.shape):
                    raise NotRowWiseError(
                        f"its slot `{name}` must have the shape of the variable, "
                        f"one number per number of a row, got {tuple(shape)}"
                    )
                return outer._add_slot(name or "var", initializer)

        config = original_class.get_config(original)
        # The original applies these options to the gradients of tables.
        for option in (
            "gradient_accumulation_steps",
            "clipnorm",
            "clipvalue",
            "global_clipnorm",
            "loss_scale_factor",
        ):
            if option in config:
                config[option] = None
        # The copy reads the original's learning rate, which may not serialize.
        if not isinstance(config.get("learning_rate", 0.0), float):
            config["learning_rate"] = 0.1
        try:
            copy = Copy.from_config(config)
        except TypeError as error:
            raise NotRowWiseError(
                f"it cannot be copied with get_config and from_config ({error})"
            ) from error
        if not isinstance(copy, Copy):
            raise NotRowWiseError(
                "its from_config does not return the class that it is called on"
            )
        copy.gradient_accumulation_steps = None
        try:
            copy.build([self._rows])
        except NotRowWiseError:
            raise
        except Exception as error:
            raise NotRowWiseError(
                "its build fails for a variable with the shape of a step's rows, "
                f"{tuple(self._rows.shape)} ({type(error).__name__}: {error})"
            ) from error
        _private.share_counters(copy, original)
        return copy

    def _add_slot(self, name: str, initializer: Any) -> RowTensor:
        name = name.removeprefix(f"{self._rows.name}_")
        number, taken = 1, name
        while taken in self.slot_names:
            taken, number = f"{name}_{number}", number + 1
        slot = RowTensor(taken, self._dim)
        self.slot_names.append(taken)
        self._slots.append(slot)
        # New rows start with it at any time, so it must be one number.
        values = keras.initializers.get(initializer)
        if callable(values):
            values = values((8, self._dim), dtype="float32")
        values = np.unique(np.asarray(values))
        if values.size != 1:
            raise NotRowWiseError(
                f"its slot `{name}` must start with one number, got {initializer}"
            )
        self.slot_inits.append(float(values[0]))
        return slot

    def _check_copy(self) -> None:
        if len(self._slots) > _MAX_SLOTS:
            raise NotRowWiseError(
                f"it has {len(self._slots)} slots, {', '.join(self.slot_names)}, "
                f"but a row has at most {_MAX_SLOTS}"
            )
        for name, value in _own_attributes(self._copy):
            for part in _variables_in(value):
                raise NotRowWiseError(
                    f"its `{name}` is a variable of shape {tuple(part.shape)} "
                    "in addition to the slots"
                )

    def _follow_original(self) -> None:
        """Copies hyperparameters that were changed later or are not in config."""
        copied = vars(self._copy)
        for name, value in _own_attributes(self._original):
            if not list(_variables_in(value)) and not any(
                isinstance(part, RowTensor) for part in _parts(copied.get(name))
            ):
                setattr(self._copy, name, value)

    def _step(
        self,
        gradient: tf.Tensor,
        rows: tf.Tensor,
        slots: list[tf.Tensor],
        learning_rate: tf.Tensor,
        weight_decay: float | None = None,
    ) -> tuple[tf.Tensor, list[tf.Tensor]]:
        """Returns rows and slots after a step."""
        if rows.shape[0] == 0:
            return rows, slots  # keras.ops.add takes [0, dim] for a bias
        learning_rate = tf.cast(learning_rate, tf.float32)
        self._rows.value = rows
        for slot, value in zip(self._slots, slots, strict=True):
            slot.value = value
        try:
            if weight_decay:
                decayed = rows * weight_decay * learning_rate
                self._rows.assign_sub(decayed)
            self._copy.update_step(gradient, self._rows, learning_rate)
            return self._rows.value, [slot.value for slot in self._slots]
        finally:
            # Tensors of a graph must not outlive it here.
            for left in (self._rows, *self._slots):
                left.value = None

    def _probe(self) -> None:
        """Checks that three rows are updated as each would be alone."""
        dim = self._dim
        sizes = np.array([[1e-3], [1.0], [1e3]], np.float32)
        wave = np.sin(np.arange(3.0 * dim, dtype=np.float32) + 1.0)
        gradient = tf.cast(wave.reshape(3, dim) * sizes, tf.float32)
        rows = tf.cast(np.cos(wave).reshape(3, dim) * sizes[::-1], tf.float32)
        slots = [
            tf.constant(init, tf.float32, [3, dim]) for init in self.slot_inits
        ]
        rate = tf.constant(0.1)

        def result(part: slice) -> np.ndarray:
            after, slots_after = self._step(
                gradient[part], rows[part], [s[part] for s in slots], rate
            )
            return np.stack([after.numpy(), *(s.numpy() for s in slots_after)])

        self._follow_original()
        together = result(slice(None))
        if not np.array_equal(together, result(slice(None)), equal_nan=True):
            return  # Random updates cannot be compared.
        alone = [result(slice(row, row + 1)) for row in range(3)]
        if not np.allclose(
            together, np.concatenate(alone, 1), 1e-4, 1e-7, equal_nan=True
        ):
            raise NotRowWiseError(
                "its update_step updates a row depending on other rows of the "
                "variable"
            )

    def apply(
        self,
        table: SharedResource,
        update: UnfusedUpdate,
        ids: tf.Tensor,
        rows: tf.Tensor,
        next_step: tf.Tensor,
        nonfinite: str,
    ) -> Any:
        """Updates rows of `table` in one step; returns a tensor to wait for."""
        self._follow_original()
        handle = table.resource_handle
        names, dim = self.slot_names, self._dim
        gradient = gradients_lib.merge_duplicates(
            tf.IndexedSlices(rows, ids), first_gpu([table]) or "CPU"
        )

        def body(
            first: tf.Tensor,
            ids: tf.Tensor,
            shared: tf.Tensor,
            values: tf.Tensor,
        ) -> tuple[tf.Tensor, ...]:
            del first
            ids, shared, values, rows, slots, versions = (
                gen_ops.lodestar_embedding_gather_for_update(
                    handle,
                    ids,
                    shared,
                    values,
                    optimizer=self.name,
                    slot_names=names,
                    slot_inits=self.slot_inits,
                    nonfinite=nonfinite,
                )
            )
            rows, slots = self._step(
                tf.ensure_shape(values, [None, dim]),
                tf.ensure_shape(rows, [None, dim]),
                [
                    tf.ensure_shape(slot, [None, dim])
                    for slot in tf.unstack(slots, len(names))
                ],
                update.learning_rate,
                update.weight_decay,
            )
            changed = gen_ops.lodestar_embedding_assign_if_unchanged(
                handle,
                ids,
                shared,
                versions,
                rows,
                tf.stack(slots) if names else tf.zeros([0, tf.size(ids), dim]),
                next_step,
                optimizer=self.name,
                slot_names=names,
            )
            return (
                tf.constant(False),
                tf.boolean_mask(ids, changed),
                tf.boolean_mask(shared, changed),
                tf.boolean_mask(values, changed),
            )

        ids = gradient.indices
        left = tf.while_loop(
            lambda first, ids, *_: first | (tf.size(ids) > 0),
            body,
            (tf.constant(True), ids, tf.zeros_like(ids, tf.bool))
            + (gradient.values,),
            shape_invariants=(
                tf.TensorShape([]),
                tf.TensorShape([None]),
                tf.TensorShape([None]),
                tf.TensorShape([None, dim]),
            ),
        )
        return left[0]


@functools.cache
def _attributes_of_all() -> frozenset[str]:
    with tf.init_scope():
        return frozenset(vars(keras.optimizers.Optimizer(learning_rate=0.1)))


def _own_attributes(
    optimizer: keras.optimizers.Optimizer,
) -> list[tuple[str, Any]]:
    """Returns the attributes that not every optimizer has."""
    return [
        item
        for item in vars(optimizer).items()
        if item[0] not in _attributes_of_all()
    ]


def _parts(value: Any) -> list[Any]:
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list | tuple | set):
        return [part for item in value for part in _parts(item)]
    return [value]


def _variables_in(value: Any) -> Iterator[Any]:
    for part in _parts(value):
        if isinstance(part, tf.Variable | keras.Variable):
            yield part
