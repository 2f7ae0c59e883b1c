"""User-defined optimizers, modeled on the example in Keras's docs."""

import keras
import tensorflow as tf

ops = keras.ops


@keras.saving.register_keras_serializable("tests")
class Own(keras.optimizers.Optimizer):
    """Momentum, and a second slot that does not start with 0."""

    def __init__(self, learning_rate=0.1, beta=0.9, **kwargs):
        super().__init__(learning_rate=learning_rate, **kwargs)
        self.beta = beta

    def build(self, variables):
        if self.built:
            return
        super().build(variables)
        self.moments, self.scales = self.add_optimizer_variables(
            variables,
            ["moment", "scale"],
            ["zeros", keras.initializers.Constant(0.5)],
        )

    def update_step(self, gradient, variable, learning_rate):
        place = self._get_variable_index(variable)
        moment, scale = self.moments[place], self.scales[place]
        rate = ops.cast(learning_rate, variable.dtype)
        step = ops.cast(self.iterations + 1, variable.dtype)
        self.assign(
            moment, ops.add(ops.multiply(moment, self.beta), gradient) / step
        )
        self.assign_add(scale, ops.square(gradient) - 0.25 * scale)
        self.assign_sub(variable, rate * moment / (1.0 + ops.sqrt(scale)))

    def get_config(self):
        return {**super().get_config(), "beta": self.beta}


class OwnVariables(Own):
    """The same with methods of tf.Variable, and a slot by add_variable."""

    def build(self, variables):
        keras.optimizers.Optimizer.build(self, variables)
        self.moments, self.scales = [], []
        for variable in variables:
            self.moments.append(
                self.add_variable(
                    variable.shape, dtype=variable.dtype, name="moment"
                )
            )
            self.scales.append(
                self.add_variable_from_reference(
                    variable,
                    "scale",
                    lambda shape, dtype: tf.fill(shape, tf.cast(0.5, dtype)),
                )
            )

    def update_step(self, gradient, variable, learning_rate):
        place = self._get_variable_index(variable)
        moment, scale = self.moments[place], self.scales[place]
        step = tf.cast(self._iterations + 1, tf.float32)
        moment.assign((moment * self.beta + gradient) / step)
        scale.assign_add(gradient**2 - 0.25 * scale)
        variable.assign_sub(learning_rate * moment / (1.0 + scale**0.5))


class Count(keras.optimizers.Optimizer):
    """Adds 1 to a row and to its slot in each update."""

    def __init__(self, learning_rate=0.0, during=None, **kwargs):
        super().__init__(learning_rate=learning_rate, **kwargs)
        self.during = during

    def build(self, variables):
        super().build(variables)
        self.counts = self.add_optimizer_variables(variables, "count")

    def update_step(self, gradient, variable, learning_rate):
        if self.during is not None:
            self.during()
        self.assign_add(variable, tf.ones_like(gradient))
        self.assign_add(
            self.counts[self._get_variable_index(variable)],
            tf.ones_like(gradient),
        )


def unfused(cls):
    """Returns a subclass of an optimizer of Keras, which has no fused update."""

    class Unfused(cls):
        def update_step(self, *args):
            super().update_step(*args)

    return Unfused
