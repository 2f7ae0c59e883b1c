"""The op that joins batches sequence by sequence, and its gradient."""

import tensorflow as tf

from lodestar._library import gen_ops
from lodestar._typing import Grads

sequence_concat = gen_ops.lodestar_sequence_concat


@tf.RegisterGradient("Lodestar>SequenceConcat")
def _sequence_concat_gradient(
    op: tf.Operation, gradient: tf.Tensor, unused_splits_gradient: tf.Tensor
) -> Grads:
    count = op.get_attr("N")
    values, lods = op.inputs[:count], op.inputs[count:]
    num_levels = len(lods) // count
    gradients = gen_ops.lodestar_sequence_concat_gradient(
        gradient=gradient, row_splits=lods[num_levels - 1 :: num_levels]
    )
    for value, value_gradient in zip(values, gradients, strict=True):
        value_gradient.set_shape(value.shape)
    return (*gradients, *[None] * len(lods))


@tf.RegisterGradient("Lodestar>SequenceConcatGradient")
def _sequence_concat_gradient_gradient(
    op: tf.Operation, *gradients: tf.Tensor
) -> Grads:
    row_splits = op.inputs[1:]
    back, _ = sequence_concat(gradients, row_splits)
    return (back, *[None] * len(row_splits))
