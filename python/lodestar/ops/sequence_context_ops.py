"""The op of windows over sequences and its gradient."""

import tensorflow as tf

from lodestar._library import gen_ops
from lodestar._typing import Grads
from lodestar.ops.stand_ins import replaceable

sequence_context = replaceable(gen_ops.lodestar_sequence_context)


@tf.RegisterGradient("Lodestar>SequenceContext")
def _sequence_context_gradient(op: tf.Operation, gradient: tf.Tensor) -> Grads:
    values, row_splits, _ = op.inputs
    values_gradient = gen_ops.lodestar_sequence_context_gradient(
        gradient=gradient,
        row_splits=row_splits,
        start=op.get_attr("start"),
        size=op.get_attr("size"),
    )
    values_gradient.set_shape(values.shape)
    return values_gradient, None, None


@tf.RegisterGradient("Lodestar>SequenceContextGradient")
def _sequence_context_gradient_gradient(
    op: tf.Operation, gradient: tf.Tensor
) -> Grads:
    # The gradient is linear; its own is the forward op, padded with zeros.
    back = sequence_context(
        gradient,
        op.inputs[1],
        tf.zeros([], gradient.dtype),
        op.get_attr("start"),
        op.get_attr("size"),
    )
    return back, None
