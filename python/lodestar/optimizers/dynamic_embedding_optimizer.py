"""The optimizer wrapper that sends sparse gradients to tables."""

import warnings
import weakref
from collections.abc import Sequence
from typing import Any, NamedTuple

import keras
import tensorflow as tf

from lodestar import _private
from lodestar._checks import check_choice
from lodestar.embedding import slot_owner, strategies, table_store, workers
from lodestar.embedding.embedding_variable import EmbeddingVariable
from lodestar.embedding.hook_variable import HookVariable, as_hook
from lodestar.embedding.initializers import warn_of_equal_starts
from lodestar.embedding.lookup_arguments import get_optimizer
from lodestar.ops import lost_gradients
from lodestar.ops.compile_line import wrappers
from lodestar.optimizers import gradients as gradients_lib
from lodestar.optimizers import replicas, row_optimizers
from lodestar.optimizers.gradients import Gradient
from lodestar.optimizers.replay import Replay, ReplayUpdate
from lodestar.optimizers.table_updates import (
    GradientSum,
    TableUpdate,
    apply_updates,
)

_NONFINITE = ("raise", "skip", "pass")
# As the update ops end their error: tf_ops/kernels/embedding/update_gradients.h.
_WHY_NONFINITE = (
    "The loss, or a gradient on its way to the table, was NaN or infinite. "
    "Look for NaN in labels, sample weights and other inputs, and for a "
    'learning rate that is too high. nonfinite="skip" of the optimizer leaves '
    "such rows out"
)
# What names the saved table of gradients that wait, by the table's place.
_SUM = "gradient_sum_{}_"


def _of_inner(name: str) -> property:
    """An option that Keras reads and sets on the outermost optimizer."""

    def get(self: Any) -> Any:
        inner = getattr(self, "inner_optimizer", None)
        return getattr(inner, name, None)

    # Keras's own __init__ sets it, too, before there is an inner optimizer.
    def set_(self: Any, value: Any) -> None:
        if hasattr(self, "inner_optimizer"):
            setattr(self.inner_optimizer, name, value)

    return property(get, set_, doc=f"`{name}` of the inner optimizer.")


class _Replays:
    """Replayed optimizers, one for each table; Keras would track a dict."""

    def __init__(self) -> None:
        self._members: dict[tuple[int, int], Replay] = {}

    def get(
        self, optimizer: keras.optimizers.Optimizer, hook: HookVariable
    ) -> Replay:
        """Returns that of `optimizer` on the table of `hook`."""
        key = (id(optimizer), id(hook))
        known = self._members.get(key)
        if known is None or known.hook is not hook:
            known = row_optimizers.make_replay(optimizer, hook)
            self._members[key] = known
        return known


class _Split(NamedTuple):
    """Gradients of one apply, by where they go."""

    hooks: list[tuple[tf.IndexedSlices, HookVariable]]
    dense: list[tuple[Gradient, Any]]


def _joined(splits: Sequence[_Split]) -> _Split:
    """Gradients of tables of all `splits`, and dense ones of the first."""
    parts: dict[int, list[tuple[tf.IndexedSlices, HookVariable]]] = {}
    for split in splits:
        for gradient, hook in split.hooks:
            parts.setdefault(id(hook), []).append((gradient, hook))
    hooks = [
        (replicas.concatenate([g for g, _ in pairs]), pairs[0][1])
        for pairs in parts.values()
    ]
    return _Split(hooks, splits[0].dense)


def _check_finite(gradient: tf.IndexedSlices, hook: HookVariable) -> tf.Tensor:
    return tf.debugging.check_numerics(
        gradients_lib.merge_duplicates(gradient).values,
        f"table '{hook.table.name}': the gradient is not finite; no row was "
        f"changed. {_WHY_NONFINITE}",
    )


