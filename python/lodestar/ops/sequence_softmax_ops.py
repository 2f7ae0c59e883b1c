"""The op of the softmax inside sequences and its gradient."""

import tensorflow as tf

from lodestar._library import gen_ops
from lodestar.ops import sequence_pool_ops
from lodestar.ops.stand_ins import replaceable

sequence_softmax = replaceable(gen_ops.lodestar_sequence_softmax)


def _gradient_of_values(probabilities, gradient, row_splits):
    return gen_ops.lodestar_sequence_softmax_gradient(
        probabilities=probabilities, gradient=gradient, row_splits=row_splits
    )


@tf.RegisterGradient("Lodestar>SequenceSoftmax")
def _sequence_softmax_gradient(op, gradient):
    return _gradient_of_values(op.outputs[0], gradient, op.inputs[1]), None


@tf.RegisterGradient("Lodestar>SequenceSoftmaxGradient")
def _sequence_softmax_gradient_gradient(op, upstream):
    # The op is p * (g - S(p * g)), where S adds up each sequence and gives the
    # sum to each of its rows. In g it is its own transpose.
    p, g, row_splits = op.inputs

    def sums(x):
        return sequence_pool_ops.sequence_sums_of_rows(x, row_splits)

    in_p = upstream * (g - sums(p * g)) - g * sums(p * upstream)
    return in_p, _gradient_of_values(p, upstream, row_splits), None
