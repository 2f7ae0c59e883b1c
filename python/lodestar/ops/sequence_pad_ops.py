"""The ops between sequences and padded tensors, and their gradients."""

import tensorflow as tf

from lodestar._library import gen_ops
from lodestar._typing import Grads
from lodestar.ops.stand_ins import replaceable

sequence_pad = replaceable(gen_ops.lodestar_sequence_pad)
sequence_unpad = replaceable(gen_ops.lodestar_sequence_unpad)


def _pad_value_gradient(
    pad_value: tf.Tensor, lengths: tf.Tensor, gradient: tf.Tensor
) -> tf.Tensor:
    """Sums the gradient over the padded steps."""
    shape = tf.shape(gradient, out_type=tf.int64)
    inside = tf.sequence_mask(lengths, shape[1])
    # A step as a vector, so that the rank need not be known.
    dim = tf.reduce_prod(shape[2:])
    gradient = tf.reshape(gradient, [shape[0], shape[1], dim])
    if gradient.dtype.size == 2:
        gradient = tf.cast(gradient, tf.float32)
    outside = tf.where(inside[:, :, tf.newaxis], 0.0, gradient)
    sums = tf.reduce_sum(outside, axis=[0, 1])
    # Of a scalar pad_value one group of all, else a group for each number.
    groups = tf.size(pad_value, out_type=tf.int64)
    sums = tf.reshape(sums, [groups, dim // tf.maximum(groups, 1)])
    sums = tf.cast(tf.reduce_sum(sums, axis=1), pad_value.dtype)
    return tf.reshape(sums, tf.shape(pad_value))


@tf.RegisterGradient("Lodestar>SequencePad")
def _sequence_pad_gradient(
    op: tf.Operation, gradient: tf.Tensor, unused_lengths_gradient: tf.Tensor
) -> Grads:
    values, _, pad_value, _ = op.inputs
    lengths = op.outputs[1]
    # A gather from the padded rows gives IndexedSlices.
    gradient = tf.convert_to_tensor(gradient)
    values_gradient, _ = sequence_unpad(gradient, lengths)
    values_gradient.set_shape(values.shape)
    # An eager tape says what nobody asked for.
    skipped = getattr(op, "skip_input_indices", None) or ()
    if 2 in skipped:
        return values_gradient, None, None, None
    pad_gradient = _pad_value_gradient(pad_value, lengths, gradient)
    return values_gradient, None, pad_gradient, None


@tf.RegisterGradient("Lodestar>SequenceUnpad")
def _sequence_unpad_gradient(
    op: tf.Operation, gradient: tf.Tensor, unused_splits_gradient: tf.Tensor
) -> Grads:
    padded, _ = op.inputs
    padded_gradient, _ = sequence_pad(
        gradient,
        op.outputs[1],
        tf.zeros([], gradient.dtype),
        tf.shape(padded, out_type=tf.int64)[1],
    )
    padded_gradient.set_shape(padded.shape)
    return padded_gradient, None
