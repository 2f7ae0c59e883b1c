"""Elementwise functions over dense, ragged and sparse tensors."""

from collections.abc import Callable
from typing import Any

import tensorflow as tf


def map_flat(function: Callable[[tf.Tensor], tf.Tensor], x: Any) -> Any:
    """Applies `function` to the flat values of a tensor of any kind."""
    if isinstance(x, tf.RaggedTensor):
        return x.with_flat_values(function(x.flat_values))
    if isinstance(x, tf.SparseTensor):
        return x.with_values(function(x.values))
    return function(x)


def flat_values(x: Any) -> tf.Tensor:
    """Returns the flat values of a tensor of any kind."""
    if isinstance(x, tf.RaggedTensor):
        return x.flat_values
    return x.values if isinstance(x, tf.SparseTensor) else x
