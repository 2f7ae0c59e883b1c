"""The op of sequence pooling and its gradient."""

import tensorflow as tf

from lodestar._library import gen_ops
from lodestar._typing import Grads
from lodestar.ops.stand_ins import replaceable

sequence_pool = replaceable(gen_ops.lodestar_sequence_pool)


def sequence_sums_of_rows(
    values: tf.Tensor, row_splits: tf.Tensor
) -> tf.Tensor:
    """Gives each row `[N, ...]` the sum of the rows of its sequence."""
    sums, index = sequence_pool(values, row_splits, tf.zeros([], values.dtype))
    return gen_ops.lodestar_sequence_pool_gradient(
        gradient=sums,
        row_splits=row_splits,
        index=index,
        num_rows=tf.shape(values, out_type=tf.int64)[0],
        combiner="sum",
    )


@tf.RegisterGradient("Lodestar>SequencePool")
def _sequence_pool_gradient(
    op: tf.Operation, gradient: tf.Tensor, unused_index_gradient: tf.Tensor
) -> Grads:
    values, row_splits, _ = op.inputs
    values_gradient = gen_ops.lodestar_sequence_pool_gradient(
        gradient=gradient,
        row_splits=row_splits,
        index=op.outputs[1],
        num_rows=tf.shape(values, out_type=tf.int64)[0],
        combiner=op.get_attr("combiner").decode(),
    )
    values_gradient.set_shape(values.shape)
    return values_gradient, None, None


@tf.RegisterGradient("Lodestar>SequencePoolGradient")
def _sequence_pool_gradient_gradient(
    op: tf.Operation, gradient: tf.Tensor
) -> Grads:
    # The gradient is linear in its first input; for max it is a gather.
    _, row_splits, index, _ = op.inputs
    combiner = op.get_attr("combiner").decode()
    zero = tf.zeros([], gradient.dtype)
    if combiner == "max":
        # Places in the flat gradient; empty sequences take the zero at its end.
        dim = tf.reduce_prod(tf.shape(gradient, out_type=tf.int64)[1:])
        flat = tf.concat([tf.reshape(gradient, [-1]), [zero]], 0)
        count = tf.size(index, out_type=tf.int64)
        columns = tf.reshape(
            tf.range(count) % tf.maximum(dim, 1), tf.shape(index)
        )
        places = tf.where(
            index < 0,
            tf.size(gradient, out_type=tf.int64),
            index * dim + columns,
        )
        back = tf.gather(flat, places)
    else:
        back, _ = sequence_pool(gradient, row_splits, zero, combiner)
    return back, None, None, None
