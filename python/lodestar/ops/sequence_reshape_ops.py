"""The op that gives sequences rows of another width, and its gradient."""

import tensorflow as tf

from lodestar._library import gen_ops


def sequence_reshape(
    values: tf.Tensor, row_splits: tf.Tensor, new_dim: int
) -> tuple[tf.Tensor, tf.Tensor]:
    """Returns rows `[M, new_dim]` over the buffer of `values`, and splits.

    `values` is `[N, ...]`, `row_splits` int64 `[B + 1]`.
    """
    return gen_ops.lodestar_sequence_reshape(
        values=values, row_splits=row_splits, new_dim=new_dim
    )


@tf.RegisterGradient("Lodestar>SequenceReshape")
def _sequence_reshape_gradient(op, gradient, unused_splits_gradient):
    values = op.inputs[0]
    return tf.reshape(gradient, tf.shape(values, out_type=tf.int64)), None
