"""Mixin that makes Keras optimizers train tables."""

import contextlib
import warnings
import weakref
from collections.abc import Mapping, MutableMapping, Sequence
from typing import Any, Literal, NamedTuple, TypeAlias, get_args

import keras
import tensorflow as tf

from lodestar import _bases, _private
from lodestar._checks import check_choice
from lodestar._reprs import optimizer_repr
from lodestar.embedding import slot_owner, strategies, table_store, workers
from lodestar.embedding.devices import first_gpu
from lodestar.embedding.embedding_variable import EmbeddingVariable
from lodestar.embedding.initializers import warn_of_equal_starts
from lodestar.embedding.table_variable import TableVariable, with_tables
from lodestar.ops import lost_gradients
from lodestar.optimizers import finite_gradients, replicas, row_optimizers
from lodestar.optimizers import gradients as gradients_lib
from lodestar.optimizers.gradients import Gradient, Total
from lodestar.optimizers.table_updates import (
    GradientSum,
    TableUpdate,
    apply_updates,
)
from lodestar.optimizers.unfused import UnfusedOptimizer, UnfusedUpdate

# What optimizers do with NaN and infinity in a gradient.
Nonfinite: TypeAlias = Literal["raise", "skip", "pass"]
# Key prefix of a saved sum of gradients, by the index of its table.
_SUM = "gradient_sum_{}_"


class _Split(NamedTuple):
    """Gradients of one apply, by destination."""

    tables: list[tuple[tf.IndexedSlices, TableVariable]]
    dense: list[tuple[Gradient, Any]]


def _joined(splits: Sequence[_Split]) -> _Split:
    """Joins the table gradients of all `splits`; dense ones are the first's."""
    parts: dict[int, list[tuple[tf.IndexedSlices, TableVariable]]] = {}
    for split in splits:
        for gradient, table in split.tables:
            parts.setdefault(id(table), []).append((gradient, table))
    tables = [
        (replicas.concatenate([g for g, _ in pairs]), pairs[0][1])
        for pairs in parts.values()
    ]
    return _Split(tables, splits[0].dense)


def _dense(variables: Sequence[Any]) -> list[Any]:
    """Returns the variables that are no tables."""
    return [v for v in variables if not isinstance(v, TableVariable)]


class _Tables:
    """State of an optimizer about its tables; Keras does not track it."""

    def __init__(self) -> None:
        self.made = slot_owner.now()
        self.variables: list[Any] = []  # Variables of `build`, with tables.
        self._unfused: dict[tuple[int, int], UnfusedOptimizer] = {}
        self._prepared: dict[int, weakref.ref[TableVariable]] = {}

    def unfused(
        self, optimizer: keras.optimizers.Optimizer, table: TableVariable
    ) -> UnfusedOptimizer:
        """Returns the unfused form of `optimizer` for `table`."""
        key = (id(optimizer), id(table))
        known = self._unfused.get(key)
        if known is None or known.table is not table:
            known = row_optimizers.make_unfused(optimizer, table)
            self._unfused[key] = known
        return known

    def add(self, table: TableVariable) -> None:
        """Adds a table that the optimizer trains."""
        self._prepared[id(table)] = weakref.ref(table)

    def alive(self) -> list[TableVariable]:
        """Returns the tables that still exist, in the order of `add`."""
        found = [reference() for reference in self._prepared.values()]
        return [table for table in found if table is not None]

    def __deepcopy__(self, memo: dict[int, Any]) -> "_Tables":
        return _Tables()  # A copy of an optimizer has trained no table.


def _warn_of_lost_rows(
    optimizer: str, file: "weakref.ref[Any]", tables: Sequence[TableVariable]
) -> None:
    """Warns of tables that were not written to a complete Keras file."""
    lost = [repr(table) for table in tables if table._file is not file]
    if lost:
        warnings.warn(
            f"Optimizer '{optimizer}' trains {', '.join(lost)}, but their rows "
            "are not in the file, because no Keras layer or model tracks them. "
            "Make each an attribute of the model, or save a "
            "tf.train.Checkpoint.",
            stacklevel=2,
        )


