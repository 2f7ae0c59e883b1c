"""Dynamic loss scaling for models with tables."""

from collections.abc import Sequence
from typing import Any

import keras
import tensorflow as tf

from lodestar import _bases
from lodestar._arguments import explained
from lodestar.embedding.table_variable import TableVariable, with_tables
from lodestar.ops import lost_gradients
from lodestar.optimizers import gradients as gradients_lib
from lodestar.optimizers import replicas
from lodestar.optimizers.gradients import Gradient
from lodestar.optimizers.table_optimizer import TableOptimizer


@keras.saving.register_keras_serializable(package="lodestar")
class LossScaleOptimizer(_bases.LossScaleOptimizer):
    """`keras.optimizers.LossScaleOptimizer` for models with tables.

    Under the mixed_float16 policy, `compile` wraps other optimizers in Keras's
    class. That would make the gradients of tables dense, which fails when the step
    is traced, so use this class explicitly. A step with non-finite gradients
    changes neither tables nor weights.

    >>> optimizer = lodestar.optimizers.LossScaleOptimizer(
    ...     lodestar.optimizers.Adagrad(0.1)
    ... )
    >>> model.compile(optimizer, "binary_crossentropy")

    Args:
        inner_optimizer: One of `lodestar.optimizers`.
        initial_scale: The first loss scale.
        dynamic_growth_steps: Number of finite steps after which the scale doubles.
        name: Name of the optimizer.

    Raises:
        ValueError: If `inner_optimizer` does not train tables.
    """

    _trains_tables = True

    @explained()
    def __init__(
        self,
        inner_optimizer: TableOptimizer,
        initial_scale: float = 2.0**15,
        dynamic_growth_steps: int = 2000,
        name: str | None = None,
    ):
        if not isinstance(inner_optimizer, TableOptimizer):
            raise ValueError(
                "`inner_optimizer` must be one of lodestar.optimizers, got "
                f"{type(inner_optimizer).__name__}."
            )
        super().__init__(
            inner_optimizer, initial_scale, dynamic_growth_steps, name=name
        )

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.inner_optimizer!r})"

    def build(self, var_list: Sequence[Any]) -> None:
        """Creates the variables of this and the inner optimizer."""
        # Keras would build the inner one without tracking, and so not save the
        # variable that Nadam has besides its slots.
        self.inner_optimizer.build(var_list)
        super().build(var_list)

    def apply(
        self,
        grads: Sequence[Gradient],
        trainable_variables: Sequence[Any] | None = None,
    ) -> None:
        """Unscales the gradients and applies them if all are finite.

        Raises:
            ValueError: If there is not one gradient per variable.
        """
        if trainable_variables is None:
            variables = self.inner_optimizer._tables.variables
        else:
            variables = with_tables(trainable_variables)
            replicas.build(self, variables)
        gradients_lib.check_one_each(grads, variables)
        # Checked here, because replicas continue in other threads, which have no
        # lookups.
        lost_gradients.check(self.inner_optimizer, variables)
        # Keras does not unscale the gradient of a variable that it overwrites,
        # such as a table.
        inverse = 1.0 / tf.cast(
            tf.convert_to_tensor(self.dynamic_scale), tf.float32
        )
        grads = [
            gradients_lib.scale(gradients_lib.as_applied(g, v), inverse)
            if isinstance(v, TableVariable)
            else g
            for g, v in zip(grads, variables)
        ]
        super().apply(grads, trainable_variables)

    def check_finite(self, grads: Sequence[Gradient]) -> Any:
        """Returns whether all gradients, of all replicas, are finite."""
        finite = super().check_finite(
            [g.values if isinstance(g, tf.IndexedSlices) else g for g in grads]
        )
        if replicas.are_several():
            return tf.logical_not(replicas.any_of(tf.logical_not(finite)))
        return finite
