"""The op of the softmax inside sequences and its gradient."""

import tensorflow as tf

from lodestar._library import gen_ops
from lodestar._typing import Grads
from lodestar.ops import sequence_pool_ops
from lodestar.ops.stand_ins import replaceable

sequence_softmax = replaceable(gen_ops.lodestar_sequence_softmax)


def _gradient_of_values(
    probabilities: tf.Tensor, gradient: tf.Tensor, row_splits: tf.Tensor
) -> tf.Tensor:
    return gen_ops.lodestar_sequence_softmax_gradient(
        probabilities=probabilities, gradient=gradient, row_splits=row_splits
    )


@tf.RegisterGradient("Lodestar>SequenceSoftmax")
def _sequence_softmax_gradient(op: tf.Operation, gradient: tf.Tensor) -> Grads:
    return _gradient_of_values(op.outputs[0], gradient, op.inputs[1]), None


@tf.RegisterGradient("Lodestar>SequenceSoftmaxGradient")
def _sequence_softmax_gradient_gradient(
    op: tf.Operation, upstream: tf.Tensor
) -> Grads:
    # The op is p * (g - S(p * g)), where S adds up each sequence and gives the
    # sum to each of its rows. In g it is its own transpose.
    p, g, row_splits = op.inputs

    def sums(x: tf.Tensor) -> tf.Tensor:
        return sequence_pool_ops.sequence_sums_of_rows(x, row_splits)

    in_p = upstream * (g - sums(p * g)) - g * sums(p * upstream)
    return in_p, _gradient_of_values(p, upstream, row_splits), None
