"""The op that takes a part of each sequence, and its gradient."""

import tensorflow as tf

from lodestar._library import gen_ops

sequence_slice = gen_ops.lodestar_sequence_slice


@tf.RegisterGradient("Lodestar>SequenceSlice")
def _sequence_slice_gradient(op, gradient, unused_splits_gradient):
    values, row_splits, offset, length = op.inputs
    values_gradient = gen_ops.lodestar_sequence_slice_gradient(
        gradient=gradient, row_splits=row_splits, offset=offset, length=length
    )
    values_gradient.set_shape(values.shape)
    return values_gradient, None, None, None


@tf.RegisterGradient("Lodestar>SequenceSliceGradient")
def _sequence_slice_gradient_gradient(op, gradient):
    back, _ = sequence_slice(gradient, *op.inputs[1:])
    return back, None, None, None
