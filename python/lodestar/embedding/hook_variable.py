"""The trainable variable that carries a table's gradient to the optimizer."""

import weakref
from typing import Any

import keras
import tensorflow as tf

PLAIN_OPTIMIZER = (
    "`{path}` is a dynamic embedding: its gradient is sparse over 64-bit ids, "
    "and the optimizer would apply it to a variable without rows. Wrap the "
    "optimizer: model.compile(optimizer=lodestar.optimizers."
    "DynamicEmbeddingOptimizer(keras.optimizers.Adam(...)))"
)

# Where a hook is found again from the raw variable behind it: gradient tapes
# report raw variables in `watched_variables()`.
_ATTRIBUTE = "_lodestar_hook"


class HookVariable(keras.Variable):
    """Trainable variable of shape `[0, D]`; its gradient holds rows and ids.

    It has no elements, so it adds no parameters, and an optimizer that builds
    state for it builds empty state. Keras assigns the gradient itself to a
    variable whose `overwrite_with_gradient` is true; an optimizer that does
    not know about hooks therefore ends up in `assign`, which refuses it while
    the step is traced. The wrapper optimizer takes hooks out before that.
    """

    def __init__(self, table: Any, name: str):
        # Weak: the table owns the hook, and gigabytes of rows must not wait
        # for the cycle collector.
        self._table = weakref.ref(table)
        self.row_optimizer: keras.optimizers.Optimizer | None = None
        super().__init__(
            initializer="zeros",
            shape=(0, table.dim),
            dtype="float32",
            trainable=True,
            autocast=False,
            name=name,
        )

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

    # Keras calls this when the value is made, which is later than __init__
    # for a layer that is built in a stateless scope.
    def _initialize(self, value: Any) -> None:
        super()._initialize(value)
        setattr(self._value, _ATTRIBUTE, weakref.ref(self))
        self.table.track_hook_value(self._value)

    @property
    def overwrite_with_gradient(self) -> bool:
        """Always true; see the class."""
        return True

    def assign(self, value: Any) -> Any:
        """Assigns an empty value; a gradient is refused.

        Raises:
            RuntimeError: An optimizer tries to assign the table's gradient.
        """
        if isinstance(value, tf.IndexedSlices):
            raise RuntimeError(PLAIN_OPTIMIZER.format(path=self.path))
        return super().assign(value)


def as_hook(variable: Any) -> HookVariable | None:
    """Returns the hook that `variable` is or is the value of, or None."""
    if isinstance(variable, HookVariable):
        return variable
    reference = getattr(variable, _ATTRIBUTE, None)
    return None if reference is None else reference()
