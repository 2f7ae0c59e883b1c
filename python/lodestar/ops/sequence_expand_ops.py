"""The ops that repeat sequences or rows, and their gradients."""

import tensorflow as tf

from lodestar._library import gen_ops
from lodestar.ops import sequence_pool_ops
from lodestar.ops.stand_ins import replaceable


@replaceable
def sequence_expand(
    values: tf.Tensor, row_splits: tf.Tensor, ref_splits: tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor]:
    """Repeats each sequence of rows `[N, ...]`, by int64 splits `[U + 1]`.

    Returns:
        The rows `[M, ...]`, and the splits of a sequence for each repetition.
        If `ref_splits` has no units, `values` and `row_splits`.
    """
    return gen_ops.lodestar_sequence_expand(
        values=values, row_splits=row_splits, ref_splits=ref_splits
    )


@replaceable
def sequence_expand_as(values: tf.Tensor, row_splits: tf.Tensor) -> tf.Tensor:
    """Repeats each row of `[N, ...]` as int64 splits `[N + 1]` say."""
    return gen_ops.lodestar_sequence_expand_as(
        values=values, row_splits=row_splits
    )


@tf.RegisterGradient("Lodestar>SequenceExpand")
def _sequence_expand_gradient(op, gradient, unused_splits_gradient):
    values, row_splits, ref_splits = op.inputs
    values_gradient = gen_ops.lodestar_sequence_expand_gradient(
        gradient=gradient, row_splits=row_splits, ref_splits=ref_splits
    )
    values_gradient.set_shape(values.shape)
    return values_gradient, None, None


@tf.RegisterGradient("Lodestar>SequenceExpandGradient")
def _sequence_expand_gradient_gradient(op, gradient):
    upstream, row_splits, ref_splits = op.inputs
    back, _ = sequence_expand(gradient, row_splits, ref_splits)
    back.set_shape(upstream.shape)
    return back, None, None


@tf.RegisterGradient("Lodestar>SequenceExpandAs")
def _sequence_expand_as_gradient(op, gradient):
    values, row_splits = op.inputs
    values_gradient, _ = sequence_pool_ops.sequence_pool(
        gradient, row_splits, "sum", tf.zeros([], gradient.dtype)
    )
    values_gradient.set_shape(values.shape)
    return values_gradient, None
