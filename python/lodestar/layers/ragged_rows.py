"""Advice for ragged rows that reach a layer for dense tensors."""

from typing import Any

import tensorflow as tf

_RAGGED = (
    "Ragged rows of shape {shape} were given to something that takes a dense "
    "tensor, as Keras's Dense does. Pool the rows of each example with "
    "`combiner=` of the embedding (or lodestar.sequence.pool), or pad them with "
    "lodestar.sequence.pad."
)


def _refuse_to_make_dense(value: tf.RaggedTensor, *_: Any, **__: Any) -> Any:
    """Raises an error with advice in place of TensorFlow's."""
    if value.dtype.is_floating and value.flat_values.shape.rank == 2:
        raise TypeError(_RAGGED.format(shape=value.shape))
    return NotImplemented


# Before TensorFlow's own, of priority 100.
tf.register_tensor_conversion_function(
    tf.RaggedTensor, _refuse_to_make_dense, priority=50
)
