"""Helpful errors for ragged rows that reach a layer for dense tensors."""

from typing import Any

import tensorflow as tf

_RAGGED = (
    "Ragged rows of shape {shape} were passed where a dense tensor is needed, "
    "for example to keras.layers.Dense. Apply the layer to each step with "
    "lodestar.layers.PerStep, pool the rows of each example with `combiner=` of the "
    "embedding (or lodestar.sequence.pool), pad them with lodestar.sequence.pad, or "
    "use lodestar.layers.SequenceAttention for attention."
)


def _refuse_to_make_dense(value: tf.RaggedTensor, *_: Any, **__: Any) -> Any:
    """Raises a more helpful error than TensorFlow's."""
    if value.dtype.is_floating and value.flat_values.shape.rank == 2:
        raise TypeError(_RAGGED.format(shape=value.shape))
    return NotImplemented


# TensorFlow's own function has priority 100; lower numbers run first.
tf.register_tensor_conversion_function(
    tf.RaggedTensor, _refuse_to_make_dense, priority=50
)
