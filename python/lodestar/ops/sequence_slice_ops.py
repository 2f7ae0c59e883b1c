"""The op that takes a part of each sequence, and its gradient."""

import tensorflow as tf

from lodestar._library import gen_ops
from lodestar._typing import Grads

sequence_slice = gen_ops.lodestar_sequence_slice


@tf.RegisterGradient("Lodestar>SequenceSlice")
def _sequence_slice_gradient(
    op: tf.Operation, gradient: tf.Tensor, unused_splits_gradient: tf.Tensor
) -> Grads:
    values, row_splits, offset, length = op.inputs
    values_gradient = gen_ops.lodestar_sequence_slice_gradient(
        gradient=gradient, row_splits=row_splits, offset=offset, length=length
    )
    values_gradient.set_shape(values.shape)
    return values_gradient, None, None, None


@tf.RegisterGradient("Lodestar>SequenceSliceGradient")
def _sequence_slice_gradient_gradient(
    op: tf.Operation, gradient: tf.Tensor
) -> Grads:
    back, _ = sequence_slice(gradient, *op.inputs[1:])
    return back, None, None, None