def check_nonfinite(nonfinite: Nonfinite) -> Nonfinite:
    """Returns `nonfinite`, or raises ValueError if it is invalid."""
    check_choice("nonfinite", nonfinite, get_args(Nonfinite))
    return nonfinite


class TableOptimizer(_bases.Optimizer):
    """Mixin that makes a Keras optimizer train tables.

    It must precede the Keras class: `class Adagrad(TableOptimizer,
    keras.optimizers.Adagrad)`. Gradients of tables are applied by the tables'
    fused update with the hyperparameters, schedule and step of this optimizer, or
    by its `update_step` if there is no fused update. Other gradients are applied
    by the Keras class.
    """

    _trains_tables = True

    def __init__(
        self, *args: Any, nonfinite: Nonfinite = "raise", **kwargs: Any
    ):
        super().__init__(*args, **kwargs)
        self._start(nonfinite)

    def _start(self, nonfinite: Nonfinite) -> None:
        """Adds state for tables to an initialized Keras optimizer."""
        self.nonfinite = check_nonfinite(nonfinite)
        self._tables = _Tables()
        self._gradient_sums = tf.Module()
        self._gradient_sums.members = []

    def build(self, variables: Sequence[Any]) -> None:
        """Creates the optimizer's variables for `variables`, which include tables."""
        if self.built:
            return
        variables = self._tables.variables = with_tables(variables)
        tables = [v for v in variables if isinstance(v, TableVariable)]
        for table in tables:
            self._check(table)
        warn_of_equal_starts(tables)
        super().build(_dense(variables))
        if isinstance(self, keras.optimizers.Nadam):
            # Keras's own is not accessible.
            self.u_product = self.add_variable(
                (), "ones", "float32", name="u_product"
            )
        for table in tables:
            self._prepare(table)

    def _build_for_table(self, table: TableVariable) -> None:
        """Builds the optimizer of one table, so that files can restore it."""
        self._check(table)
        self.build([])

    def _check(self, table: TableVariable) -> None:
        """Raises NotImplementedError if the table's rows cannot be trained."""
        own = table.optimizer is not None
        optimizer = self._optimizer_of(table)
        row_optimizers.check_supported(optimizer, own=own)
        if row_optimizers.is_unfused(optimizer):
            self._tables.unfused(optimizer, table)

    def _prepare(self, table: TableVariable) -> None:
        """Checks the table and creates state for it."""
        if table.optimizer is not self:
            table._manage(self)
        self._check(table)
        self._tables.add(table)
        if self.gradient_accumulation_steps:
            members = self._gradient_sums.members
            if not any(member.table is table for member in members):
                members.append(GradientSum(table))

    def _optimizer_of(self, table: TableVariable) -> keras.optimizers.Optimizer:
        return table.optimizer or self

    def _take_over(
        self, tables: Sequence[TableVariable], several: bool
    ) -> None:
        """Makes the optimizers of tables the owners of their slots."""
        new = [
            table
            for table in tables
            if not table._slots.is_known_to(self._optimizer_of(table))
        ]
        if not new:
            return

        def take() -> None:
            slot_owner.take_over([self._claim(table) for table in new])

        if several:
            replicas.in_scope(take)
        else:
            with tf.init_scope():
                take()

    def _claim(self, table: TableVariable) -> slot_owner.Claim:
        optimizer = self._optimizer_of(table)
        if row_optimizers.is_unfused(optimizer):
            unfused = self._tables.unfused(optimizer, table)
            slots = (unfused.name, unfused.slot_names, unfused.slot_inits)
        else:
            name, slot_inits = row_optimizers.fused_slots(optimizer)
            slots = (name, [], slot_inits)
        is_own = table.optimizer is not None
        trains_dense = bool(_dense(self._tables.variables))
        return slot_owner.Claim(
            table,
            optimizer,
            0 if is_own else self._tables.made,
            trains_dense and not is_own,
            *slots,
        )

    def apply(
        self,
        grads: Sequence[Gradient],
        trainable_variables: Sequence[Any] | None = None,
    ) -> None:
        """Updates tables and variables and increments `iterations`.

        `trainable_variables` defaults to the variables that `build` was called with.
        Raises ValueError if all gradients are None, or there is not one per
        variable, and NotImplementedError for an optimizer or strategy that cannot
        train tables.
        """
        if not grads:
            return
        if trainable_variables is None:
            if not self.built:
                raise ValueError(
                    "The optimizer is not built. Pass `trainable_variables`, or "
                    "call build(variables) first."
                )
            trainable_variables = self._tables.variables
        variables = with_tables(trainable_variables)
        several = replicas.are_several()
        replicas.build(self, variables)
        lost_gradients.check(self, variables)
        split = self._split(grads, variables)
        self._take_over([table for _, table in split.tables], several)
        if not split.tables and all(g is None for g, _ in split.dense):
            raise ValueError("No gradients provided for any variable.")
        # Tables first: Keras's apply increments `iterations`, and a step that a
        # table rejects must not change dense variables.
        if several:
            applied, dense = self._meet_others(split)
        else:
            applied, dense = self._apply_first([split])
        if self.nonfinite == "skip":
            dense = finite_gradients.zero_others(dense)
        with tf.control_dependencies(applied):
            if any(g is not None for g in dense):
                super().apply(dense, [v for _, v in split.dense])
            else:
                _private.raw_iterations(self).assign_add(1)

    def _meet_others(self, split: _Split) -> tuple[list[Any], list[Gradient]]:
        """Calls `_apply_first` once for all replicas.

        The returned dense gradients must still be summed over replicas, which
        Keras does, but only after clipping them.
        """
        strategies.check_can_accumulate(self)
        dense = [g for g, _ in split.dense]
        clips = self._clips()
        if clips:
            dense = replicas.sums(dense)
        split = _Split(
            split.tables, [(g, v) for g, (_, v) in zip(dense, split.dense)]
        )
        if workers.of_strategy() is None:
            applied, clipped = replicas.merge(self._apply_first, split)
        else:
            applied, clipped = self._apply_to_own_rows(split)
        return applied, replicas.in_first(clipped) if clips else dense

    def _apply_first(
        self, splits: list[_Split]
    ) -> tuple[list[Any], list[Gradient]]:
        """Updates the tables with the gradients of all replicas of a process.

        Returns the operations to wait for in a graph, and the dense gradients of the
        first replica, to apply after them.
        """
        joined = _joined(splits)
        pairs: list[Any] = [pair for split in splits for pair in split.dense]
        if self.global_clipnorm:
            # A joint norm would make all gradients NaN.
            pairs += joined.tables
        checks = finite_gradients.check_by(self, pairs)
        with tf.control_dependencies(checks):
            split = self._unscale_and_clip(joined)
            applied = self._apply_to_tables(split.tables)
        return checks + applied, [g for g, _ in split.dense]

    def _apply_to_own_rows(
        self, split: _Split
    ) -> tuple[list[Any], list[Gradient]]:
        """As `_apply_first`, with the rows of all replicas of several workers."""
        own = replicas.of_own_rows(split.tables)
        pairs: list[Any] = [*split.dense, *own]
        split = self._unscale_and_clip(
            split._replace(tables=own), replicas.sum_of
        )
        # A norm that overflows makes finite gradients NaN.
        pairs += split.tables * self._clips()
        checks = finite_gradients.check_by(self, pairs, in_all=True)

        def apply(splits: list[_Split]) -> list[Any]:
            with tf.control_dependencies(checks):
                applied = self._apply_to_tables(splits[0].tables)
            return checks + applied

        return replicas.merge(apply, split), [g for g, _ in split.dense]

    def _clips(self) -> bool:
        return bool(self.clipnorm or self.global_clipnorm or self.clipvalue)

    def _split(self, grads: Sequence[Gradient], variables: list[Any]) -> _Split:
        gradients_lib.check_one_each(grads, variables)
        split = _Split([], [])
        for gradient, variable in zip(grads, variables):
            if not isinstance(variable, TableVariable):
                split.dense.append((gradient, variable))
            elif gradient is not None:
                self._prepare(variable)
                gradient = gradients_lib.as_applied(gradient, variable)
                split.tables.append((gradient, variable))
        for _, table in split.tables:
            strategies.check_can_train(table)
        return split

    def _unscale_and_clip(
        self, split: _Split, total: Total = gradients_lib.here
    ) -> _Split:
        """Unscales and clips gradients of tables as Keras does dense ones.

        Dense gradients change only by global_clipnorm, whose norm is joint. `total`
        sums a number over the processes that have other rows of the tables.
        """
        if not split.tables:
            return split
        gradients = [g for g, _ in split.tables]
        dense = [g for g, _ in split.dense]
        unscale = self.loss_scale_factor
        if unscale is not None:
            gradients = [
                gradients_lib.map_values(lambda g: g / unscale, g)
                for g in gradients
            ]
        if self._clips():
            gradients = [
                gradients_lib.merge_duplicates(
                    g, first_gpu(table._parts) or "CPU"
                )
                for g, (_, table) in zip(gradients, split.tables)
            ]
        if self.clipnorm:
            gradients = [
                gradients_lib.clip_by_norm(g, self.clipnorm, total)
                for g in gradients
            ]
        elif self.clipvalue:
            limit = self.clipvalue
            gradients = [
                gradients_lib.map_values(
                    lambda g: tf.clip_by_value(g, -limit, limit), g
                )
                for g in gradients
            ]
        elif self.global_clipnorm:
            # Keras unscales the dense gradients later, but the norm must be of
            # unscaled ones.
            unscaled = [
                g if unscale is None else gradients_lib.scale(g, 1.0 / unscale)
                for g in dense
            ]
            norm = gradients_lib.norm_of_merged(
                gradients, total, [*map(gradients_lib.merged, unscaled)]
            )
            factor = gradients_lib.clip_factor(norm, self.global_clipnorm)
            gradients = [gradients_lib.scale(g, factor) for g in gradients]
            # The norm is now within the limit, so Keras's own clipping has no
            # effect.
            dense = [gradients_lib.scale(g, factor) for g in dense]
        return _Split(
            [(g, table) for g, (_, table) in zip(gradients, split.tables)],
            [(g, variable) for g, (_, variable) in zip(dense, split.dense)],
        )

    def _apply_to_tables(
        self, tables: list[tuple[tf.IndexedSlices, TableVariable]]
    ) -> list[Any]:
        """Updates all tables; in a graph, returns the operations to wait for."""
        steps = self.gradient_accumulation_steps
        if not steps:
            return self._update_tables(tables)
        members = self._gradient_sums.members
        added = apply_updates(
            [
                next(m for m in members if m.table is table).addition(
                    gradient, steps
                )
                for gradient, table in tables
            ],
            self.nonfinite,
        )

        def update() -> tf.Tensor:
            # Sums of a table that is frozen meanwhile wait until it is not.
            waiting = [
                m for m in members if m.table is not None and m.table.trainable
            ]
            means = [(m.mean(steps), m.table) for m in waiting]
            sums = [m.sums for m in waiting]
            with tf.control_dependencies(self._update_tables(means, sums)):
                return tf.constant(True)

        calls = _private.raw_iterations(self) + 1
        with tf.control_dependencies(added):
            updated = tf.cond(
                tf.equal(calls % steps, 0), update, lambda: tf.constant(False)
            )
        return [updated]

    def _update_tables(
        self,
        tables: list[tuple[tf.IndexedSlices, TableVariable]],
        emptied: Sequence[EmbeddingVariable] = (),
    ) -> list[Any]:
        step = tf.cast(tf.convert_to_tensor(self.iterations), tf.int64)
        optimizers = [self._optimizer_of(t) for t in self._tables.alive()]
        nadams = {
            id(optimizer): optimizer
            for optimizer in optimizers
            if row_optimizers.has_u_product(optimizer)
        }
        products = {
            key: row_optimizers.next_u_product(
                optimizer, tf.convert_to_tensor(optimizer.u_product), step
            )
            for key, optimizer in nadams.items()
        }
        updates: dict[Any, row_optimizers.RowUpdate] = {}
        update: row_optimizers.RowUpdate | UnfusedUpdate
        seen: set[int] = set()
        applies = []
        for gradient, table in tables:
            optimizer = self._optimizer_of(table)
            decays = _private.uses_weight_decay(optimizer, table)
            if optimizer is not self and id(optimizer) not in seen:
                # Its schedule follows the steps of this optimizer.
                optimizer.iterations.assign(_private.raw_iterations(self))
            seen.add(id(optimizer))
            key = (id(optimizer), decays)
            if row_optimizers.is_unfused(optimizer):
                update = UnfusedUpdate(
                    self._tables.unfused(optimizer, table),
                    row_optimizers.current_learning_rate(optimizer),
                    optimizer.weight_decay if decays else None,
                )
            elif key in updates:
                update = updates[key]
            else:
                update = updates[key] = row_optimizers.row_update(
                    optimizer, step, decays, products.get(id(optimizer))
                )
            applies.append(TableUpdate(table, gradient, update, step + 1))
        applied = apply_updates(applies, self.nonfinite, emptied)
        # A rejected step does not change them either.
        with tf.control_dependencies(applied):
            for owner, product in products.items():
                nadams[owner].u_product.assign(product)
        return applied

    def save_own_variables(self, store: MutableMapping[str, Any]) -> None:
        """Writes `variables` and the accumulated gradients of tables.

        Warns of tables that no layer writes to the same file.
        """
        # The layers that write the tables may follow, so ask when the file is
        # complete.
        with contextlib.suppress(TypeError):  # of a dict
            weakref.finalize(
                store,
                _warn_of_lost_rows,
                self.name,
                weakref.ref(store),
                self._tables.alive(),
            ).atexit = False
        super().save_own_variables(store)
        for i, member in enumerate(self._gradient_sums.members):
            table_store.save_table(member.sums, store, _SUM.format(i))

    def load_own_variables(self, store: Mapping[str, Any]) -> None:
        own = {k: store[k] for k in store.keys() if k.isdigit()}
        super().load_own_variables(own)
        sums = [member.sums for member in self._gradient_sums.members]
        saved = 0
        while table_store.holds_table(store, _SUM.format(saved)):
            saved += 1
        if saved != len(sums):
            warnings.warn(
                f"Accumulated gradients are not loaded: optimizer '{self.name}' "
                f"has them for {len(sums)} tables, but the saved optimizer for "
                f"{saved}.",
                stacklevel=2,
            )
            return
        table_store.load_tables(
            sums, store, [_SUM.format(i) for i in range(saved)]
        )

    def finalize_variable_values(self, var_list: Sequence[Any]) -> None:
        """Sets dense variables to their moving averages if `use_ema` is set."""
        super().finalize_variable_values(_dense(with_tables(var_list)))

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "nonfinite": self.nonfinite}

    def __repr__(self) -> str:
        """Shows the learning rate, and what differs from the defaults."""
        return optimizer_repr(self, getattr(self, "wrapped_class", type(self)))
