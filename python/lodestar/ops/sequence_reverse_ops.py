"""The op that reverses sequences and its gradient."""

import tensorflow as tf

from lodestar._library import gen_ops
from lodestar._typing import Grads
from lodestar.ops.stand_ins import replaceable

sequence_reverse = replaceable(gen_ops.lodestar_sequence_reverse)


@tf.RegisterGradient("Lodestar>SequenceReverse")
def _sequence_reverse_gradient(op: tf.Operation, gradient: tf.Tensor) -> Grads:
    return sequence_reverse(gradient, op.inputs[1]), None
