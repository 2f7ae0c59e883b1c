"""The op that reverses sequences and its gradient."""

import tensorflow as tf

from lodestar._library import gen_ops
from lodestar.ops.stand_ins import replaceable

sequence_reverse = replaceable(gen_ops.lodestar_sequence_reverse)


@tf.RegisterGradient("Lodestar>SequenceReverse")
def _sequence_reverse_gradient(op, gradient):
    return sequence_reverse(gradient, op.inputs[1]), None