@keras.saving.register_keras_serializable(package="lodestar")
class DynamicEmbeddingOptimizer(keras.optimizers.Optimizer):
    """Trains dynamic embeddings and dense weights with one Keras optimizer.

    Gradients of tables go to the tables' own fused update with the
    hyperparameters, schedule and step of `inner`, or through its `update_step`
    where it has no fused one; all others go to `inner`.
    Results are those of `inner` on a dense matrix of all rows, as far as its
    update leaves a row without a gradient alone; the others (momentum, Adam,
    weight decay) act on the rows of the step only.

    clipnorm, clipvalue, global_clipnorm (jointly over tables and dense
    weights), loss_scale_factor, weight_decay and gradient_accumulation_steps
    behave as in Keras, on the summed gradient of each id.

    >>> model.compile(
    ...     optimizer=lodestar.optimizers.DynamicEmbeddingOptimizer(
    ...         keras.optimizers.Adam(1e-3)
    ...     ),
    ...     loss="binary_crossentropy",
    ... )

    Args:
        inner: A Keras optimizer, or its name or config.
        nonfinite: What a NaN or infinity in a table's gradient does: `"raise"`
            before any table or variable is written, `"skip"` the rows it is
            in, or `"pass"`.
        name: Optional name.

    Raises:
        NotImplementedError: While tracing the first step that has a table:
            `inner` has no row-wise update (Adadelta, Adagrad, Adam, AdamW,
            Adamax, Ftrl, Lion, Nadam, RMSprop and SGD have, and optimizers
            of your own as far as docs/optimizers.md says), averages its
            weights, or accumulates gradients and clips them, or accumulates
            them in several replicas; or the strategy is none that tables are
            trained under.
        ValueError: `inner` is a LossScaleOptimizer, which belongs outside.
    """

    def __init__(
        self,
        inner: Any,
        *,
        nonfinite: str = "raise",
        name: str | None = None,
    ):
        inner = get_optimizer("inner", inner)
        if isinstance(
            inner,
            (DynamicEmbeddingOptimizer, keras.optimizers.LossScaleOptimizer),
        ):
            raise ValueError(
                f"`inner` is a {type(inner).__name__}, which cannot be "
                "wrapped. For loss scaling use lodestar.optimizers."
                "LossScaleOptimizer(DynamicEmbeddingOptimizer(...))."
            )
        check_choice("nonfinite", nonfinite, _NONFINITE)
        super().__init__(learning_rate=0.0, name=name)
        self.inner_optimizer = inner
        self.nonfinite = nonfinite
        self._made = slot_owner.now()
        # Optimizers with a product over steps, and their products.
        self._nadams: list[keras.optimizers.Optimizer] = []
        self._prepared: list[weakref.ref[HookVariable]] = []
        self._u_products: list[keras.Variable] = []
        wrappers.add(self)
        self._replays = _Replays()
        self._gradient_sums = tf.Module()
        self._gradient_sums.members = []

    takes_hooks = True

    clipnorm = _of_inner("clipnorm")
    clipvalue = _of_inner("clipvalue")
    global_clipnorm = _of_inner("global_clipnorm")
    loss_scale_factor = _of_inner("loss_scale_factor")
    weight_decay = _of_inner("weight_decay")
    learning_rate = _of_inner("learning_rate")

    @property
    def variables(self) -> list[keras.Variable]:
        """The variables of the inner optimizer, then the wrapper's own."""
        return self.inner_optimizer.variables + list(self._u_products)

    @property
    def iterations(self) -> Any:
        """The iterations of the inner optimizer, of the tables too."""
        return self.inner_optimizer.iterations

    def exclude_from_weight_decay(
        self, var_list: Any = None, var_names: Any = None
    ) -> None:
        """As the inner optimizer; `var_list` may hold hooks of tables."""
        self.inner_optimizer.exclude_from_weight_decay(var_list, var_names)

    def scale_loss(self, loss: Any) -> Any:
        """As the inner optimizer."""
        return self.inner_optimizer.scale_loss(loss)

    def finalize_variable_values(self, var_list: Sequence[Any]) -> None:
        """As the inner optimizer, for the dense variables."""
        self.inner_optimizer.finalize_variable_values(
            [v for v in var_list if as_hook(v) is None]
        )

    def build(self, variables: Sequence[Any]) -> None:
        """Makes the inner optimizer's variables for the dense `variables`."""
        if self.built:
            return
        hooks = [h for h in map(as_hook, variables) if h is not None]
        for hook in hooks:
            self._prepare(hook)
        warn_of_equal_starts([hook.table for hook in hooks])
        dense = [v for v in variables if as_hook(v) is None]
        if dense:
            self.inner_optimizer.build(dense)
        # Assigning _trainable_variables here instead would make Keras track
        # the model's variables as the optimizer's own.
        super().build(variables)

    def _prepare(self, hook: HookVariable) -> None:
        """Checks, and makes what the table needs beside its own rows."""
        hook.manage(self)
        self._prepared.append(weakref.ref(hook))
        optimizer = self._optimizer_of(hook)
        row_optimizers.check_supported(
            optimizer, own=optimizer is not self.inner_optimizer
        )
        if row_optimizers.is_replayed(optimizer):
            self._replays.get(optimizer, hook)
        elif row_optimizers.has_u_product(optimizer) and not any(
            known is optimizer for known in self._nadams
        ):
            self._nadams.append(optimizer)
            self._u_products.append(
                self.add_variable((), "ones", "float32", name="u_product")
            )
        if self.inner_optimizer.gradient_accumulation_steps:
            members = self._gradient_sums.members
            if not any(member.hook is hook for member in members):
                members.append(GradientSum(hook))

    def _optimizer_of(self, hook: HookVariable) -> keras.optimizers.Optimizer:
        return hook.row_optimizer or self.inner_optimizer

    def _take_over(self, hooks: Sequence[HookVariable], several: bool) -> None:
        """Makes the slots of tables those of the optimizers that train them."""
        new = [
            hook
            for hook in hooks
            if not hook.slots.is_known_to(self._optimizer_of(hook))
        ]
        if not new:
            return

        def take() -> None:
            slot_owner.take_over([self._claim(hook) for hook in new])

        if several:
            replicas.in_scope(take)
        else:
            with tf.init_scope():
                take()

    def _claim(self, hook: HookVariable) -> slot_owner.Claim:
        optimizer = self._optimizer_of(hook)
        if row_optimizers.is_replayed(optimizer):
            replay = self._replays.get(optimizer, hook)
            slots = (replay.name, replay.slot_names, replay.slot_inits)
        else:
            name, slot_inits = row_optimizers.fused_slots(optimizer)
            slots = (name, [], slot_inits)
        is_inner = optimizer is self.inner_optimizer
        return slot_owner.Claim(
            hook,
            optimizer,
            self._made if is_inner else 0,
            is_inner and self.inner_optimizer.built,
            *slots,
        )

    def apply_gradients(self, grads_and_vars: Any) -> Any:
        """As `apply`, for pairs; returns `iterations`."""
        gradients, variables = zip(*grads_and_vars)
        self.apply(gradients, variables)
        return self.iterations

    def apply(
        self,
        grads: Sequence[Gradient],
        trainable_variables: Sequence[Any] | None = None,
    ) -> None:
        """Updates tables and variables, and advances `iterations` by one.

        Args:
            grads: As `tape.gradient` gives them for `trainable_variables`.
            trainable_variables: Default: those the optimizer was built with.

        Raises:
            ValueError: There is no gradient at all, or not one a variable.
            NotImplementedError: As the class.
        """
        if not grads:
            return
        if trainable_variables is None:
            if not self.built:
                raise ValueError(
                    "`trainable_variables` is not given and the optimizer is "
                    "not built; give them, or call build(variables) first."
                )
            trainable_variables = self._trainable_variables
        variables = list(trainable_variables)
        several = replicas.are_several()
        if several and not self.built:
            replicas.in_scope(lambda: self.build(variables))
        elif not self.built:
            self.build(variables)
        lost_gradients.check(
            self, [v if as_hook(v) is None else as_hook(v) for v in variables]
        )
        split = self._split(grads, variables)
        self._take_over([hook for _, hook in split.hooks], several)
        if not split.hooks and all(g is None for g, _ in split.dense):
            raise ValueError("No gradients provided for any variable.")
        # The tables first: `iterations` moves with the inner apply, and what a
        # table refuses leaves the dense variables as they are.
        if several:
            applied, dense = self._meet_others(split)
        else:
            applied, dense = self._apply_first([split])
        with tf.control_dependencies(applied):
            if any(g is not None for g in dense):
                self.inner_optimizer.apply(dense, [v for _, v in split.dense])
            else:
                _private.raw_iterations(self.inner_optimizer).assign_add(1)

    def _meet_others(self, split: _Split) -> tuple[list[Any], list[Gradient]]:
        """`_apply_first` of all replicas, once; dense ones are yet to be summed.

        The inner optimizer sums over replicas, but after it has clipped.
        """
        strategies.check_can_accumulate(self.inner_optimizer)
        spread = workers.of_strategy()
        hooks = split.hooks
        if spread is not None:
            hooks = [(workers.gather(g), hook) for g, hook in hooks]
        dense = [g for g, _ in split.dense]
        clips = self._clips()
        if clips:
            dense = replicas.sums(dense)
        applied, clipped = replicas.merge(
            self._apply_first,
            _Split(hooks, [(g, v) for g, (_, v) in zip(dense, split.dense)]),
        )
        return applied, replicas.in_first(clipped) if clips else dense

    def _apply_first(
        self, splits: list[_Split]
    ) -> tuple[list[Any], list[Gradient]]:
        """Updates the tables with what all replicas have for them.

        Of several workers each replica has all of it already; this one
        updates its part.

        Returns what has then run, in a graph, and the dense gradients of the
        first replica, to be applied after it.
        """
        spread = workers.of_strategy()
        if spread is None:
            split = self._unscale_and_clip(_joined(splits))
            applied = self._apply_to_tables(split.hooks)
        else:
            split = self._unscale_and_clip(_joined(splits[:1]))
            checks = []
            if self.nonfinite == "raise":
                # Seen by all, or one alone would stop.
                checks = [_check_finite(g, hook) for g, hook in split.hooks]
            parts = [(spread.own_part(g), hook) for g, hook in split.hooks]
            with tf.control_dependencies(checks):
                applied = self._apply_to_tables(parts)
        return applied, [g for g, _ in split.dense]

    def _clips(self) -> bool:
        inner = self.inner_optimizer
        return bool(inner.clipnorm or inner.global_clipnorm or inner.clipvalue)

    def _split(self, grads: Sequence[Gradient], variables: list[Any]) -> _Split:
        gradients_lib.check_one_each(grads, variables)
        split = _Split([], [])
        for gradient, variable in zip(grads, variables):
            hook = as_hook(variable)
            if hook is None:
                split.dense.append((gradient, variable))
            elif gradient is not None:
                self._prepare(hook)
                split.hooks.append(
                    (gradients_lib.as_applied(gradient, hook), hook)
                )
        for _, hook in split.hooks:
            strategies.check_can_train(hook)
        return split

    def _unscale_and_clip(self, split: _Split) -> _Split:
        """Does to the hooks' gradients what `inner` will do to the others.

        Only the joint norm of global_clipnorm needs both.
        """
        inner = self.inner_optimizer
        if not split.hooks:
            return split
        gradients = [g for g, _ in split.hooks]
        dense = [g for g, _ in split.dense]
        unscale = inner.loss_scale_factor
        if unscale is not None:
            gradients = [
                gradients_lib.map_values(lambda g: g / unscale, g)
                for g in gradients
            ]
        if self._clips():
            gradients = [gradients_lib.merge_duplicates(g) for g in gradients]
        if inner.clipnorm:
            gradients = [
                gradients_lib.clip_by_norm(g, inner.clipnorm) for g in gradients
            ]
        elif inner.clipvalue:
            limit = inner.clipvalue
            gradients = [
                gradients_lib.map_values(
                    lambda g: tf.clip_by_value(g, -limit, limit), g
                )
                for g in gradients
            ]
        elif inner.global_clipnorm:
            # The inner optimizer divides the dense ones by the loss scale
            # later; here their norm alone is needed without it.
            unscaled = [
                g if unscale is None else gradients_lib.scale(g, 1.0 / unscale)
                for g in dense
            ]
            norm = gradients_lib.global_norm(gradients + unscaled)
            factor = gradients_lib.clip_factor(norm, inner.global_clipnorm)
            gradients = [gradients_lib.scale(g, factor) for g in gradients]
            # Their norm is then below the limit, and the inner optimizer's own
            # clipping leaves them alone.
            dense = [gradients_lib.scale(g, factor) for g in dense]
        return _Split(
            [(g, hook) for g, (_, hook) in zip(gradients, split.hooks)],
            [(g, variable) for g, (_, variable) in zip(dense, split.dense)],
        )

    def _apply_to_tables(
        self, hooks: list[tuple[tf.IndexedSlices, HookVariable]]
    ) -> list[Any]:
        """Returns what has run when all tables are updated, in a graph."""
        steps = self.inner_optimizer.gradient_accumulation_steps
        if not steps:
            return self._update_tables(hooks)
        members = self._gradient_sums.members
        added = apply_updates(
            [
                next(m for m in members if m.hook is hook).addition(
                    gradient, steps
                )
                for gradient, hook in hooks
            ],
            self.nonfinite,
        )

        def update() -> tf.Tensor:
            waiting = [m for m in members if m.hook is not None]
            means = [(m.mean(steps), m.hook) for m in waiting]
            sums = [m.sums for m in waiting]
            with tf.control_dependencies(self._update_tables(means, sums)):
                return tf.constant(True)

        calls = _private.raw_iterations(self.inner_optimizer) + 1
        with tf.control_dependencies(added):
            updated = tf.cond(
                tf.equal(calls % steps, 0), update, lambda: tf.constant(False)
            )
        return [] if tf.executing_eagerly() else [updated]

    def _update_tables(
        self,
        hooks: list[tuple[tf.IndexedSlices, HookVariable]],
        emptied: Sequence[EmbeddingVariable] = (),
    ) -> list[Any]:
        inner = self.inner_optimizer
        step = tf.cast(tf.convert_to_tensor(inner.iterations), tf.int64)
        products = [
            row_optimizers.next_u_product(
                optimizer, tf.convert_to_tensor(variable), step
            )
            for optimizer, variable in zip(self._nadams, self._u_products)
        ]
        updates: dict[Any, row_optimizers.RowUpdate] = {}
        update: row_optimizers.RowUpdate | ReplayUpdate
        seen: set[int] = set()
        applies = []
        for gradient, hook in hooks:
            optimizer = self._optimizer_of(hook)
            decays = _private.uses_weight_decay(optimizer, hook)
            if optimizer is not inner and id(optimizer) not in seen:
                # Its schedule follows the wrapper's steps.
                optimizer.iterations.assign(_private.raw_iterations(inner))
            seen.add(id(optimizer))
            key = (id(optimizer), decays)
            if row_optimizers.is_replayed(optimizer):
                update = ReplayUpdate(
                    self._replays.get(optimizer, hook),
                    row_optimizers.current_learning_rate(optimizer),
                    optimizer.weight_decay if decays else None,
                )
            elif key in updates:
                update = updates[key]
            else:
                u_product = [
                    product
                    for known, product in zip(self._nadams, products)
                    if known is optimizer
                ]
                update = updates[key] = row_optimizers.row_update(
                    optimizer, step, decays, *u_product
                )
            applies.append(TableUpdate(hook.table, gradient, update, step + 1))
        applied = apply_updates(applies, self.nonfinite, emptied)
        # A step that is refused leaves them as they are, too.
        with tf.control_dependencies(applied):
            for variable, product in zip(self._u_products, products):
                variable.assign(product)
        return applied

    def save_own_variables(self, store: Any) -> None:
        """Writes `variables`, and gradients that wait for their update.

        Warns of tables that no layer writes beside it.
        """
        hooks = [hook for ref in self._prepared if (hook := ref()) is not None]
        lost = [
            repr(hook.table)
            for hook in hooks
            if not hook.is_in_file(store)
        ]
        if lost:
            warnings.warn(
                f"Optimizer '{self.name}' trains {', '.join(lost)}, but the "
                "rows are not in the file that is written: no layer or model "
                "of Keras holds them. Make each an attribute of the model, or "
                "save a tf.train.Checkpoint.",
                stacklevel=2,
            )
        super().save_own_variables(store)
        for i, member in enumerate(self._gradient_sums.members):
            table_store.save_table(member.sums, store, _SUM.format(i))

    def load_own_variables(self, store: Any) -> None:
        own = {k: store[k] for k in store.keys() if k.isdigit()}
        super().load_own_variables(own)
        sums = [member.sums for member in self._gradient_sums.members]
        saved = 0
        while table_store.holds_table(store, _SUM.format(saved)):
            saved += 1
        if saved != len(sums):
            warnings.warn(
                f"Skipping the gradients that wait for an update: optimizer "
                f"'{self.name}' keeps them for {len(sums)} tables, whereas the "
                f"saved optimizer kept them for {saved}.",
                stacklevel=2,
            )
            return
        table_store.load_tables(
            sums, store, [_SUM.format(i) for i in range(saved)]
        )

    def get_config(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "inner": keras.optimizers.serialize(self.inner_optimizer),
            "nonfinite": self.nonfinite,
        }

    @classmethod
    def from_config(
        cls,
        config: dict[str, Any],
        custom_objects: dict[str, Any] | None = None,
    ) -> "DynamicEmbeddingOptimizer":
        config = dict(config)
        inner = keras.optimizers.deserialize(
            config.pop("inner"), custom_objects=custom_objects
        )
        return cls(inner, **config)
