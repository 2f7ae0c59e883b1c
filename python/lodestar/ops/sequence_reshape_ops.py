"""The op that gives sequences rows of another width, and its gradient."""

import tensorflow as tf

from lodestar._library import gen_ops

sequence_reshape = gen_ops.lodestar_sequence_reshape


@tf.RegisterGradient("Lodestar>SequenceReshape")
def _sequence_reshape_gradient(op, gradient, unused_splits_gradient):
    values = op.inputs[0]
    return tf.reshape(gradient, tf.shape(values, out_type=tf.int64)), None
