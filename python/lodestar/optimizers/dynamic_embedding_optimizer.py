"""The optimizer wrapper that sends sparse gradients to tables."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import keras
import tensorflow as tf

from lodestar import _private
from lodestar._library import gen_ops
from lodestar.embedding.hook_variable import HookVariable, as_hook
from lodestar.optimizers import gradients as gradients_lib
from lodestar.optimizers import row_optimizers
from lodestar.optimizers.gradients import Gradient

_NONFINITE = ("raise", "skip", "pass")


class _Split(NamedTuple):
    """Gradients of one apply, by where they go."""

    hooks: list[tuple[tf.IndexedSlices, HookVariable]]
    dense: list[tuple[Gradient, Any]]


@keras.saving.register_keras_serializable(package="lodestar")
class DynamicEmbeddingOptimizer(keras.optimizers.Optimizer):
    """Trains dynamic embeddings and dense weights with one Keras optimizer.

    Gradients of tables go to the tables' own fused update with the
    hyperparameters, schedule and step of `inner`; all others go to `inner`.
    Results are those of `inner` on a dense matrix of all rows, as far as its
    update leaves a row without a gradient alone; the others (momentum, Adam,
    weight decay) act on the rows of the step only.

    clipnorm, clipvalue, global_clipnorm (jointly over tables and dense
    weights), loss_scale_factor and weight_decay behave as in Keras, on the
    summed gradient of each id.

    >>> model.compile(
    ...     optimizer=lodestar.optimizers.DynamicEmbeddingOptimizer(
    ...         keras.optimizers.Adam(1e-3)
    ...     ),
    ...     loss="binary_crossentropy",
    ... )

    Args:
        inner: A Keras optimizer, or its name or config.
        nonfinite: What a NaN or infinity in a table's gradient does, looked
            for before any row of that table is written: `"raise"`, `"skip"`
            (the rows it is in), or `"pass"`.
        name: Optional name.

    Raises:
        NotImplementedError: While tracing the first step that has a table:
            `inner` has no row-wise update (SGD, Adagrad, Adam, AdamW and Ftrl
            have), averages its weights or accumulates gradients; or the strategy has
            several replicas.
        ValueError: `inner` is a LossScaleOptimizer, which belongs outside.
    """

    def __init__(
        self,
        inner: Any,
        *,
        nonfinite: str = "raise",
        name: str | None = None,
    ):
        inner = keras.optimizers.get(inner)
        if isinstance(
            inner,
            (DynamicEmbeddingOptimizer, keras.optimizers.LossScaleOptimizer),
        ):
            raise ValueError(
                f"`inner` is a {type(inner).__name__}, which cannot be "
                "wrapped. For loss scaling use lodestar.optimizers."
                "LossScaleOptimizer(DynamicEmbeddingOptimizer(...))."
            )
        if nonfinite not in _NONFINITE:
            raise ValueError(
                f"`nonfinite`={nonfinite!r} is not in {_NONFINITE}."
            )
        super().__init__(learning_rate=0.0, name=name)
        self.inner_optimizer = inner
        self.nonfinite = nonfinite

    @property
    def variables(self) -> list[keras.Variable]:
        """The variables of the inner optimizer."""
        return self.inner_optimizer.variables

    @property
    def iterations(self) -> Any:
        """The iterations of the inner optimizer, of the tables too."""
        return self.inner_optimizer.iterations

    @property
    def learning_rate(self) -> Any:
        """The learning rate of the inner optimizer."""
        return self.inner_optimizer.learning_rate

    @learning_rate.setter
    def learning_rate(self, learning_rate: Any) -> None:
        self.inner_optimizer.learning_rate = learning_rate

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
        for hook in map(as_hook, variables):
            if hook is None:
                continue
            row_optimizers.check_supported(
                hook.row_optimizer or self.inner_optimizer
            )
        dense = [v for v in variables if as_hook(v) is None]
        if dense:
            self.inner_optimizer.build(dense)
        # Assigning _trainable_variables here instead would make Keras track
        # the model's variables as the optimizer's own.
        super().build(variables)

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
            ValueError: There is no gradient at all.
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
        if not self.built:
            self.build(variables)
        split = self._split(grads, variables)
        if not split.hooks and all(g is None for g, _ in split.dense):
            raise ValueError("No gradients provided for any variable.")
        split = self._unscale_and_clip(split)
        # The tables first: `iterations` moves with the inner apply.
        self._apply_to_tables(split.hooks)
        if any(g is not None for g, _ in split.dense):
            self.inner_optimizer.apply(
                [g for g, _ in split.dense], [v for _, v in split.dense]
            )
        else:
            self.inner_optimizer.iterations.assign_add(1)

    def _split(self, grads: Sequence[Gradient], variables: list[Any]) -> _Split:
        split = _Split([], [])
        for gradient, variable in zip(grads, variables):
            hook = as_hook(variable)
            if hook is None:
                split.dense.append((gradient, variable))
            elif gradient is not None:
                split.hooks.append((gradient, hook))
        if (
            split.hooks
            and tf.distribute.get_strategy().num_replicas_in_sync > 1
        ):
            raise NotImplementedError(
                "Dynamic embeddings under a strategy of several replicas are "
                "not supported; train with one replica."
            )
        return split

    def _unscale_and_clip(self, split: _Split) -> _Split:
        """Does to the hooks' gradients what `inner` will do to the others.

        Only the joint norm of global_clipnorm needs both.
        """
        inner = self.inner_optimizer
        hooks, dense = split
        if not hooks:
            return split
        unscale = inner.loss_scale_factor
        if unscale is not None:
            hooks = [
                (gradients_lib.map_values(lambda g: g / unscale, g), h)
                for g, h in hooks
            ]
        if not (inner.clipnorm or inner.global_clipnorm or inner.clipvalue):
            return _Split(hooks, dense)
        hooks = [(gradients_lib.merge_duplicates(g), h) for g, h in hooks]
        if inner.clipnorm:
            hooks = [
                (gradients_lib.clip_by_norm(g, inner.clipnorm), h)
                for g, h in hooks
            ]
        elif inner.clipvalue:
            limit = inner.clipvalue
            hooks = [
                (
                    gradients_lib.map_values(
                        lambda g: tf.clip_by_value(g, -limit, limit), g
                    ),
                    h,
                )
                for g, h in hooks
            ]
        else:
            # The inner optimizer divides the dense ones by the loss scale
            # later; here their norm alone is needed without it.
            unscaled = [
                g if unscale is None else gradients_lib.scale(g, 1.0 / unscale)
                for g, _ in dense
            ]
            norm = gradients_lib.global_norm([g for g, _ in hooks] + unscaled)
            limit = inner.global_clipnorm
            factor = limit * tf.minimum(1.0 / norm, 1.0 / limit) + (norm - norm)
            hooks = [(gradients_lib.scale(g, factor), h) for g, h in hooks]
            # Their norm is then below the limit, and the inner optimizer's own
            # clipping leaves them alone.
            dense = [(gradients_lib.scale(g, factor), v) for g, v in dense]
        return _Split(hooks, dense)

    def _apply_to_tables(
        self, hooks: list[tuple[tf.IndexedSlices, HookVariable]]
    ) -> None:
        if not hooks:
            return
        step = tf.cast(
            tf.convert_to_tensor(self.inner_optimizer.iterations), tf.int64
        )
        updates: dict[Any, row_optimizers.RowUpdate] = {}
        for gradient, hook in hooks:
            optimizer = hook.row_optimizer or self.inner_optimizer
            decays = _private.uses_weight_decay(optimizer, hook)
            key = (id(optimizer), decays)
            if key not in updates:
                if optimizer is not self.inner_optimizer:
                    # Its schedule follows the wrapper's steps.
                    optimizer.iterations.assign(step)
                updates[key] = row_optimizers.row_update(
                    optimizer, optimizer.learning_rate, step, decays
                )
            update = updates[key]
            gen_ops.lodestar_embedding_apply(
                hook.table.resource_handle,
                tf.cast(gradient.indices, tf.int64),
                tf.cast(gradient.values, tf.float32),
                update.hyperparameters,
                step + 1,
                optimizer=update.optimizer,
                slot_inits=update.slot_inits,
                nonfinite=self.nonfinite,
            )

    def get_config(self) -> dict[str, Any]:
        """Returns the arguments; the inverse of `from_config`."""
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
        """Makes an optimizer of the same arguments."""
        config = dict(config)
        inner = keras.optimizers.deserialize(
            config.pop("inner"), custom_objects=custom_objects
        )
        return cls(inner, **config)
