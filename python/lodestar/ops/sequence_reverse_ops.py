"""The op that reverses sequences and its gradient."""

import tensorflow as tf

from lodestar._library import gen_ops
from lodestar.ops.stand_ins import replaceable


@replaceable
def sequence_reverse(values: tf.Tensor, row_splits: tf.Tensor) -> tf.Tensor:
    """Reverses the rows `[N, ...]` inside int64 splits `[B + 1]`."""
    return gen_ops.lodestar_sequence_reverse(
        values=values, row_splits=row_splits
    )


@tf.RegisterGradient("Lodestar>SequenceReverse")
def _sequence_reverse_gradient(op, gradient):
    return sequence_reverse(gradient, op.inputs[1]), None
