"""The op of sequence pooling and its gradient."""

import tensorflow as tf

from lodestar._library import gen_ops


def sequence_pool(
    values: tf.Tensor,
    row_splits: tf.Tensor,
    combiner: str,
    pad_value: float,
) -> tuple[tf.Tensor, tf.Tensor]:
    """Pools rows `[N, ...]` by splits `[B + 1]`.

    Returns:
      The pooled rows `[B, ...]`, and for max the row of each first maximum
      `[B, ...]` (-1 in an empty sequence), else an empty vector.
    """
    return gen_ops.lodestar_sequence_pool(
        values=values,
        row_splits=row_splits,
        combiner=combiner,
        pad_value=pad_value,
    )


@tf.RegisterGradient("Lodestar>SequencePool")
def _sequence_pool_gradient(op, gradient, unused_index_gradient):
    values, row_splits = op.inputs
    values_gradient = gen_ops.lodestar_sequence_pool_gradient(
        gradient=gradient,
        row_splits=row_splits,
        index=op.outputs[1],
        num_rows=tf.shape(values, out_type=tf.int64)[0],
        combiner=op.get_attr("combiner").decode(),
    )
    return values_gradient, None


@tf.RegisterGradient("Lodestar>SequencePoolGradient")
def _sequence_pool_gradient_gradient(op, gradient):
    # The gradient is linear in its first input; for max it is a gather.
    _, row_splits, index, _ = op.inputs
    combiner = op.get_attr("combiner").decode()
    if combiner == "max":
        flat = tf.reshape(gradient, [tf.shape(gradient)[0], -1])
        rows = tf.reshape(index, [-1, tf.shape(flat)[1]])
        columns = tf.broadcast_to(
            tf.range(tf.shape(flat, out_type=tf.int64)[1]), tf.shape(rows)
        )
        picked = tf.gather_nd(
            flat, tf.stack([tf.maximum(rows, 0), columns], axis=-1)
        )
        picked = tf.where(rows < 0, tf.zeros_like(picked), picked)
        back = tf.reshape(picked, tf.shape(index))
    else:
        back, _ = sequence_pool(gradient, row_splits, combiner, 0.0)
    return back, None, None, None
