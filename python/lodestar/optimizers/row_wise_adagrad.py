"""Adagrad with one accumulator per row of a table."""

from typing import Any

import keras
from keras import ops


class RowWiseAdagrad(keras.optimizers.Adagrad):
    """The Keras class of `lodestar.optimizers.RowWiseAdagrad`.

    It has the constructor of Keras's Adagrad. Its `update_step` trains dense
    weights; the fused update trains rows.
    """

    def update_step(
        self, gradient: Any, variable: Any, learning_rate: Any
    ) -> None:
        """Updates a dense weight, with an accumulator per element."""
        rate = ops.cast(learning_rate, variable.dtype)
        gradient = ops.cast(gradient, variable.dtype)
        accumulator = self._accumulators[self._get_variable_index(variable)]
        self.assign_add(accumulator, ops.square(gradient))
        root = ops.sqrt(accumulator) + self.epsilon
        self.assign_sub(variable, rate * gradient / root)
