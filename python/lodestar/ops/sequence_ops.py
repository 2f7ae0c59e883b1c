"""The ops on sequences of rows, and their gradients."""

import tensorflow as tf

from lodestar._library import gen_ops
from lodestar._typing import Grads
from lodestar.ops.stand_ins import replaceable

sequence_pool = replaceable(gen_ops.lodestar_sequence_pool)
sequence_expand = replaceable(gen_ops.lodestar_sequence_expand)
sequence_expand_as = replaceable(gen_ops.lodestar_sequence_expand_as)
sequence_concat = gen_ops.lodestar_sequence_concat
sequence_context = replaceable(gen_ops.lodestar_sequence_context)
sequence_pad = replaceable(gen_ops.lodestar_sequence_pad)
sequence_unpad = replaceable(gen_ops.lodestar_sequence_unpad)
sequence_softmax = replaceable(gen_ops.lodestar_sequence_softmax)


def sequence_sums_of_rows(
    values: tf.Tensor, row_splits: tf.Tensor
) -> tf.Tensor:
    """Replaces each row `[N, ...]` by the sum of its sequence."""
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
        # Indices into the flat gradient; empty sequences use the zero at its end.
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
    values_gradient, _ = sequence_pool(
        gradient, row_splits, tf.zeros([], gradient.dtype)
    )
    values_gradient.set_shape(values.shape)
    return values_gradient, None


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


def _pad_value_gradient(
    pad_value: tf.Tensor, lengths: tf.Tensor, gradient: tf.Tensor
) -> tf.Tensor:
    """Sums the gradient over the padded steps."""
    shape = tf.shape(gradient, out_type=tf.int64)
    inside = tf.sequence_mask(lengths, shape[1])
    # A step as a vector, so that the rank need not be known.
    dim = tf.reduce_prod(shape[2:])
    gradient = tf.reshape(gradient, [shape[0], shape[1], dim])
    if gradient.dtype.size == 2:
        gradient = tf.cast(gradient, tf.float32)
    outside = tf.where(inside[:, :, tf.newaxis], 0.0, gradient)
    sums = tf.reduce_sum(outside, axis=[0, 1])
    # One group for a scalar pad_value, else one per number.
    groups = tf.size(pad_value, out_type=tf.int64)
    sums = tf.reshape(sums, [groups, dim // tf.maximum(groups, 1)])
    sums = tf.cast(tf.reduce_sum(sums, axis=1), pad_value.dtype)
    return tf.reshape(sums, tf.shape(pad_value))


@tf.RegisterGradient("Lodestar>SequencePad")
def _sequence_pad_gradient(
    op: tf.Operation, gradient: tf.Tensor, unused_lengths_gradient: tf.Tensor
) -> Grads:
    values, _, pad_value, _ = op.inputs
    lengths = op.outputs[1]
    # A gather from the padded rows gives IndexedSlices.
    gradient = tf.convert_to_tensor(gradient)
    values_gradient, _ = sequence_unpad(gradient, lengths)
    values_gradient.set_shape(values.shape)
    # An eager tape lists unneeded gradients.
    skipped = getattr(op, "skip_input_indices", None) or ()
    if 2 in skipped:
        return values_gradient, None, None, None
    pad_gradient = _pad_value_gradient(pad_value, lengths, gradient)
    return values_gradient, None, pad_gradient, None


@tf.RegisterGradient("Lodestar>SequenceUnpad")
def _sequence_unpad_gradient(
    op: tf.Operation, gradient: tf.Tensor, unused_splits_gradient: tf.Tensor
) -> Grads:
    padded, _ = op.inputs
    padded_gradient, _ = sequence_pad(
        gradient,
        op.outputs[1],
        tf.zeros([], gradient.dtype),
        tf.shape(padded, out_type=tf.int64)[1],
    )
    padded_gradient.set_shape(padded.shape)
    return padded_gradient, None


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
    # The op is p * (g - S(p * g)), where S replaces each row by the sum of its
    # sequence. It is self-adjoint in g.
    p, g, row_splits = op.inputs

    def sums(x: tf.Tensor) -> tf.Tensor:
        return sequence_sums_of_rows(x, row_splits)

    in_p = upstream * (g - sums(p * g)) - g * sums(p * upstream)
    return in_p, _gradient_of_values(p, upstream, row_splits), None
