"""The op that gives sequences rows of another width, and its gradient."""

import tensorflow as tf

from lodestar._library import gen_ops
from lodestar._typing import Grads

sequence_reshape = gen_ops.lodestar_sequence_reshape


@tf.RegisterGradient("Lodestar>SequenceReshape")
def _sequence_reshape_gradient(
    op: tf.Operation, gradient: tf.Tensor, unused_splits_gradient: tf.Tensor
) -> Grads:
    values = op.inputs[0]
    return tf.reshape(gradient, tf.shape(values, out_type=tf.int64)), None
