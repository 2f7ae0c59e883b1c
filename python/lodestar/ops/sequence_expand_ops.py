"""The ops that repeat sequences or rows, and their gradients."""

import tensorflow as tf

from lodestar._library import gen_ops
from lodestar._typing import Grads
from lodestar.ops import sequence_pool_ops
from lodestar.ops.stand_ins import replaceable

sequence_expand = replaceable(gen_ops.lodestar_sequence_expand)
sequence_expand_as = replaceable(gen_ops.lodestar_sequence_expand_as)


@tf.RegisterGradient("Lodestar>SequenceExpand")
def _sequence_expand_gradient(
    op: tf.Operation, gradient: tf.Tensor, unused_splits_gradient: tf.Tensor
) -> Grads:
    values, row_splits, ref_splits = op.inputs
    values_gradient = gen_ops.lodestar_sequence_expand_gradient(
        gradient=gradient, row_splits=row_splits, ref_splits=ref_splits
    )
    values_gradient.set_shape(values.shape)
    return values_gradient, None, None


@tf.RegisterGradient("Lodestar>SequenceExpandGradient")
def _sequence_expand_gradient_gradient(
    op: tf.Operation, gradient: tf.Tensor
) -> Grads:
    upstream, row_splits, ref_splits = op.inputs
    back, _ = sequence_expand(gradient, row_splits, ref_splits)
    back.set_shape(upstream.shape)
    return back, None, None


@tf.RegisterGradient("Lodestar>SequenceExpandAs")
def _sequence_expand_as_gradient(
    op: tf.Operation, gradient: tf.Tensor
) -> Grads:
    values, row_splits = op.inputs
    values_gradient, _ = sequence_pool_ops.sequence_pool(
        gradient, row_splits, tf.zeros([], gradient.dtype)
    )
    values_gradient.set_shape(values.shape)
    return values_gradient, None
